"""GitHub, its own and Enterprise, by its REST API; GraphQL only for what REST does not tell."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from untildone.core.policy import Landing
from untildone.core.pull import PullCheck, PullComment, PullView
from untildone.errors import ConfigError, ForgeError
from untildone.forge import reading
from untildone.forge import shapes as gh
from untildone.forge.address import NO_GITHUB, api_of, checked_api, host_of, is_repo, parse_remote
from untildone.forge.http import GRAPHQL, Answer, Http, Talk
from untildone.forge.login import find_token
from untildone.forge.refusals import OK, refusal, says, unmerged
from untildone.ports import Clock

T = TypeVar("T")

ACCEPT = "application/vnd.github+json"
_PAGE = 100
_RUNS = 50
"""Check runs bring up to 128 KB of text each."""
_PAGES = 10
_LISTED = 30
_UPDATE_LOOKS = 20
_ANNOTATIONS = 20

_ASKED = """query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) { pullRequest(number: $number) {
    reviewDecision
    requests: timelineItems(itemTypes: [REVIEW_REQUESTED_EVENT]) { totalCount }
    removals: timelineItems(itemTypes: [REVIEW_REQUEST_REMOVED_EVENT]) { totalCount }
  } }
}"""


async def open_github(landing: Landing, remote_url: str, env: Mapping[str, str], clock: Clock) -> "GitHub":
    """The GitHub a remote points to, or the one the user named, with the user's login."""
    remote = parse_remote(remote_url)
    if not remote_url.strip() and not (landing.repo and landing.forge_url):
        raise ConfigError(
            f"there is no remote {landing.remote!r} to push to: add one (`git remote add {landing.remote} ADDRESS`), "
            "name another with --remote, or land here with --land merge"
        )
    if landing.forge_url is None and remote is not None and remote.host in NO_GITHUB:
        raise ConfigError(
            f"{remote.host} is no GitHub, and pull requests are opened on GitHub or a GitHub Enterprise server only: "
            "land here with --land merge, or leave the work on its branch with --land commit"
        )
    repo = landing.repo or (remote.repo if remote else "")
    if not is_repo(repo):
        raise ConfigError(
            f"cannot tell from the remote {landing.remote!r} which repository pull requests go to: "
            "name it with --repo OWNER/NAME"
        )
    if landing.forge_url is None and remote is None:
        raise ConfigError(f"the remote {landing.remote!r} points to no forge: name its API with --forge-url")
    api = checked_api(landing.forge_url or (api_of(remote) if remote else ""))
    token = await find_token(host_of(api), env, chosen=landing.forge_url is not None)
    return GitHub(Http(api, token, clock, ACCEPT), repo=repo, source=remote.repo if remote else repo)


class GitHub:
    """ports.delivery.Forge."""

    name = "GitHub"

    def __init__(self, http: Http, *, repo: str, source: str) -> None:
        self._http = http
        self._repo = repo
        self._source = source
        """Where branches are pushed to: the repository itself, or a fork of it."""

    async def find(self, branch: str, base: str | None = None) -> PullView | None:
        """The open pull request of a branch, else its newest; `base`: only those for it."""
        async with self._http.talk() as talk:
            newest_first = {"state": "all", "sort": "created", "direction": "desc"}
            query = {"head": self._head(branch), "per_page": str(_LISTED), **newest_first}
            if base is not None:
                query["base"] = base
            answer = await self._ask(talk, "GET", f"{self._here}/pulls", "list pull requests", query=query)
            pulls = gh.read(answer.body, list[gh.Pull], self._http.host)
            ours = [pull for pull in pulls if self._is_ours(pull, branch) and base in {None, pull.base.ref}]
            found = next((pull for pull in ours if pull.state == "open"), ours[0] if ours else None)
            return None if found is None else await self._look(talk, found.number)

    async def open(self, *, branch: str, base: str, title: str, body: str) -> PullView:
        """Open a pull request, or find the one that is there."""
        wanted = {"title": title, "body": body, "base": base, "head": self._head(branch)}
        async with self._http.talk() as talk:
            answer = await talk.ask("POST", f"{self._here}/pulls", body=wanted)
            if answer.status in OK:
                return await self._look(talk, gh.read(answer.body, gh.Pull, self._http.host).number)
        if says(answer, "already exists") and (there := await self.find(branch, base)) is not None:
            return there
        raise self._refusal(answer, f"open a pull request of {branch} for {base}")

    async def look(self, number: int) -> PullView:
        """The pull request as it is now."""
        async with self._http.talk() as talk:
            return await self._look(talk, number)

    async def log_of(self, number: int, check: str) -> str:
        """The end of a check's log, else what the check says about itself."""
        kind, _, key = check.partition(":")
        async with self._http.talk() as talk:
            if kind == "run" and key.isdecimal():
                return await self._log_of_run(talk, key)
            head = (await self._pull(talk, number)).head.sha
            return next((s.description or "" for s in await self._statuses(talk, head) if s.context == key), "")

    async def update_branch(self, number: int) -> str | None:
        """Merge the base into the branch on GitHub, which does it a moment later."""
        async with self._http.talk() as talk:
            head = (await self._pull(talk, number)).head.sha
            asked = {"expected_head_sha": head}
            answer = await talk.ask("PUT", f"{self._here}/pulls/{number}/update-branch", body=asked)
            if answer.status not in OK:
                if says(answer, "no new commits", "up to date", "up-to-date", "merge conflict", "expected_head_sha"):
                    return None  # nothing to do, or the next look shows what there is to do
                raise self._refusal(answer, f"update the branch of #{number}")
            for _ in range(_UPDATE_LOOKS):
                now = (await self._pull(talk, number)).head.sha
                if now != head:
                    return now
                await self._http.clock.sleep(1.0)
            return None

    async def merge(self, number: int, *, head: str, strategy: str, title: str, body: str) -> PullView:
        """Merge it if its head is still this commit. If it was merged meanwhile, that is just as well."""
        wanted = {"sha": head, "merge_method": strategy}
        if strategy != "rebase":
            wanted |= {"commit_title": f"{title} (#{number})", "commit_message": body}
        async with self._http.talk() as talk:
            answer = await talk.ask("PUT", f"{self._here}/pulls/{number}/merge", body=wanted)
            view = await self._look(talk, number)
        if view.state == "merged" or answer.status in OK:
            return view
        if answer.status in {405, 409}:
            raise unmerged(answer, strategy=strategy, number=number)
        raise self._refusal(answer, f"merge #{number}")

    async def delete_branch(self, branch: str) -> None:
        """Delete a branch there; one that is gone already is fine."""
        async with self._http.talk() as talk:
            path = f"/repos/{self._source}/git/refs/heads/{quote(branch, safe='/')}"
            answer = await talk.ask("DELETE", path)
        if answer.status not in OK and answer.status != 404 and not says(answer, "does not exist"):  # noqa: PLR2004
            raise self._refusal(answer, f"delete the branch {branch}")

    async def reword(self, number: int, reword: Callable[[str], str]) -> None:
        """Change what a pull request says, if that makes a difference."""
        async with self._http.talk() as talk:
            body = (await self._pull(talk, number)).body or ""
            if (wanted := reword(body)) != body:
                path = f"{self._here}/pulls/{number}"
                await self._ask(talk, "PATCH", path, f"describe #{number}", body={"body": wanted})

    async def close(self, number: int) -> None:
        """Close it without merging."""
        async with self._http.talk() as talk:
            await self._ask(talk, "PATCH", f"{self._here}/pulls/{number}", f"close #{number}", body={"state": "closed"})

    @property
    def _here(self) -> str:
        return f"/repos/{self._repo}"

    def _head(self, branch: str) -> str:
        return f"{self._source.partition('/')[0]}:{branch}"

    def _is_ours(self, pull: gh.Pull, branch: str) -> bool:
        source = pull.head.repo.full_name if pull.head.repo else self._source  # null: that repository is gone
        return pull.head.ref == branch and source.lower() == self._source.lower()

    async def _look(self, talk: Talk, number: int) -> PullView:
        pull = await self._pull(talk, number)
        if pull.state != "open":
            return reading.view_of(pull)
        runs = await self._runs(talk, pull.head.sha)
        checks = reading.checks_of(runs, await self._statuses(talk, pull.head.sha))
        reviews = await self._list(talk, f"{self._here}/pulls/{number}/reviews", gh.Review, "read the reviews")
        return reading.view_of(
            pull,
            checks=checks,
            review=reading.review_of(pull, reviews, await self._asked(talk, number)),
            comments=await self._comments(talk, number, reviews),
            behind=await self._is_behind(talk, pull, checks),
        )

    async def _comments(self, talk: Talk, number: int, reviews: list[gh.Review]) -> list[PullComment]:
        on_lines = await self._list(talk, f"{self._here}/pulls/{number}/comments", gh.Comment, "read the comments")
        on_all = await self._list(talk, f"{self._here}/issues/{number}/comments", gh.Comment, "read the comments")
        return reading.comments_of(reviews, on_lines, on_all)

    async def _pull(self, talk: Talk, number: int) -> gh.Pull:
        answer = await self._ask(talk, "GET", f"{self._here}/pulls/{number}", f"look at #{number}")
        return gh.read(answer.body, gh.Pull, self._http.host)

    async def _runs(self, talk: Talk, commit: str) -> list[gh.CheckRun]:
        found: list[gh.CheckRun] = []
        for page in range(1, _PAGES + 1):
            query = {"per_page": _RUNS, "page": page, "filter": "latest"}
            path = f"{self._here}/commits/{commit}/check-runs"
            answer = await self._ask(talk, "GET", path, "read the checks", query=query)
            told = gh.read(answer.body, gh.CheckRuns, self._http.host)
            found += told.check_runs
            if len(told.check_runs) < _RUNS:
                return self._all(found, told.total_count, "check runs")
        raise self._too_many("check runs")

    async def _statuses(self, talk: Talk, commit: str) -> list[gh.Status]:
        found: list[gh.Status] = []
        path = f"{self._here}/commits/{commit}/status"
        for page in range(1, _PAGES + 1):
            query = {"per_page": _PAGE, "page": page}
            answer = await self._ask(talk, "GET", path, "read the statuses", query=query)
            told = gh.read(answer.body, gh.Statuses, self._http.host)
            found += told.statuses
            if len(told.statuses) < _PAGE:
                return self._all(found, told.total_count, "statuses")
        raise self._too_many("statuses")

    def _all(self, found: list[T], total: int, what: str) -> list[T]:
        """What was not shown may be the one that is red."""
        if len(found) >= total:
            return found
        raise ForgeError(f"{self._http.host} shows {len(found)} of {total} {what}", lasting=False)

    def _too_many(self, what: str) -> ForgeError:
        return ForgeError(f"{self._http.host} shows more {what} than can be read: look at them, and merge by hand")

    async def _asked(self, talk: Talk, number: int) -> gh.Asked:
        """Without an answer the reviews themselves have to do: a merge that needs more is refused by GitHub."""
        owner, _, name = self._repo.partition("/")
        variables = {"owner": owner, "name": name, "number": number}
        answer = await talk.ask("POST", GRAPHQL, body={"query": _ASKED, "variables": variables})
        if answer.status not in OK:
            trouble = self._refusal(answer, "ask about reviews")
            if not trouble.lasting:
                raise trouble
            return gh.Asked()
        told = gh.read(answer.body, gh.GraphQL, self._http.host)
        if any(error.type == "RATE_LIMITED" for error in told.errors):
            limited = Answer(429, answer.headers, {"message": told.errors[0].message})
            raise self._refusal(limited, "ask about reviews")
        pull = told.data.repository.pull if told.data and told.data.repository else None
        return pull or gh.Asked()

    async def _is_behind(self, talk: Talk, pull: gh.Pull, checks: Iterable[PullCheck]) -> bool:
        """Asked only when it matters: before a merge."""
        if pull.mergeable is not True or any(check.state != "passed" for check in checks):
            return False
        owner = self._source.partition("/")[0]
        sides = f"{quote(pull.base.ref, safe='')}...{quote(f'{owner}:{pull.head.ref}', safe=':')}"
        # Only the first page lists what changed, which may be long and is not wanted here.
        second = {"per_page": 1, "page": 2}
        answer = await self._ask(talk, "GET", f"{self._here}/compare/{sides}", "compare with the base", query=second)
        return gh.read(answer.body, gh.Comparison, self._http.host).behind_by > 0

    async def _log_of_run(self, talk: Talk, key: str) -> str:
        """A job of Actions has the same number as its check run; checks of others have only what they say."""
        answer = await self._ask(talk, "GET", f"{self._here}/check-runs/{key}", "read a check")
        run = gh.read(answer.body, gh.CheckRun, self._http.host)
        if (
            run.app
            and run.app.slug == "github-actions"
            and (log := await talk.tail(f"{self._here}/actions/jobs/{key}/logs"))
        ):
            return log
        said = [run.output.title, run.output.summary, run.output.text] if run.output else []
        path = f"{self._here}/check-runs/{key}/annotations"
        notes = await self._list(talk, path, gh.Annotation, "read a check's notes")
        lines = [f"{note.path}:{note.start_line}: {note.message or ''}" for note in notes[:_ANNOTATIONS]]
        return "\n".join([*(part for part in said if part), *lines])

    async def _list(self, talk: Talk, path: str, kind: type[T], doing: str) -> list[T]:
        found: list[T] = []
        for page in range(1, _PAGES + 1):
            answer = await self._ask(talk, "GET", path, doing, query={"per_page": _PAGE, "page": page})
            some = gh.read(answer.body, list[kind], self._http.host)  # type: ignore[valid-type] # a type at run time
            found += some
            if len(some) < _PAGE:
                return found
        raise self._too_many("entries where to " + doing)

    async def _ask(
        self, talk: Talk, method: str, path: str, doing: str, *,
        query: Mapping[str, Any] | None = None, body: object = None,
    ) -> Answer:  # fmt: skip
        answer = await talk.ask(method, path, query=query, body=body)
        if answer.status in OK:
            return answer
        raise self._refusal(answer, doing)

    def _refusal(self, answer: Answer, doing: str) -> ForgeError:
        return refusal(answer, doing=doing, repo=self._repo, host=self._http.host, now=self._http.clock.now())
