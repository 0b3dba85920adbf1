"""Contracts and repositories that cannot work: one clear line, the work is kept, and it never counts as verified."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, claim
from untildone.core import events as ev
from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.lines import event_line
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import Policy
from untildone.errors import ConfigError

pytestmark = pytest.mark.anyio

CHECK = "sh tests/run.sh"
SCRIPT = 'grep -q good app || { echo "FAILED tests/app_test.sh::test_app - no"; exit 1; }\n'
Act = Callable[[Rig], None]


def sh(*commands: str) -> Act:
    """Done by hand or by the agent, in the repository."""

    def act(rig: Rig) -> None:
        identity = {f"GIT_{who}_{what}": "ada" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {**os.environ, **identity, "GIT_ALLOW_PROTOCOL": "file"}
        subprocess.run(["bash", "-ec", "; ".join(commands)], cwd=rig.repo, env=env, check=True, capture_output=True)

    return act


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    (made.repo / "tests").mkdir()
    (made.repo / "tests" / "run.sh").write_text(SCRIPT)
    (made.repo / "app").write_text("bad\n")
    made.git("add", ".")
    made.git("commit", "-qm", "a program that does not work yet")
    return made


async def judged(rig: Rig, act: Act, **contract: Any) -> str:
    """A run of one iteration that changes something, besides work that is to be kept: what the user reads."""

    def agent(_: Order) -> Outcome:
        (rig.repo / "work.txt").write_text("work\n")
        act(rig)
        return claim()

    state, _ = await rig.run([agent], Policy(max_runs=1), contract=Contract(**{"checks": commands(CHECK), **contract}))
    assert not state.verified
    assert state.phase == "suspended"
    if state.attempts:
        assert rig.git("show", "HEAD:work.txt") == "work\n", "committed on the branch of the run"
    last = {type(record.event): event_line(record) for record in rig.records}
    told = last.get(ev.IterationValidation) or last[ev.ContinuousSuspended]
    told = last[ev.BaselineTaken] if state.stop_reason == "clean_room_refused" else told
    line = f"{state.stop_reason}: {told}"
    assert "\n" not in line
    assert "Traceback" not in line
    return line


# --- commands ------------------------------------------------------------------------------------------------


UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"checks": commands("echo 'a")}, "check echo 'a cannot be run: the shell cannot read it ("),
    ({"checks": (CheckSpec(name="web", command=""),)}, "check web cannot be run: there is nothing to run in it"),
    ({"checks": commands("# pytest\n\n")}, "cannot be run: there is nothing to run in it; correct the command"),
    ({"checks": commands("true\0")}, "cannot be run: it holds a NUL character"),
    ({"setup": "npm ci && ("}, "--setup cannot be run: the shell cannot read it"),
    ({"fail_to_pass_check": "pytest `tests"}, "--fail-to-pass-check cannot be run: the shell cannot read it"),
]


async def test_a_command_that_no_shell_can_run_is_refused_before_anything_begins(rig: Rig) -> None:
    for contract, said in UNUSABLE:
        with pytest.raises(ConfigError) as refused:
            await judged(rig, sh(), **contract)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
    assert rig.records == []


SLOW = pytest.mark.soak


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (
            {"setup": "echo no lock; exit 4"},
            "clean_room_refused: the checks prove nothing here: the setup fails in a fresh checkout (exit 4: no lock)",
        ),
        ({"setup": "sleep 60", "setup_timeout": 0.3}, "the setup fails in a fresh checkout (did not end in time)"),
        ({"setup": "nosuchprogram --x"}, "(exit 127: /bin/sh: 1: nosuchprogram: not found), so no check can be run"),
        ({"checks": commands("nosuchprogram")}, "(exit 127): `nosuchprogram` is not found; install it, say how with"),
        ({"checks": (CheckSpec(name="web", command="true", folder="nosuch"),)},
         "`web` cannot be run: there is no folder nosuch to run it in; fix that, or leave the check out"),
        ({"checks": commands("./app")},
         ": ./app (exit 126: /bin/sh: 1: ./app: Permission denied, was already failing before the run"),
    ],
)  # fmt: skip
@SLOW
async def test_a_check_or_a_setup_that_cannot_work(rig: Rig, contract: dict[str, Any], said: str) -> None:
    assert said in await judged(rig, sh(), **contract)


# --- repositories --------------------------------------------------------------------------------------------

GONE = sh(
    "git checkout -q --orphan new", "git add -A", "git commit -qm all", "git branch -D work", "git branch -m work",
    "git for-each-ref --format='delete %(refname)' refs/untildone | git update-ref --stdin",
    "git reflog expire --expire=now --all", "git gc -q --prune=now",
)  # fmt: skip


async def test_a_base_that_is_gone_is_named_and_the_work_stays(rig: Rig) -> None:
    base = rig.git("rev-parse", "HEAD")[:10]
    said = await judged(rig, GONE)
    assert said.startswith("surroundings_failed: ")
    assert f"commit {base} is not in the repository any more: fetch it again, or start a new run" in said


@SLOW
@pytest.mark.parametrize(
    "make",
    [
        sh("git checkout -q --detach"),
        sh("rm -rf .git", "git init -q -b work --object-format=sha256", "git add -A", "git commit -qm one"),
        sh("mkdir web", "touch web/x", "git add -A", "git commit -qm web",
           "git sparse-checkout set --no-cone '/*' '!/web/'"),
        sh("mv ../repo ../full", "git clone -q --depth 1 file://$PWD/../full ../repo"),
    ],
    ids=["a detached HEAD", "sha256", "sparse", "shallow"],
)  # fmt: skip
async def test_a_repository_of_another_kind_is_judged_like_any_other(rig: Rig, make: Act) -> None:
    make(rig)
    told = await judged(rig, sh("echo true > tests/run.sh"))
    assert told.startswith("max_runs_reached: disputed at ")
    assert told.endswith(": tests/app_test.sh::test_app fails")


async def test_in_a_repository_without_a_commit_nothing_is_lost(rig: Rig) -> None:
    sh("rm -rf .git", "git init -q -b work")(rig)
    (rig.repo / "work.txt").touch()
    state, _ = await rig.run(
        [claim()], Policy(max_runs=1), keep_dirty=True, contract=Contract(checks=commands(CHECK), baseline=False)
    )
    assert (state.stop_reason, state.verified) == ("max_runs_reached", False)
    assert set(rig.git("ls-tree", "--name-only", "HEAD").split()) >= {"app", "work.txt"}


# --- files that judge, and became something else -------------------------------------------------------------

OTHER = sh(
    "mkdir -p ../other/tests", "cd ../other", "git init -q -b main", "echo 'exit 1' > tests/run.sh", "git add -A",
    "git commit -qm one",
)  # fmt: skip
SUBMODULE = sh("git submodule add -q ../other sub", "echo 'sh sub/tests/run.sh' > tests/run.sh", "git add -A")
DEEP = '{"a":' * 900 + "1" + "}" * 900


@dataclass(frozen=True)
class Case:
    before: tuple[Act, ...] = ()
    act: Act = field(default_factory=sh)
    said: str = "disputed at"
    check: str = CHECK


def name_of_bytes(text: str) -> Act:
    def act(rig: Rig) -> None:
        Path(os.fsdecode(os.fsencode(rig.repo) + b"/tests/a\xff.sh")).write_text(text)

    return act


def package(test: str) -> Act:
    return lambda rig: (rig.repo / "package.json").write_text(f'{{"scripts": {{"test": "{test}"}}, "x": {DEEP}}}')


def large_package(rig: Rig) -> None:
    scripts = {f"s{n}": "x" * 50 for n in range(80_000)}
    (rig.repo / "package.json").write_text(json.dumps({"scripts": {**scripts, "test": "true"}}))


CASES = {
    "a submodule with tests at another commit": Case(
        (OTHER, SUBMODULE), sh("cd sub", "echo true > tests/run.sh", "git commit -qam two"), "sh tests/run.sh: fails"
    ),
    "a repository that only the agent has": Case(
        act=sh("git init -q sub", "cd sub", "echo true > x", "git add x", "git commit -qm x", "cd ..", "git add sub",
               "echo 'sh sub/x' > tests/run.sh", "git commit -qam sub"),
        said="cannot open sub/x: No such file",
    ),
    "the folder of tests is a link": Case(
        (sh("mv tests suite", "ln -s suite tests"),),
        sh("mkdir good", "echo true > good/run.sh", "ln -sfn good tests"),
    ),
    "a test is a link to a file that is no test by its name": Case(
        (sh("mv tests/run.sh real", "ln -s ../real tests/run.sh"),), sh("echo true > real")
    ),
    "a name that is not UTF-8": Case(
        (name_of_bytes("exit 1\n"), sh("echo 'sh tests/a*.sh' > tests/run.sh")), name_of_bytes("true\n")
    ),
    "a link to outside": Case(act=sh("ln -sf /bin/true tests/run.sh"), check="tests/run.sh", said="Permission denied"),
    "a link that leads nowhere": Case(act=sh("ln -sf nowhere tests/run.sh"), said="No such file"),
    "a file became a folder": Case(
        (sh("echo 'exit 1' > tests/x.sh", "echo 'sh tests/x.sh' > tests/run.sh"),),
        sh("rm tests/x.sh", "mkdir tests/x.sh", "echo true > tests/x.sh/x", "echo true > tests/run.sh"),
    ),
    "the folder became a file": Case(
        act=sh("rm -r tests", "echo true > tests"), check="if test -d tests; then sh tests/run.sh; else sh tests; fi"
    ),
    "a submodule took the place of the folder": Case(
        (OTHER,),
        sh("git rm -rq tests", "git submodule add -q ../other tests", "cd tests", "mkdir -p x", "echo true > run.sh",
           "git add -A", "git commit -qm two"),
    ),
    "a submodule with work that is not committed": Case(
        (OTHER, SUBMODULE), sh("echo true > sub/tests/run.sh"), "checks failed"
    ),
    "a submodule that is not there": Case(
        (OTHER, SUBMODULE), sh("rm -rf .git/modules/sub sub", "mkdir sub"), "cannot open sub/tests/run.sh: No such file"
    ),
    "the Makefile became a folder": Case(
        (sh("printf 'test:\\n\\tfalse\\n' > Makefile"),),
        sh("rm Makefile", "mkdir Makefile", "touch Makefile/x", "printf 'test:\\n\\ttrue\\n' > GNUmakefile"),
        check="make test",
    ),
    "the executable bit is lost": Case(
        (sh("chmod +x tests/run.sh"),), sh("chmod -x tests/run.sh", "echo good > app"), "Permission denied",
        "tests/run.sh",
    ),
    "names that differ only in case": Case(
        (sh("cp tests/run.sh tests/RUN.sh"),), sh("echo true > tests/Run.sh", "echo true > tests/run.sh")
    ),
    "settings that are binary": Case(
        (sh("printf '[tool.pytest]\\n' > pyproject.toml"),),
        sh("printf '\\0\\377[tool' > pyproject.toml", "echo true > tests/run.sh"),
    ),
    "JSON that is nested deeply": Case((package("false"),), package("true"), check="! grep -q false package.json"),
    "5 MB of JSON": Case((package("false"),), large_package, check="! grep -q false package.json"),
}  # fmt: skip
QUICK = {"a submodule with tests at another commit"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else SLOW) for name in CASES])
async def test_what_judges_is_another_kind_of_thing(rig: Rig, name: str) -> None:
    case = CASES[name]
    for act in case.before:
        act(rig)
    rig.git("add", "-A")
    rig.git("commit", "--allow-empty", "-qm", "base")
    assert case.said in await judged(rig, case.act, checks=commands(case.check))
