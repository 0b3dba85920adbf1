"""What a run sends along while it works, and who may take it up."""

import base64
import subprocess
from pathlib import Path

import pytest

from untildone import wiring
from untildone.core.policy import RunSpec
from untildone.core.state import LoopState, Phase
from untildone.errors import UsageError
from untildone.git.bundle import unwrapped
from untildone.git.workspace import open_workspace
from untildone.moving import Destination, _refuse_busy, _tree
from untildone.uplink.fetching import FarRun
from untildone.uplink.known_secrets import KnownSecrets
from untildone.uplink.masking import Masking

pytestmark = pytest.mark.anyio


async def test_a_file_with_a_secret_of_this_machine_does_not_travel(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "work"], cwd=folder, check=True, timeout=30)
    (folder / ".env").write_text("A_KEY=inDotEnv99x\n")
    (folder / "server.log").write_text("A_KEY is inDotEnv99x\n")
    (folder / "trace.txt").write_text("token: ofTheProcess42\n")
    (folder / "encoded.txt").write_bytes(base64.b64encode(b"k=inDotEnv99x"))
    (folder / "work.txt").write_text("work\n")
    secrets = KnownSecrets({"B_TOKEN": "ofTheProcess42"}, str(folder), now=lambda: 1.0)
    spec = RunSpec(goal="g", name="n", cwd=str(folder))
    made = await _tree(await open_workspace(spec, run_id="r1", private=tmp_path / "folders"), "r1", Masking(secrets))(
        ""
    )
    assert made is not None
    assert set(unwrapped(made[1])[0].left_out) == {".env", "server.log", "trace.txt", "encoded.txt"}


@pytest.mark.parametrize(
    ("phase", "alive", "take", "is_busy"),
    [
        ("running", True, False, True),
        ("running", True, True, False),
        ("running", False, False, False),
        ("suspended", True, False, False),
    ],
)
def test_a_run_that_said_that_it_stopped_is_free_at_once(
    tmp_path: Path, phase: Phase, alive: bool, take: bool, is_busy: bool
) -> None:
    clock = wiring.system_clock()
    to = Destination(
        log=wiring.open_log(tmp_path / "state", clock), store=tmp_path / "state", folder=tmp_path, server="http://s",
        sandbox_id="b", key="k", config_dir=tmp_path, clock=clock, host="b", take=take,
    )  # fmt: skip
    far = FarRun(run_id="r1", sandbox_id="a", origin="worker", last_seq=9, alive=alive, host="a")
    state = LoopState(run_id="r1", phase=phase)
    if not is_busy:
        _refuse_busy(state, far, to)
        return
    with pytest.raises(UsageError, match="is at work on a"):
        _refuse_busy(state, far, to)
