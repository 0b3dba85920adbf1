"""CI of the scripted GitHub: check runs, commit statuses and logs, as a script says."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from untildone.core.dataclass import dataclass
from untildone.rehearsal.github_wire import Reply, Route, page

State = Literal["queued", "in_progress", "success", "failure", "cancelled", "neutral", "action_required"]

_RUNNING = frozenset({"queued", "in_progress"})
_FIRST_KEY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCheck:
    """One check as CI reports it."""

    name: str
    state: State = "success"
    log: str = ""
    """What its job printed. Without one the forge has no log."""
    status: bool = False
    """The older form: a commit status."""
    summary: str = ""
    """What a check of somebody else's says about itself."""


Ci = Callable[[str, int], Sequence[ScriptedCheck]]
"""What CI says about a commit, and at which look at it: 1 for the first."""


class CheckDesk:
    """Answers everything about checks."""

    def __init__(self, ci: Ci, repo: str, elsewhere: Callable[[str], Reply]) -> None:
        self.ci = ci
        self._repo = repo
        self._elsewhere = elsewhere
        self._looks: Counter[str] = Counter()
        self._keys: dict[tuple[str, str], int] = {}

    def routes(self) -> tuple[Route, ...]:
        """What is answered here."""
        return (
            ("GET", r"/commits/(\w+)/check-runs", self._check_runs),
            ("GET", r"/commits/(\w+)/status", self._statuses),
            ("GET", r"/check-runs/(\d+)", self._check_run),
            ("GET", r"/check-runs/(\d+)/annotations", lambda _, query, __: page([], query)),
            ("GET", r"/actions/jobs/(\d+)/logs", self._log),
        )

    def _check_runs(self, parts: list[str], query: Mapping[str, str], _: Any) -> Reply:
        commit = parts[0]
        if query.get("page", "1") == "1":
            self._looks[commit] += 1
        runs = [self._run(commit, check) for check in self.ci(commit, self._looks[commit]) if not check.status]
        return Reply(200, {"total_count": len(runs), "check_runs": page(runs, query).body})

    def _run(self, commit: str, check: ScriptedCheck) -> dict[str, Any]:
        key = self._keys.setdefault((commit, check.name), _FIRST_KEY + len(self._keys))
        is_running = check.state in _RUNNING
        return {
            "id": key,
            "name": check.name,
            "head_sha": commit,
            "status": check.state if is_running else "completed",
            "conclusion": None if is_running else check.state,
            "html_url": f"https://github.test/{self._repo}/runs/{key}",
            "app": {"slug": "github-actions" if check.log else "elsewhere"},
            "output": {"title": None, "summary": check.summary or None, "text": None},
        }

    def _check_run(self, parts: list[str], _: Mapping[str, str], __: Any) -> Reply:
        return Reply(200, self._run(*self._found(parts[0])))

    def _found(self, key: str) -> tuple[str, ScriptedCheck]:
        commit, name = next(known for known, number in self._keys.items() if number == int(key))
        return commit, next(check for check in self.ci(commit, self._looks[commit]) if check.name == name)

    def _log(self, parts: list[str], _: Mapping[str, str], __: Any) -> Reply:
        """GitHub keeps logs elsewhere, behind an address that is a permission by itself."""
        return self._elsewhere(self._found(parts[0])[1].log)

    def _statuses(self, parts: list[str], query: Mapping[str, str], _: Any) -> Reply:
        commit = parts[0]
        states = {"queued": "pending", "in_progress": "pending", "success": "success"}
        found = [
            {"context": check.name, "state": states.get(check.state, "failure"), "description": check.summary}
            for check in self.ci(commit, self._looks[commit])
            if check.status
        ]
        return Reply(200, {"state": "pending", "statuses": page(found, query).body, "total_count": len(found)})
