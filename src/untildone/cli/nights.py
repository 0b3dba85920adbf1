"""`rehearse --night`: every trouble of a night in three minutes, with a certificate at the end."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from untildone import config, wiring
from untildone.agents.argv import find_claude
from untildone.cli.driving import Output, foreground
from untildone.cli.options import settled
from untildone.cli.scratch import Evidence
from untildone.cli.streams import put, say
from untildone.errors import UsageError
from untildone.rehearsal.acts import ACTS, Act
from untildone.rehearsal.certificate import Scene, as_json, headline, markdown
from untildone.rehearsal.night import Setup, rehearse_night

UNDERSTUDY = "untildone.cli.understudy"


def night(scratch: Path, folder: Path, wanted: Sequence[str], claude: str | None, output: Output, *, keep: bool) -> int:
    """Play the acts in a scratch clone of the repository around `folder`.

    0 when something is green and nothing red: what could not be staged is said, and is no reason to stay up.
    """
    acts = _chosen(wanted)
    clock = wiring.system_clock()
    # A limit is needed to have a policy at all; each act brings its own.
    resolved = settled({"claude": claude, "max_iterations": "8"}, folder)
    spec = config.run_spec(resolved, goal="rehearse", cwd=folder, name="night")
    path = os.environ.get("PATH", os.defpath)
    evidence = Evidence()
    setup = Setup(
        scratch=scratch,
        repository=_repository_of(folder),
        spec=spec,
        policy=config.policy(resolved, now=clock.now()),
        claude=find_claude(spec.options.claude, path=path),
        path=path,
        loop=(sys.executable, "-m", UNDERSTUDY),
        python=python_path(os.environ),
        open_log=lambda store: wiring.open_log(store, clock),
        clock=clock,
        evidence=None if keep else evidence.folder,
    )
    try:
        return foreground(_play(setup, acts, output))
    except BaseException:
        evidence.drop()  # nobody was told of it
        raise


async def _play(setup: Setup, acts: Sequence[Act], output: Output) -> int:
    certificate = await rehearse_night(setup, acts, _silent if output.for_programs else _live)
    if output.json:
        put(json.dumps(as_json(certificate), ensure_ascii=False))
    elif output.quiet:
        put(headline(certificate))
        for scene in certificate.scenes:
            if scene.evidence:
                say(f"what is kept of {scene.name}: {scene.evidence}")
    else:
        put("\n" + markdown(certificate))
    return 0 if certificate.passed else 1


def python_path(env: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH as it is, but independent of the folder we are in: the loop is started in another."""
    named = env.get("PYTHONPATH", "").split(os.pathsep)
    places = [os.path.abspath(place) for place in named if place]  # noqa: PTH100 - links stay links
    return {"PYTHONPATH": os.pathsep.join(places)} if places else {}


def _chosen(wanted: Sequence[str]) -> list[Act]:
    known = {act.name: act for act in ACTS}
    strange = [name for name in wanted if name not in known]
    if strange:
        raise UsageError(f"no act is called {strange[0]!r}: there are {', '.join(known)}")
    return [act for act in ACTS if not wanted or act.name in wanted]


def _repository_of(folder: Path) -> Path | None:
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def _live(act: Act, scene: Scene | None) -> None:
    if scene is None:
        put(f"{act.name}: {act.staged} ...")
        return
    put(f"  {scene.verdict}, {scene.seconds:.0f} s: {'; '.join(scene.why) or scene.happened}")


def _silent(act: Act, scene: Scene | None) -> None:
    """Standard output belongs to the certificate."""
