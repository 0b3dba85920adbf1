"""What is believed about earlier landings, and what is looked at although nothing is to be merged."""

from pathlib import Path

import pytest

from git.conftest import Project
from git.landing_kit import Looks, files_of, green, lander_in, run_git, work_on
from untildone.ports.delivery import Landed, NotLanded

pytestmark = pytest.mark.anyio


async def test_a_landing_that_somebody_only_claims_is_made(repo: Project) -> None:
    """Whoever can write refs can write down a landing that never was."""
    commit, tip = work_on(repo.path, "run", {"a.txt": "a\n"}), repo.git("rev-parse", "main")
    work_on(repo.path, "main", {"other.txt": "o\n"})
    for parents in ((tip,), (tip, repo.git("rev-parse", "main"))):
        named = [word for parent in parents for word in ("-p", parent)]
        forged = run_git(repo.path, "commit-tree", "main^{tree}", *named, text="landed\n")
        repo.git("update-ref", f"refs/untildone/r1/landed/{commit}", forged)
        lander, looks = await lander_in(repo.path), Looks(repo.path)
        landed = await lander.merge(commit, message="m", verify=looks)
        assert isinstance(landed, Landed)
        assert looks.seen == [landed.merged]
        assert files_of(repo.path, "main") >= {"a.txt", "other.txt"}
        repo.git("update-ref", "refs/heads/main", "main~1")


async def test_a_claimed_landing_of_earlier_work_takes_nothing_away(repo: Project) -> None:
    earlier = work_on(repo.path, "run", {"a.txt": "a\n"})
    commit = work_on(repo.path, "run", {"b.txt": "b\n"})
    forged = run_git(repo.path, "commit-tree", "main^{tree}", "-p", "main", text="landed\n")
    repo.git("update-ref", f"refs/untildone/r1/landed/{earlier}", forged)
    assert isinstance(await (await lander_in(repo.path)).merge(commit, message="m", verify=green(repo.path)), Landed)
    assert files_of(repo.path, "main") >= {"a.txt", "b.txt"}


async def test_what_the_base_has_already_is_looked_at_all_the_same(repo: Project) -> None:
    """Somebody brought the work there, and something red with it."""
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    tip = work_on(repo.path, "main", {"a.txt": "a\n", "red.txt": "r\n"})
    looks = Looks(repo.path, is_red=lambda files: "red is there" if "red.txt" in files else "")
    outcome = await (await lander_in(repo.path)).merge(commit, message="m", verify=looks)
    assert outcome == NotLanded(cause="checks", detail="red is there")
    assert (looks.seen, repo.git("rev-parse", "main")) == ([tip], tip)


async def test_ignored_files_where_the_base_is_checked_out_are_not_overwritten(repo: Project, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", str(tmp_path / "users"), "main")
    (repo.path / ".git" / "info" / "exclude").write_text("local.cfg\n")
    (tmp_path / "users" / "local.cfg").write_text("mine\n")
    commit = work_on(repo.path, "run", {"local.cfg": "the run's\n"})
    outcome = await (await lander_in(repo.path)).merge(commit, message="m", verify=green(repo.path))
    assert isinstance(outcome, NotLanded)
    assert "local.cfg" in outcome.detail
    assert (tmp_path / "users" / "local.cfg").read_text() == "mine\n"
