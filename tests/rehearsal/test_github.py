"""The scripted GitHub behaves as the documented one does, where a landing depends on it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib import error, request

import pytest

from engine.pull_kit import git_in
from untildone.rehearsal.github import TOKEN, ScriptedGitHub
from untildone.rehearsal.github_checks import ScriptedCheck

REPO = "/repos/acme/widget"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    bare, clone = tmp_path / "origin.git", tmp_path / "clone"
    git_in(tmp_path, "init", "-q", "--bare", "-b", "main", str(bare))
    git_in(tmp_path, "clone", "-q", str(bare), str(clone))
    git_in(clone, "config", "user.name", "A")
    git_in(clone, "config", "user.email", "a@b")
    commit(clone, "main", "a.txt", "a\n")
    return clone


@pytest.fixture
def github(clone: Path, tmp_path: Path) -> Iterator[ScriptedGitHub]:
    with ScriptedGitHub(tmp_path / "origin.git", lambda _, __: [ScriptedCheck(name="test")]) as server:
        yield server


def commit(clone: Path, branch: str, name: str, text: str) -> str:
    git_in(clone, "checkout", "-q", "-B", branch)
    (clone / name).write_text(text)
    git_in(clone, "add", ".")
    git_in(clone, "commit", "-qm", f"write {name}")
    git_in(clone, "push", "-q", "origin", branch)
    return git_in(clone, "rev-parse", "HEAD")


def ask(github: ScriptedGitHub, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    known = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
    asked = request.Request(github.url + path, data=data, method=method, headers=known)
    try:
        with request.urlopen(asked, timeout=240) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read() or b"null")


def open_pull(github: ScriptedGitHub, branch: str = "feature") -> tuple[int, Any]:
    return ask(github, "POST", f"{REPO}/pulls", {"title": "T", "body": "B", "head": f"acme:{branch}", "base": "main"})


def test_strangers_and_unknown_places_are_refused(github: ScriptedGitHub) -> None:
    assert ask(github, "GET", f"{REPO}/pulls", Authorization="Bearer x")[0] == 401
    assert ask(github, "GET", "/repos/other/repo/pulls")[0] == 404
    assert ask(github, "GET", f"{REPO}/pulls/9")[0] == 404


def test_a_branch_has_one_open_pull_request(github: ScriptedGitHub, clone: Path) -> None:
    head = commit(clone, "feature", "b.txt", "b\n")
    status, pull = open_pull(github)
    assert (status, pull["head"]["sha"], pull["mergeable"]) == (201, head, None)
    status, refused = open_pull(github)
    assert status == 422
    assert "already exists" in refused["errors"][0]["message"]
    assert ask(github, "GET", f"{REPO}/pulls?head=acme:feature&state=all")[1][0]["number"] == 1
    assert ask(github, "GET", f"{REPO}/pulls?head=else:feature&state=all")[1] == []


def test_whether_it_can_be_merged_is_worked_out_between_two_looks(github: ScriptedGitHub, clone: Path) -> None:
    commit(clone, "feature", "a.txt", "ours\n")
    open_pull(github)
    assert ask(github, "GET", f"{REPO}/pulls/1")[1]["mergeable"] is True
    git_in(clone, "checkout", "-q", "main")
    commit(clone, "main", "a.txt", "theirs\n")
    assert ask(github, "GET", f"{REPO}/pulls/1")[1]["mergeable"] is None
    shown = ask(github, "GET", f"{REPO}/pulls/1")[1]
    assert (shown["mergeable"], shown["mergeable_state"]) == (False, "dirty")
    assert ask(github, "PUT", f"{REPO}/pulls/1/update-branch", {})[0] == 422
    assert ask(github, "PUT", f"{REPO}/pulls/1/merge", {"merge_method": "squash"})[0] == 405
    assert github.merges == []


def test_an_update_is_accepted_first_and_done_a_moment_later(github: ScriptedGitHub, clone: Path) -> None:
    head = commit(clone, "feature", "b.txt", "b\n")
    open_pull(github)
    assert ask(github, "PUT", f"{REPO}/pulls/1/update-branch", {})[0] == 422, "there is nothing new"
    git_in(clone, "checkout", "-q", "main")
    commit(clone, "main", "c.txt", "c\n")
    assert ask(github, "GET", f"{REPO}/compare/main...acme:feature")[1] == {"ahead_by": 1, "behind_by": 1}
    assert ask(github, "PUT", f"{REPO}/pulls/1/update-branch", {"expected_head_sha": "0"})[0] == 422
    assert ask(github, "PUT", f"{REPO}/pulls/1/update-branch", {"expected_head_sha": head})[0] == 202
    assert ask(github, "GET", f"{REPO}/pulls/1")[1]["head"]["sha"] == head
    assert ask(github, "GET", f"{REPO}/pulls/1")[1]["head"]["sha"] != head
    assert ask(github, "GET", f"{REPO}/compare/main...acme:feature")[1]["behind_by"] == 0


def test_a_merge_wants_the_head_that_was_seen_and_happens_once(github: ScriptedGitHub, clone: Path) -> None:
    head = commit(clone, "feature", "b.txt", "b\n")
    open_pull(github)
    assert ask(github, "PUT", f"{REPO}/pulls/1/merge", {"sha": "0"})[0] == 409
    status, done = ask(github, "PUT", f"{REPO}/pulls/1/merge", {"sha": head, "merge_method": "squash"})
    assert (status, done["merged"], done["sha"]) == (200, True, github.branches.tip("main"))
    assert ask(github, "PUT", f"{REPO}/pulls/1/merge", {"sha": head})[0] == 405
    assert github.merges == [1]
    assert ask(github, "DELETE", f"{REPO}/git/refs/heads/feature")[0] == 204
    assert ask(github, "DELETE", f"{REPO}/git/refs/heads/feature")[0] == 422
    shown = ask(github, "GET", f"{REPO}/pulls/1")[1]
    assert (shown["state"], shown["head"]["sha"]) == ("closed", head)


def test_an_open_pull_request_without_its_branch_is_closed(github: ScriptedGitHub, clone: Path) -> None:
    commit(clone, "feature", "b.txt", "b\n")
    open_pull(github)
    git_in(clone, "push", "-q", "origin", ":feature")
    assert ask(github, "GET", f"{REPO}/pulls/1")[1]["state"] == "closed"


def test_trouble_comes_as_often_as_it_was_ordered(github: ScriptedGitHub) -> None:
    github.fail("GET", "/pulls$", 429, "slow down", headers={"retry-after": "1"}, times=2)
    assert [ask(github, "GET", f"{REPO}/pulls")[0] for _ in range(3)] == [429, 429, 200]
    assert [one.status for one in github.asked("GET", "/pulls$")] == [429, 429, 200]
