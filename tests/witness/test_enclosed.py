"""Checks see the commit at the path of the agent's tree, and nothing else that the agent made."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.findings import LentChange
from untildone.core.verdict import lent_findings
from untildone.ports.delivery import Subject
from untildone.witness.examiner import Sealing
from witness.stage import Stage

pytestmark = pytest.mark.anyio

WHERE = "python -c 'import pkg; print(pkg.__file__, pkg.VALUE); assert pkg.VALUE == 2'"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """One whose user has a home of its own."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    made = Stage(tmp_path)
    made.git("config", "--global", "user.name", "Ada")
    return made


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# --- installed in place ----------------------------------------------------------------------------------


def editable(venv: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pip install -e .` leaves in an environment, which is then activated."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "__editable__.pkg.pth").write_text(f"{project}/src\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    monkeypatch.setenv("PATH", f"{venv}/bin:{os.environ['PATH']}")


def with_package(stage: Stage) -> None:
    (stage.repo / ".gitignore").write_text(".venv\nnode_modules\n")
    (stage.repo / "src" / "pkg").mkdir(parents=True)
    (stage.repo / "src" / "pkg" / "__init__.py").write_text("VALUE = 1\n")
    stage.commit()


@pytest.mark.parametrize("venv", ["home/.virtualenvs/pkg", "repo/.venv"])
async def test_a_package_installed_in_place_is_the_commits_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, venv: str
) -> None:
    with_package(stage)
    editable(stage.tmp / venv, stage.repo, monkeypatch)
    (stage.repo / "src" / "pkg" / "__init__.py").write_text("VALUE = 2  # never committed\n")
    (result,) = await stage.examine(WHERE)
    assert (result.passed, result.weaker) == (False, "")
    assert result.output_tail.startswith(f"{stage.repo}/src/pkg/__init__.py 1\n")
    stage.commit()
    (result,) = await stage.examine(WHERE)
    assert result.passed
    assert not (stage.repo / "src" / "pkg" / "__pycache__").exists()


async def test_in_a_worktree_the_package_of_the_main_tree_means_the_commit_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_package(stage)
    editable(stage.repo / ".venv", stage.repo, monkeypatch)
    stage.git("worktree", "add", "-q", str(stage.tmp / "repo-worktrees" / "wt"))
    work = stage.tmp / "repo-worktrees" / "wt"
    (work / "src" / "pkg" / "__init__.py").write_text("VALUE = 2\n")
    (result,) = await (await stage.examiner(cwd=str(work))).examine(
        Subject(commit=stage.git("rev-parse", "HEAD"), room="clean"), commands(WHERE)
    )
    assert not result.passed
    stage.git("-C", str(work), "commit", "-qam", "two")
    examiner = await stage.examiner(cwd=str(work))
    subject = Subject(commit=stage.git("-C", str(work), "rev-parse", "HEAD"), room="clean")
    (result, other) = await examiner.examine(subject, commands(WHERE, f"cat {stage.repo}/a.txt; pwd"))
    assert result.output_tail == f"{stage.repo}/src/pkg/__init__.py 2\n"
    assert other.output_tail == f"a\n{work}\n"


async def test_what_the_setup_installs_takes_precedence_over_the_users_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_package(stage)
    editable(stage.repo / ".venv", stage.repo, monkeypatch)
    executable(stage.repo / ".venv" / "bin" / "tool", "echo lent")
    made = "mkdir -p .venv/bin && echo 'echo its own' > .venv/bin/tool && chmod +x .venv/bin/tool"
    (lent,), (built,) = [await stage.examine("tool", setup=setup) for setup in (None, made)]
    assert (lent.output_tail, built.output_tail) == ("lent\n", "its own\n")
    assert lent.notes == ("shared with the tree, read-only: .venv",)


# --- toolchains and programs -----------------------------------------------------------------------------


async def test_a_toolchain_that_path_leads_to_is_seen_read_only_with_its_cache(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cargo = stage.tmp / "home" / ".cargo"
    executable(cargo / "bin" / "mytool", 'cat "$(dirname "$0")/../registry/crate" && ! touch "$(dirname "$0")/x"')
    (cargo / "registry").mkdir()
    (cargo / "registry" / "crate").write_text("cached\n")
    lone = executable(stage.tmp / "home" / ".local" / "share" / "uv" / "tools" / "lint" / "bin" / "lint", "echo linted")
    (stage.tmp / "home" / ".local" / "bin").mkdir()
    (stage.tmp / "home" / ".local" / "bin" / "lint").symlink_to(lone)
    (stage.tmp / "home" / ".local" / "share" / "secret").touch()
    monkeypatch.setenv("PATH", f"{cargo}/bin:{stage.tmp}/home/.local/bin:/usr/bin:/bin")
    results = await stage.examine("mytool 2>/dev/null", "lint", "test ! -e ~/.local/share/secret")
    assert [(result.passed, result.output_tail) for result in results] == [
        (True, "cached\n"), (True, "linted\n"), (True, "")
    ]  # fmt: skip


async def test_a_program_that_is_replaced_during_the_run_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = executable(stage.tmp / "home" / "bin" / "mytest", "exit 1")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    contract = {"checks": commands("mytest -q", "true")}
    examiner, subject = await stage.examiner(**contract), Subject(commit=stage.git("rev-parse", "HEAD"), room="clean")
    await examiner.examine(subject, contract["checks"])
    assert await examiner.lent_changes() == []
    monkeypatch.setenv(
        "PATH", f"{executable(stage.tmp / 'home' / 'first' / 'mytest', 'exit 0').parent}:{tool.parent}:/bin"
    )
    assert await examiner.lent_changes() == [LentChange("mytest")], "another one comes first"
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    assert await examiner.lent_changes() == []
    executable(tool, "exit 0")
    first, second = await (await stage.examiner(**contract)).examine(subject, contract["checks"])
    assert first.notes == ("a program is not what it was when the run began: mytest",)
    assert second.notes == ()
    assert await examiner.lent_changes() == [LentChange("mytest")]


# --- what the agent left elsewhere -----------------------------------------------------------------------


async def test_nothing_of_the_agents_in_homes_temporary_folders_or_beside_the_tree_is_seen(stage: Stage) -> None:
    for name in ("home/.cache/help", "help", "repo/untracked"):
        (stage.tmp / name).parent.mkdir(exist_ok=True)
        (stage.tmp / name).write_text("helps\n")
    Path("/dev/shm/untildone-help").touch()
    try:
        results = await stage.examine(
            f"! cat {stage.tmp}/home/.cache/help",
            f"! cat {stage.tmp}/help ../help",
            "! cat untracked /dev/shm/untildone-help",
            f"test $(ls -A {stage.tmp}/state/rooms | wc -l) = 0 || ! cat {stage.tmp}/state/rooms/*/*/*/a.txt",
            'test "$HOME" = ' + f"{stage.tmp}/home",
            "! touch /usr/here /etc/here",
        )
    finally:
        Path("/dev/shm/untildone-help").unlink()
    assert [result.command for result in results if not result.passed] == []


async def test_links_of_the_commit_lead_nowhere(stage: Stage) -> None:
    (stage.tmp / "home" / "data").write_text("helps\n")
    (stage.repo / "hidden").mkdir()
    (stage.repo / "hidden" / "answer").write_text("helps\n")
    (stage.repo / ".gitignore").write_text("hidden\n")
    (stage.repo / "data").symlink_to(stage.tmp / "home" / "data")
    (stage.repo / "near").symlink_to("../home/data")
    (stage.repo / "back").symlink_to(stage.repo / "hidden" / "answer")
    stage.commit()
    assert [result.passed for result in await stage.examine("cat data", "cat near", "cat back")] == [False] * 3
    stage.enclosed = False
    (result,) = await stage.examine("cat data")
    assert result.passed
    assert result.weaker == "bubblewrap is not installed; links of the commit lead out of it: back, data, near"


async def test_what_the_setup_leaves_in_its_home_is_there_for_the_checks_and_gone_after_them(stage: Stage) -> None:
    results = await stage.examine("cat ~/made /tmp/made", setup="echo yes | tee ~/made > /tmp/made")
    assert results[0].output_tail == "yes\nyes\n"
    assert not (stage.tmp / "home" / "made").exists()
    (again,) = await stage.examine("test ! -e ~/made && test ! -e /tmp/made")
    assert again.passed


async def test_what_a_check_started_ends_with_it(stage: Stage) -> None:
    # Its own: the same test may run elsewhere on this machine.
    sleeps = f"^sleep 987[.]{os.getpid()}"
    begins = f"setsid sh -c 'exec sleep 987.{os.getpid()}' </dev/null >/dev/null 2>&1"
    script = f"{begins} & until pgrep -f '{sleeps}' >/dev/null; do sleep 0.01; done"
    results = await stage.examine(script, f"! pgrep -f '{sleeps}'")
    assert [result.passed for result in results] == [True, True]
    assert subprocess.run(["pgrep", "-f", sleeps], capture_output=True, check=False).returncode == 1


async def test_what_the_agent_left_running_is_ended_first(stage: Stage) -> None:
    calls = []
    stage.leftovers = lambda: calls.append("ended") or 2
    said: list[str] = []
    subject = Subject(commit=stage.git("rev-parse", "HEAD"), room="clean")
    await (await stage.examiner()).examine(subject, commands("true"), progress=said.append)
    assert (calls, said[0]) == (["ended"], "ended 2 processes that the agent left running")


# --- git and networks ------------------------------------------------------------------------------------


async def test_git_works_and_what_it_writes_stays_inside(stage: Stage) -> None:
    stage.git("tag", "v1.2")
    stage.git("branch", "other")
    before = {path: path.read_bytes() for path in (stage.repo / ".git").rglob("*") if path.is_file()}
    results = await stage.examine(
        "git describe --tags && git log -1 --format=%s other && git status --porcelain",
        "git -c user.name=A -c user.email=a@b commit -q --allow-empty -m mine && git tag made && git stash list",
        "git config core.hooksPath /x && git config core.fsmonitor 'touch /x' && echo x > .git 2>/dev/null; true",
        "git rev-parse -q --verify made",
    )
    assert [result.passed for result in results] == [True] * 3 + [False]  # .git was overwritten before
    assert results[0].output_tail == "v1.2\nfirst\n"
    assert {path: path.read_bytes() for path in (stage.repo / ".git").rglob("*") if path.is_file()} == before


async def test_the_network_is_the_machines_own_unless_the_proof_is_strict(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {server.getsockname()[1]}), 60)'"
        ((normal,), (strict,)) = [await stage.examine(reach, proof=proof) for proof in ("normal", "strict")]
    assert (normal.passed, strict.passed) == (True, False)


# --- odd places ------------------------------------------------------------------------------------------


async def test_the_view_cannot_be_taken_away(stage: Stage) -> None:
    (stage.repo / "a.txt").write_text("dirty\n")
    tries = "umount . /tmp; unshare -m umount $PWD; unshare -Urm umount -l $PWD; cd /; cd - >/dev/null; cat a.txt"
    (result,) = await stage.examine(f"{{ {tries}; }} 2>/dev/null")
    assert result.output_tail == "a\n"


async def test_a_plain_folder_and_a_copy_of_the_tree_are_enclosed_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.repo / "node_modules").mkdir()
    (stage.repo / "node_modules" / "x").touch()
    subject = Subject(commit=stage.git("rev-parse", "HEAD"), room="clean", furnished=True)
    (result,) = await (await stage.examiner()).examine(subject, commands("test -f node_modules/x && pwd"))
    assert result.output_tail == f"{stage.repo}\n"
    plain = stage.tmp / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "a").write_text("one\n")
    examiner = await stage.examiner(cwd=str(plain))
    commit = (await stage.workspaces[-1].look()).commit
    (plain / "a").write_text("two\n")
    (result,) = await examiner.examine(
        Subject(commit=commit, room="clean"), [CheckSpec(name="c", command="pwd; cat a; ls -A")]
    )
    assert result.output_tail == f"{plain}\none\na\n"


@pytest.mark.parametrize("home", ["repo", "nowhere"])
async def test_a_home_that_is_in_the_tree_or_not_there_is_replaced_by_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", str(stage.tmp / home))
    (result,) = await stage.examine("echo $HOME; touch ~/x; cat a.txt")
    assert (result.passed, result.output_tail) == (True, "/tmp/home\na\n")


async def test_in_the_tree_itself_the_proof_is_weaker(stage: Stage) -> None:
    examiner = await stage.examiner(room="tree")
    (result,) = await examiner.examine(Subject(commit=None, room="tree"), commands("true"))
    assert result.weaker == "the checks ran in the agent's own tree"
    assert Sealing().weaker


async def test_a_replaced_program_is_a_finding() -> None:
    (found,) = lent_findings([LentChange("mytest")], Contract(), ())
    assert (found.kind, found.blocking) == ("settings_changed", False)
    assert "outside the commit" in found.text
