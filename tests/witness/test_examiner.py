"""The witness in real rooms of a real repository."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from bell import Bell, bell
from patience import run_out, soon
from untildone.core.contract import CheckSpec, commands
from untildone.core.findings import LentChange
from untildone.core.outcome import CheckResult
from untildone.ports.delivery import Subject
from witness.stage import Stage

pytestmark = pytest.mark.anyio


TOO_LATE = 5000.0


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def out_of_time(examining: asyncio.Task[list[CheckResult]], begun: Bell) -> list[CheckResult]:
    """What is found when time is over after the bell has rung."""
    await soon(lambda: begun.rung, "the bell")
    await run_out(TOO_LATE)
    return await examining


async def test_checks_run_in_order_in_one_room_in_their_folders_with_their_own_timeouts(stage: Stage) -> None:
    (stage.repo / "sub").mkdir()
    (stage.repo / "sub" / "b.txt").touch()
    stage.commit()
    with bell() as begun:
        examining = asyncio.create_task(
            stage.examine(
                "touch made-by-first",
                "test -f made-by-first",
                CheckSpec(name="below", command="test -f b.txt && pwd", folder="sub"),
                CheckSpec(name="slow", command=f"echo begun; {begun.ring()}; sleep 600", timeout=TOO_LATE),
                CheckSpec(name="nowhere", command="true", folder="gone"),
                CheckSpec(name="outside", command="true", folder="../.."),
            )
        )
        results = await out_of_time(examining, begun)
    assert [result.passed for result in results] == [True, True, True, False, False, False]
    assert (results[3].exit_code, results[3].output_tail) == (None, "begun\n")
    assert [(result.ran, result.output_tail) for result in results[4:]] == [
        (False, "not run: there is no folder gone to run it in"),
        (False, "not run: there is no folder ../.. to run it in"),
    ]
    assert results[2].output_tail == f"{stage.repo}/sub\n"
    assert list(stage.repo.glob("made*")) == []


async def test_a_folder_that_is_a_link_out_of_the_commit_is_no_place_to_run_a_check(stage: Stage) -> None:
    (stage.repo / "sub").symlink_to(stage.tmp)
    stage.commit()
    (result,) = await stage.examine(CheckSpec(name="c", command="touch was-here", folder="sub"))
    assert not result.ran
    assert not (stage.tmp / "was-here").exists()


async def test_the_setup_runs_once_before_all_checks(stage: Stage) -> None:
    results = await stage.examine("test $(wc -l < ready) = 1", "test -f ready", setup="echo x >> ready")
    assert [result.name for result in results if result.passed] == ["test $(wc -l < ready) = 1", "test -f ready"]


@pytest.mark.parametrize("exit_code", [7, None])
async def test_a_failed_setup_fails_everything_by_name_and_with_its_output(stage: Stage, exit_code: int | None) -> None:
    secret = CheckSpec(name="h", command="true", hidden=True)
    with bell() as begun:
        setup = f"echo no network; {begun.ring()}; {'sleep 600' if exit_code is None else f'exit {exit_code}'}"
        examining = asyncio.create_task(stage.examine("true", secret, setup=setup, setup_timeout=TOO_LATE))
        results = await (examining if exit_code else out_of_time(examining, begun))
    assert [(result.name, result.passed, result.ran) for result in results] == [
        ("setup", False, True), ("true", False, False), ("h", False, False)
    ]  # fmt: skip
    assert (results[0].exit_code, results[0].output_tail, results[2].hidden) == (exit_code, "no network\n", True)


async def test_all_that_a_check_prints_is_kept_and_the_tail_told(stage: Stage) -> None:
    (result,) = await stage.examine(CheckSpec(name="all of: it/s", command="seq 1 40000; exit 3"))
    log = Path(result.log)
    assert log.parent == stage.tmp / "logs"
    assert log.name == f"{stage.git('rev-parse', 'HEAD')[:12]}-all-of-it-s.log"
    lines = log.read_text().splitlines()
    assert lines[:2] == ["$ seq 1 40000; exit 3", "1"]
    assert [line for line in lines if line.startswith("[")] == [lines[40001], lines[-1]]  # both tries
    assert len(result.output_tail) == 64 * 1024
    assert result.output_tail.endswith("\n40000\n")


async def test_the_same_check_of_the_same_commit_gets_a_log_of_its_own(stage: Stage) -> None:
    first, second = [(await stage.examine("true"))[0].log for _ in range(2)]
    assert (Path(first).name, Path(second).name) == (Path(first).name, f"{Path(first).stem}-2.log")


async def test_nothing_committed_is_nothing_checked(stage: Stage) -> None:
    examiner = await stage.examiner()
    (result,) = await examiner.examine(Subject(commit=None, room="clean"), commands("true"))
    assert (result.passed, result.ran) == (False, False)


# --- shared folders --------------------------------------------------------------------------------------


@pytest.fixture(params=["bound", "linked"])
def way(request: pytest.FixtureRequest, stage: Stage) -> str:
    """With bubblewrap, and on a machine where it is forbidden."""
    way: str = request.param
    stage.enclosed = way == "bound"
    return way


async def test_an_ignored_folder_is_shared_and_kept_whole(stage: Stage, way: str) -> None:
    module = stage.repo / "node_modules" / "it's"
    module.mkdir(parents=True)
    (module / "index").write_text("precious\n")
    results = await stage.examine(
        'cat "node_modules/it\'s/index" && echo \'"quoted"\' $PWD',
        "rm -rf node_modules/* || touch node_modules/new",
        share=("node_modules",),
        setup="test -d node_modules && test ! -w a.txt || true",
    )
    assert results[0].passed
    assert results[0].output_tail.startswith('precious\n"quoted" ')
    assert results[0].command.startswith("cat ")
    if way == "bound":
        assert results[0].notes == ("shared with the tree, read-only: node_modules",)
        assert not results[1].passed
        assert (module / "index").read_text() == "precious\n"
    else:
        assert results[0].notes == ("shared with the tree, writable: node_modules",)
    assert (stage.repo / "node_modules").is_dir()


async def test_what_is_shared_lies_below_the_agents_own_folder(stage: Stage, way: str) -> None:
    (stage.repo / "web" / "node_modules").mkdir(parents=True)
    (stage.repo / "web" / "node_modules" / "x").touch()
    (stage.repo / "web" / "code").touch()
    commit = stage.commit()
    examiner = await stage.examiner(cwd="web", share=("node_modules",))
    (result,) = await examiner.examine(Subject(commit=commit, room="clean"), commands("test -f node_modules/x"))
    assert result.passed


@pytest.mark.parametrize(
    ("share", "why"),
    [
        ("dist", "is not in"),
        ("src", "is part of the commit"),
        ("link/x", "leads out of the checkout"),
        ("../other", "must name a folder below"),
        ("/etc", "must name a folder below"),
        (".", "must name a folder below"),
    ],
)
async def test_what_cannot_be_shared_is_said(stage: Stage, share: str, why: str) -> None:
    for folder in ("repo/src", "other/x", "elsewhere"):
        (stage.tmp / folder).mkdir(parents=True)
    (stage.repo / "src" / "code").touch()
    (stage.repo / "link").symlink_to(stage.tmp / "elsewhere")
    stage.commit()
    (stage.repo / "link").unlink()
    (stage.repo / "link" / "x").mkdir(parents=True)
    (result,) = await stage.examine("true", share=(share,))
    assert (result.passed, result.ran) == (False, False)
    assert why in result.output_tail
    assert list((stage.tmp / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["__editable__.it-1.pth", "__editable___it_finder.py", "easy-install.pth"])
async def test_an_editable_install_would_prove_the_wrong_code(stage: Stage, name: str) -> None:
    packages = stage.repo / "node_modules" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    stage.enclosed = False
    (packages / "fine.pth").write_text(f"import this\n{packages}/other\n")
    assert (await stage.examine("true", share=("node_modules",)))[0].passed
    (packages / name).write_text(
        f"MAPPING = {{'it': '{stage.repo}/src/it'}}\n" if name.endswith("py") else f"{stage.repo}\n"
    )
    (result,) = await stage.examine("true", share=("node_modules",))
    assert not result.ran
    assert f"{name} leads back to {stage.repo}" in result.output_tail


async def test_links_between_packages_must_mean_the_commits_own(stage: Stage, way: str) -> None:
    (stage.repo / "packages" / "one").mkdir(parents=True)
    (stage.repo / "packages" / "one" / "index").write_text("committed\n")
    stage.commit()
    (stage.repo / "packages" / "one" / "index").write_text("in the tree\n")
    scope = stage.repo / "node_modules" / "@scope"
    scope.mkdir(parents=True)
    (scope / "one").symlink_to("../../packages/one")
    (result,) = await stage.examine("cat node_modules/@scope/one/index", share=("node_modules",))
    if way == "bound":
        assert result.output_tail == "committed\n"
    else:
        assert "node_modules/@scope/one leads back" in result.output_tail
    (scope / "one").unlink()
    (scope / "one").symlink_to(stage.repo / "packages" / "one")
    (result,) = await stage.examine("cat node_modules/@scope/one/index", share=("node_modules",))
    assert (result.ran, result.output_tail == "committed\n") == ((True, True) if way == "bound" else (False, False))


async def test_a_check_judges_the_commit_and_not_what_an_earlier_one_made_of_it(stage: Stage) -> None:
    first, second = await stage.examine("echo good > a.txt", "grep -q good a.txt")
    assert (first.passed, second.passed) == (True, False)
    assert first.notes == ("it changed files of the commit, which were put back: a.txt",)
    assert second.notes == ()


async def test_what_the_setup_changes_stays_and_is_told(stage: Stage) -> None:
    checks = ("grep -q good a.txt; s=$?; echo x > a.txt; exit $s", "grep -q good a.txt")
    results = await stage.examine(*checks, setup="echo good > a.txt")
    assert [result.passed for result in results] == [True, True]
    assert all("the setup changed files of the commit: a.txt" in result.notes for result in results)


async def test_a_stranger_who_writes_to_the_checkout_is_no_proof(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as its files have been put back."""
    real, shim = shutil.which("git"), stage.tmp / "bin" / "git"
    shim.parent.mkdir()
    writes = f"for f in {stage.tmp}/state/rooms/r1/*/untildone-*/a.txt; do echo good > $f; done"
    shim.write_text(f'#!/bin/sh\n"{real}" "$@"; code=$?\ncase "$*" in *checkout-index*) {writes};; esac\nexit $code\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    (result,) = await stage.examine("echo good > a.txt; grep -q good a.txt")
    assert not result.passed
    assert "somebody" in result.output_tail


async def test_a_shared_folder_that_changed_since_the_first_look_is_told(stage: Stage) -> None:
    runner = stage.repo / "node_modules" / ".bin" / "jest"
    runner.parent.mkdir(parents=True)
    runner.write_text("exit 1\n")
    examiner = await stage.examiner(share=("node_modules",))
    subject = Subject(commit=stage.git("rev-parse", "HEAD"), room="clean")
    await examiner.examine(subject, commands("sh node_modules/.bin/jest"))
    assert await examiner.lent_changes() == []
    runner.write_text("exit 0\n")
    assert await (await stage.examiner(share=("node_modules",))).lent_changes() == [
        LentChange("node_modules/.bin/jest")
    ]
