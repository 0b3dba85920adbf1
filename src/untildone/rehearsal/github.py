"""A GitHub on loopback: pull requests over a real bare repository, with the checks, reviews and troubles of a script.

python -m untildone.rehearsal.github BARE_REPOSITORY [--repo OWNER/NAME] [--port N]: CI is always green there.

What it answers has the names and the meanings of GitHub's REST API as documented, as far as a landing needs it.
Whoever rehearses tells it what CI says about a commit, writes comments and reviews, and lets requests fail.
"""

import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from untildone.core.dataclass import dataclass
from untildone.errors import WorkspaceError
from untildone.rehearsal.github_branches import Branches, MergeConflict
from untildone.rehearsal.github_checks import CheckDesk, Ci, ScriptedCheck
from untildone.rehearsal.github_wire import Reply, Route, Server, page

TOKEN = "the-login-of-a-rehearsal"  # noqa: S105 - nobody else's


@dataclass(slots=True, kw_only=True)
class ScriptedPull:
    """A pull request."""

    number: int
    branch: str
    base: str
    title: str
    body: str
    head: str
    state: str = "open"
    merged_at: str | None = None
    merged: str | None = None
    requested: list[str] = field(default_factory=list)
    times_requested: int = 0
    reviews: list[dict[str, Any]] = field(default_factory=list)
    on_lines: list[dict[str, Any]] = field(default_factory=list)
    on_all: list[dict[str, Any]] = field(default_factory=list)
    worked_out: tuple[str, str] | None = None
    """Head and base whose merge was tried: before that nobody knows whether it can be."""
    update_due: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked."""

    method: str
    path: str
    status: int
    login: str
    """The Authorization header."""


@dataclass(slots=True)
class Trouble:
    """Requests that fail on purpose."""

    method: str
    path: re.Pattern[str]
    reply: Reply
    times: int


class ScriptedGitHub:
    """The server, in a thread of its own. Use it as a context manager, or call `start` and `close`."""

    def __init__(
        self, bare: Path, ci: Ci = lambda _, __: (), *, repo: str = "acme/widget", token: str = TOKEN, port: int = 0
    ) -> None:
        self.branches = Branches(bare)
        self.repo = repo
        self.token = token
        self.pulls: dict[int, ScriptedPull] = {}
        self.requests: list[Request] = []
        self.merges: list[int] = []
        """The numbers of pull requests in the order they were merged by a request."""
        self.review_required = False
        """The base's rules want an approval."""
        self.after: Callable[[str, str], None] = lambda _, __: None
        """Told each request after it was answered, by method and path: what a human does at that moment."""
        self._troubles: list[Trouble] = []
        self._ids = 0
        self._lock = threading.RLock()
        self.wire = Server(self.answer, port)
        self.url = self.wire.url
        self.checks = CheckDesk(ci, repo, self.wire.elsewhere)
        self._routes = self._reads() + self._writes()

    def start(self) -> Self:
        """Begin to answer."""
        self.wire.start()
        return self

    def close(self) -> None:
        """Stop answering."""
        self.wire.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what a human or the world does ---------------------------------------------------------------------

    def fail(
        self, method: str, path: str, status: int, message: str, *, headers: Mapping[str, str] | None = None,
        times: int = 1,
    ) -> None:  # fmt: skip
        """Refuse the next requests whose path matches this pattern."""
        body = {"message": message, "documentation_url": "https://docs.github.com/rest"}
        self.reply(method, path, Reply(status, body, headers or {}), times=times)

    def reply(self, method: str, path: str, reply: Reply, *, times: int = 1) -> None:
        """Answer the next requests whose path matches this pattern with something else."""
        with self._lock:
            self._troubles.append(Trouble(method, re.compile(path), reply, times))

    def request_review(self, number: int, login: str) -> None:
        """Ask somebody for a review."""
        with self._lock:
            self.pulls[number].requested.append(login)
            self.pulls[number].times_requested += 1

    def review(
        self, number: int, state: str, body: str = "", *, author: str = "rita", association: str = "MEMBER"
    ) -> None:
        """Submit a review: APPROVED, CHANGES_REQUESTED or COMMENTED."""
        with self._lock:
            pull = self.pulls[number]
            pull.requested = [login for login in pull.requested if login != author]
            said = {"id": self._id(), "user": _user(author), "state": state, "body": body}
            said["author_association"] = association
            pull.reviews.append({**said, "submitted_at": self._moment(), "commit_id": pull.head})

    def comment(
        self, number: int, body: str, *, author: str = "rita", association: str = "MEMBER", path: str = "",
        line: int = 0,
    ) -> None:  # fmt: skip
        """Write a comment; with a path, on a line of the diff."""
        with self._lock:
            said = {"id": self._id(), "user": _user(author), "body": body, "created_at": self._moment()}
            said["author_association"] = association
            if path:
                self.pulls[number].on_lines.append({**said, "path": path, "line": line, "pull_request_review_id": None})
            else:
                self.pulls[number].on_all.append(said)

    def close_pull(self, number: int) -> None:
        """Close without merging."""
        with self._lock:
            self.pulls[number].state = "closed"

    def merge_by_hand(self, number: int) -> None:
        """Somebody presses the button."""
        with self._lock:
            self._do_merge(self.pulls[number], "merge", "by hand\n")

    # --- what requests do -------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: Mapping[str, str], login: str, body: Any) -> Reply:
        """The answer to one request."""
        with self._lock:
            try:
                reply = self._answer(method, path, query, login, body)
            except WorkspaceError as broken:
                reply = _refusal(500, str(broken))
            self.requests.append(Request(method, path, reply.status, login))
        self.after(method, path)
        return reply

    def asked(self, method: str, path: str) -> list[Request]:
        """The requests whose path matches this pattern."""
        with self._lock:
            return [one for one in self.requests if one.method == method and re.search(path, one.path)]

    def _answer(self, method: str, path: str, query: Mapping[str, str], login: str, body: Any) -> Reply:
        if login != f"Bearer {self.token}":
            return _refusal(401, "Bad credentials")
        for trouble in self._troubles:
            if trouble.method == method and trouble.times and trouble.path.search(path):
                trouble.times -= 1
                return trouble.reply
        if (method, path) == ("POST", "/graphql"):
            return self._asked_about_reviews(body)
        prefix = f"/repos/{self.repo}"
        for known, pattern, handler in self._routes:
            match = re.fullmatch(prefix + pattern, path)
            if match and known == method:
                return handler([unquote(part) for part in match.groups()], query, body)
        return _refusal(404, "Not Found")

    def _reads(self) -> tuple[Route, ...]:
        return (
            ("GET", r"/pulls", self._list),
            ("GET", r"/pulls/(\d+)", self._get),
            ("GET", r"/pulls/(\d+)/reviews", self._reviews),
            ("GET", r"/pulls/(\d+)/comments", self._line_comments),
            ("GET", r"/issues/(\d+)/comments", self._notes),
            ("GET", r"/compare/(.+)\.\.\.(.+)", self._compare),
            *self.checks.routes(),
        )

    def _writes(self) -> tuple[Route, ...]:
        return (
            ("POST", r"/pulls", self._open),
            ("PATCH", r"/pulls/(\d+)", self._patch),
            ("PUT", r"/pulls/(\d+)/update-branch", self._update),
            ("PUT", r"/pulls/(\d+)/merge", self._merge),
            ("DELETE", r"/git/refs/heads/(.+)", self._delete),
        )

    def _asked_about_reviews(self, body: Any) -> Reply:
        pull = self.pulls[body["variables"]["number"]]
        last = {review["user"]["login"]: review["state"] for review in pull.reviews if review["state"] != "COMMENTED"}
        decision = None
        if self.review_required:
            states = set(last.values())
            decision = "CHANGES_REQUESTED" if "CHANGES_REQUESTED" in states else (
                "APPROVED" if "APPROVED" in states else "REVIEW_REQUIRED"
            )  # fmt: skip
        asked = {"requests": {"totalCount": pull.times_requested}, "removals": {"totalCount": 0}}
        return Reply(200, {"data": {"repository": {"pullRequest": {"reviewDecision": decision, **asked}}}})

    def _list(self, _: list[str], query: Mapping[str, str], __: Any) -> Reply:
        owner, _colon, branch = query.get("head", "").partition(":")
        bases = {query["base"]} if "base" in query else {pull.base for pull in self.pulls.values()}
        found = [pull for pull in reversed(self.pulls.values()) if pull.branch == branch and pull.base in bases]
        is_wanted = owner == self.repo.partition("/")[0] and query.get("state") == "all"
        return Reply(200, [self._shown(pull) for pull in found] if is_wanted else [])

    def _open(self, _: list[str], __: Mapping[str, str], body: Any) -> Reply:
        branch, base = body["head"].partition(":")[2], body["base"]
        head, tip = self.branches.tip(branch), self.branches.tip(base)
        if head is None or tip is None:
            return _refusal(422, "Validation Failed", errors=[{"code": "invalid", "field": "base" if head else "head"}])
        if any((pull.branch, pull.base, pull.state) == (branch, base, "open") for pull in self.pulls.values()):
            exists = f"A pull request already exists for {body['head']}."
            return _refusal(422, "Validation Failed", errors=[{"code": "custom", "message": exists}])
        if not self.branches.count(tip, head):
            nothing = f"No commits between {base} and {branch}"
            return _refusal(422, "Validation Failed", errors=[{"code": "custom", "message": nothing}])
        number = len(self.pulls) + 1
        pull = ScriptedPull(number=number, branch=branch, base=base, title=body["title"], body=body["body"], head=head)
        self.pulls[number] = pull
        return Reply(201, self._shown(pull))

    def _get(self, parts: list[str], _: Mapping[str, str], __: Any) -> Reply:
        pull = self.pulls.get(int(parts[0]))
        if pull is None:
            return _refusal(404, "Not Found")
        reply = Reply(200, self._shown(pull))
        if pull.update_due:  # it is done a moment after it was accepted
            pull.update_due = False
            self.branches.update(pull.branch, pull.base)
        return reply

    def _patch(self, parts: list[str], _: Mapping[str, str], body: Any) -> Reply:
        pull = self.pulls[int(parts[0])]
        pull.state, pull.body = body.get("state", pull.state), body.get("body", pull.body)
        return Reply(200, self._shown(pull))

    def _update(self, parts: list[str], _: Mapping[str, str], body: Any) -> Reply:
        pull = self.pulls[int(parts[0])]
        head, tip = self._follow(pull), self.branches.tip(pull.base) or ""
        if body.get("expected_head_sha", head) != head:
            return _refusal(422, f"expected_head_sha {head} does not match")
        if not self.branches.count(head, tip):
            return _refusal(422, "There are no new commits on the base branch.")
        if not self.branches.merges_cleanly(head, tip):
            return _refusal(422, "merge conflict between base and head")
        pull.update_due = True
        return Reply(202, {"message": "Updating pull request branch.", "url": self._place(pull)})

    def _merge(self, parts: list[str], _: Mapping[str, str], body: Any) -> Reply:
        pull = self.pulls[int(parts[0])]
        head = self._follow(pull)
        if pull.state != "open":
            return _refusal(405, "Pull Request is not mergeable")
        if body.get("sha", head) != head:
            return _refusal(409, "Head branch was modified. Review and try the merge again.")
        message = f"{body.get('commit_title', pull.title)}\n\n{body.get('commit_message', '')}".strip() + "\n"
        try:
            self._do_merge(pull, body.get("merge_method", "merge"), message)
        except MergeConflict:
            return _refusal(405, "Pull Request is not mergeable")
        return Reply(200, {"sha": pull.merged, "merged": True, "message": "Pull Request successfully merged"})

    def _do_merge(self, pull: ScriptedPull, how: str, message: str) -> None:
        self._follow(pull)
        pull.merged = self.branches.merge(pull.base, pull.branch, how=how, message=message)
        pull.state, pull.merged_at = "closed", self._moment()
        self.merges.append(pull.number)

    def _reviews(self, parts: list[str], query: Mapping[str, str], _: Any) -> Reply:
        return page(self.pulls[int(parts[0])].reviews, query)

    def _line_comments(self, parts: list[str], query: Mapping[str, str], _: Any) -> Reply:
        return page(self.pulls[int(parts[0])].on_lines, query)

    def _notes(self, parts: list[str], query: Mapping[str, str], _: Any) -> Reply:
        return page(self.pulls[int(parts[0])].on_all, query)

    def _compare(self, parts: list[str], _: Mapping[str, str], __: Any) -> Reply:
        base, head = self.branches.tip(parts[0]), self.branches.tip(parts[1].partition(":")[2])
        if base is None or head is None:
            return _refusal(404, "Not Found")
        return Reply(200, {"ahead_by": self.branches.count(base, head), "behind_by": self.branches.count(head, base)})

    def _delete(self, parts: list[str], _: Mapping[str, str], __: Any) -> Reply:
        return Reply(204) if self.branches.delete(parts[0]) else _refusal(422, "Reference does not exist")

    def _follow(self, pull: ScriptedPull) -> str:
        """An open pull request is where its branch is; without the branch it is closed."""
        if pull.state == "open":
            head = self.branches.tip(pull.branch)
            pull.head, pull.state = head or pull.head, "open" if head else "closed"
        return pull.head

    def _shown(self, pull: ScriptedPull) -> dict[str, Any]:
        head, tip = self._follow(pull), self.branches.tip(pull.base) or ""
        mergeable = None
        if pull.worked_out == (head, tip) and pull.state == "open":
            mergeable = self.branches.merges_cleanly(tip, head)
        pull.worked_out = (head, tip)
        return {
            "number": pull.number,
            "html_url": self._place(pull),
            "state": pull.state,
            "title": pull.title,
            "body": pull.body,
            "merged_at": pull.merged_at,
            "merge_commit_sha": pull.merged,
            "mergeable": mergeable,
            "mergeable_state": "unknown" if mergeable is None else "clean" if mergeable else "dirty",
            "head": {"ref": pull.branch, "sha": head, "repo": {"full_name": self.repo}},
            "base": {"ref": pull.base, "sha": tip, "repo": {"full_name": self.repo}},
            "requested_reviewers": [_user(login) for login in pull.requested],
            "requested_teams": [],
        }

    def _place(self, pull: ScriptedPull) -> str:
        return f"https://github.test/{self.repo}/pull/{pull.number}"

    def _id(self) -> int:
        self._ids += 1
        return self._ids

    def _moment(self) -> str:
        """Each thing has a second of its own, so that their order is never in doubt."""
        seconds = self._id()
        return f"2030-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def _user(login: str) -> dict[str, str]:
    return {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}


def _refusal(status: int, message: str, **more: Any) -> Reply:
    return Reply(status, {"message": message, **more, "documentation_url": "https://docs.github.com/rest"})


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted; the address is printed first, so that a parent can wait for it."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m untildone.rehearsal.github")
    parser.add_argument("bare", type=Path)
    parser.add_argument("--repo", default="acme/widget")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(argv)
    green = (ScriptedCheck(name="test"),)
    with ScriptedGitHub(given.bare, lambda _, __: green, repo=given.repo, port=given.port) as github:
        sys.stdout.write(f"{github.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
