"""The GitHub adapter against the scripted server over a real bare repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.pull_kit import git_in
from git.landing_kit import work_on
from repositories import new_bare_repository
from untildone import wiring
from untildone.core.policy import Landing
from untildone.errors import ConfigError, ForgeError
from untildone.forge.github import GitHub, open_github
from untildone.rehearsal.github import TOKEN, ScriptedGitHub
from untildone.rehearsal.github_checks import ScriptedCheck
from untildone.rehearsal.github_wire import Reply

pytestmark = pytest.mark.anyio

ENV = {"GITHUB_TOKEN": TOKEN, "PATH": ""}
RED = ScriptedCheck(name="test", state="failure", log="the log\nthe end\n")
OTHER = ScriptedCheck(name="lint", state="failure", summary="line 3 is too long")
OLD = ScriptedCheck(name="ci/old", state="failure", status=True, summary="build 7 failed")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return new_bare_repository(tmp_path / "origin.git", {"a.txt": "main\n"})


@pytest.fixture
def server(bare: Path) -> Iterator[ScriptedGitHub]:
    with ScriptedGitHub(bare, lambda _, __: [RED, OTHER, OLD]) as github:
        yield github


@pytest.fixture
async def forge(server: ScriptedGitHub) -> GitHub:
    landing = Landing(repo=server.repo, forge_url=server.url)
    return await open_github(landing, "/srv/x.git", ENV, wiring.system_clock())


def commit(bare: Path, name: str, branch: str) -> str:
    """Somebody pushes a commit."""
    return work_on(bare, branch, {name: f"{branch}\n"}, message=f"add {name}")


async def opened(forge: GitHub, branch: str = "feature/x") -> int:
    return (await forge.open(branch=branch, base="main", title="T", body="B")).number


async def test_a_pull_request_is_opened_once_and_found_again(bare: Path, forge: GitHub) -> None:
    head = commit(bare, "b.txt", "feature/x")
    assert await forge.find("feature/x") is None
    view = await forge.open(branch="feature/x", base="main", title="T", body="B")
    assert (view.number, view.state, view.head, view.base) == (1, "open", head, "main")
    assert await opened(forge) == 1, "opening again finds it"
    found = await forge.find("feature/x")
    assert found is not None
    assert {check.name: check.state for check in found.checks} == {
        "test": "failed", "lint": "failed", "ci/old": "failed",
    }  # fmt: skip


async def test_a_closed_one_is_found_and_an_open_one_is_preferred(bare: Path, forge: GitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    await forge.close(await opened(forge))
    found = await forge.find("feature/x")
    assert found is not None
    assert found.state == "closed"
    assert await opened(forge) == 2
    found = await forge.find("feature/x")
    assert found is not None
    assert (found.number, found.state) == (2, "open")


async def test_logs_come_from_jobs_from_what_a_check_says_and_from_statuses(bare: Path, forge: GitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    logs = {check.name: await forge.log_of(number, check.id) for check in (await forge.look(number)).checks}
    assert logs == {"test": "the log\nthe end\n", "lint": "line 3 is too long", "ci/old": "build 7 failed"}


async def test_the_base_is_merged_in_on_the_forge(bare: Path, forge: GitHub, server: ScriptedGitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    assert await forge.update_branch(number) is None, "there is nothing new"
    tip = commit(bare, "c.txt", "main")
    server.checks.ci = lambda _, __: []
    await forge.look(number)
    assert (await forge.look(number)).behind
    head = await forge.update_branch(number)
    assert head is not None
    assert tip in git_in(server.branches.path, "rev-list", head)
    assert not (await forge.look(number)).behind


@pytest.mark.parametrize(("strategy", "parents"), [("squash", 1), ("merge", 2), ("rebase", 1)])
async def test_a_merge_is_for_one_commit_only_and_happens_once(
    bare: Path, forge: GitHub, server: ScriptedGitHub, strategy: str, parents: int
) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    newer = commit(bare, "c.txt", "feature/x")
    with pytest.raises(ForgeError, match="cannot be merged yet: Head branch was modified") as refused:
        await forge.merge(number, head="0" * 40, strategy=strategy, title="T", body="B")
    assert not refused.value.lasting
    view = await forge.merge(number, head=newer, strategy=strategy, title="T", body="why")
    assert (view.state, view.merged) == ("merged", server.branches.tip("main"))
    assert len(git_in(server.branches.path, "show", "-s", "--format=%P", "main").split()) == parents
    message = git_in(server.branches.path, "show", "-s", "--format=%B", "main")
    assert message == ("add c.txt" if strategy == "rebase" else "T (#1)\n\nwhy")
    again = await forge.merge(number, head=newer, strategy=strategy, title="T", body="why")
    assert again.state == "merged"
    assert server.merges == [1]


async def test_a_branch_is_deleted_and_gone_is_fine(bare: Path, forge: GitHub, server: ScriptedGitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    await forge.delete_branch("feature/x")
    await forge.delete_branch("feature/x")
    assert server.branches.tip("feature/x") is None


async def test_nothing_to_open_is_explained(forge: GitHub, bare: Path) -> None:
    git_in(bare, "branch", "same", "main")
    with pytest.raises(ForgeError, match="No commits between main and same"):
        await opened(forge, "same")
    with pytest.raises(ForgeError, match="cannot open a pull request of nowhere for main"):
        await opened(forge, "nowhere")


async def test_all_pages_of_comments_are_read(bare: Path, forge: GitHub, server: ScriptedGitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    for n in range(230):
        server.comment(number, f"comment {n}")
    comments = (await forge.look(number)).comments
    assert len(comments) == 230
    assert [comment.id for comment in comments] == sorted(comment.id for comment in comments)


@pytest.mark.parametrize("status", [True, False])
async def test_the_red_one_on_a_later_page_is_seen(
    bare: Path, forge: GitHub, server: ScriptedGitHub, status: bool
) -> None:
    green = [ScriptedCheck(name=f"c{n:03}", status=status) for n in range(100)]
    server.checks.ci = lambda _, __: [*green, ScriptedCheck(name="zz", state="failure", status=status)]
    commit(bare, "b.txt", "feature/x")
    checks = (await forge.look(await opened(forge))).checks
    assert len(checks) == 101
    assert [check.name for check in checks if check.state == "failed"] == ["zz"]


@pytest.mark.parametrize(("path", "field"), [("/status", "statuses"), ("/check-runs", "check_runs")])
async def test_what_is_not_shown_in_full_is_not_called_green(
    bare: Path, forge: GitHub, server: ScriptedGitHub, path: str, field: str
) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    server.reply("GET", rf"{path}$", Reply(200, {field: [], "total_count": 3}))
    with pytest.raises(ForgeError, match="shows 0 of 3") as told:
        await forge.look(number)
    assert not told.value.lasting
    entry = {"id": 1, "name": "n", "status": "completed", "context": "n", "state": "success"}
    server.reply("GET", rf"{path}$", Reply(200, {field: [entry] * 100, "total_count": 5000}), times=99)
    with pytest.raises(ForgeError, match="than can be read"):
        await forge.look(number)


async def test_one_for_another_base_is_another_one(bare: Path, forge: GitHub) -> None:
    git_in(bare, "branch", "release", "main")
    commit(bare, "b.txt", "feature/x")
    other = await forge.open(branch="feature/x", base="release", title="T", body="B")
    assert await forge.find("feature/x", "main") is None
    assert await opened(forge) != other.number
    found = await forge.find("feature/x", "main")
    assert found is not None
    assert (found.base, found.number) == ("main", 2)


async def test_reviews_are_told_even_if_graphql_is_not(bare: Path, forge: GitHub, server: ScriptedGitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    server.fail("POST", "/graphql", 403, "Resource not accessible by personal access token", times=9)
    assert (await forge.look(number)).review == "none"
    server.request_review(number, "rita")
    assert (await forge.look(number)).review == "required"
    server.review(number, "APPROVED")
    assert (await forge.look(number)).review == "approved"


async def test_a_limit_of_graphql_comes_with_status_200(bare: Path, forge: GitHub, server: ScriptedGitHub) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    limited = {"data": None, "errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}
    server.reply("POST", "/graphql", Reply(200, limited, {"retry-after": "9"}))
    with pytest.raises(ForgeError, match="rate limit") as refused:
        await forge.look(number)
    assert not refused.value.lasting
    assert refused.value.retry_at is not None


async def test_looking_again_at_what_did_not_change_costs_nothing(
    bare: Path, forge: GitHub, server: ScriptedGitHub
) -> None:
    commit(bare, "b.txt", "feature/x")
    number = await opened(forge)
    await forge.look(number)
    before, unchanged = await forge.look(number), server.wire.unchanged
    assert await forge.look(number) == before
    assert server.wire.unchanged - unchanged == 6, "all but the question by GraphQL, which knows no marks"


async def test_a_wrong_login_is_told(server: ScriptedGitHub) -> None:
    landing = Landing(repo=server.repo, forge_url=server.url)
    forge = await open_github(landing, "", {"GITHUB_TOKEN": "wrong", "PATH": ""}, wiring.system_clock())
    with pytest.raises(ForgeError, match="does not accept the login"):
        await forge.find("x")


@pytest.mark.parametrize(
    ("landing", "remote", "said"),
    [
        (Landing(), "/srv/git/x.git", "--repo OWNER/NAME"),
        (Landing(repo="acme/widget"), "/srv/git/x.git", "--forge-url"),
        (Landing(repo="not a repo"), "git@github.com:a/b.git", "--repo OWNER/NAME"),
        (Landing(), "", "there is no remote 'origin'"),
        (Landing(), "git@gitlab.com:a/b.git", "gitlab.com is no GitHub"),
        (Landing(repo="a/b", forge_url="http://ghe.example.com"), "", "in the clear"),
    ],
)
async def test_what_cannot_be_known_is_asked_for(landing: Landing, remote: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        await open_github(landing, remote, ENV, wiring.system_clock())


async def test_a_fork_opens_its_pull_requests_in_the_repository_that_was_named() -> None:
    landing = Landing(repo="acme/widget")
    forge = await open_github(landing, "git@github.com:me/widget.git", ENV, wiring.system_clock())
    assert (forge._repo, forge._source, forge._head("b")) == ("acme/widget", "me/widget", "me:b")
