"""What must hold before work counts as done, and what the work may not touch on the way there.

Each field's docstring is its documentation: `docs/settings.md` is generated from them.
"""

import hashlib
from typing import Literal

from .dataclass import dataclass

Kind = Literal["command", "tasks-ticked", "tasks-done", "tree-clean", "pushed", "pr-open", "ci-green"]
Room = Literal["clean", "tree"]

CONDITIONS: tuple[Kind, ...] = ("tasks-ticked", "tasks-done", "tree-clean", "pushed", "pr-open", "ci-green")
"""What the loop can see by itself, without a command."""
FAIL_TO_PASS = "fail-to-pass"  # noqa: S105 -- no password: it passes
"""What the proof that new tests fail on old code is called among the results."""
FORGE_CONDITIONS: frozenset[Kind] = frozenset({"pushed", "pr-open", "ci-green"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """One condition of a contract."""

    name: str
    """What people call it."""
    command: str = ""
    """The shell command that must exit with 0; empty for every other kind."""
    kind: Kind = "command"
    timeout: float | None = None
    """Seconds it may take. None: what the contract says for all."""
    folder: str = ""
    """Where it runs, relative to the folder of the run."""
    hidden: bool = False
    """Its text and output never reach the agent, only whether it passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The checks of a run, where they are run, and what is guarded."""

    checks: tuple[CheckSpec, ...] = ()
    """Commands that must pass, on the commit itself, before a claim is believed."""
    timeout: float = 600.0
    """Seconds a check may take."""
    room: Room = "clean"
    """Where checks run: in a fresh checkout of the commit, or in the agent's tree (weaker; every report says so)."""
    proof: Literal["normal", "strict"] = "normal"
    """What checks may reach: `strict` cuts the network, and refuses to start where checks cannot be enclosed."""
    setup: str | None = None
    """Command that prepares a fresh checkout before the checks, such as `npm ci`."""
    setup_timeout: float = 900.0
    """Seconds that command may take."""
    share: tuple[str, ...] = ()
    """Ignored folders (`node_modules`, `.venv`) a fresh checkout borrows from the tree, read-only where possible."""
    guard: Literal["off", "on", "strict"] = "on"
    """Whether deleted tests, new skips, lowered thresholds and changed CI block done; `strict`: any change of them."""
    guard_files: tuple[str, ...] = ()
    """More files to guard, as globs."""
    waive: tuple[str, ...] = ()
    """Guarded files that may change all the same, as globs."""
    baseline: bool = True
    """Run the checks once before any work, to know which of them fail already. Otherwise that is not known."""
    fail_to_pass: bool = False
    """New tests must fail on the code the run began with, and pass on its result."""
    fail_to_pass_check: str | None = None
    """Command that runs only the new tests, for `fail_to_pass` where checks are red before the run."""

    def timeout_of(self, check: CheckSpec) -> float:
        """Seconds this check may take."""
        return self.timeout if check.timeout is None else check.timeout

    def identity(self, name: str, command: str) -> str:
        """A key for verdicts that can be compared: the same check, prepared in the same way."""
        folder = next((check.folder for check in self.checks if check.name == name), "")
        how = (name, command, folder, self.room, self.setup, self.share)
        said = repr(how if self.proof == "normal" else (*how, self.proof))
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]


def commands(*texts: str, hidden: bool = False) -> tuple[CheckSpec, ...]:
    """Checks that are nothing but a shell command. A hidden one gets a name that gives nothing away."""
    return tuple(
        CheckSpec(name=f"hidden check {number}" if hidden else text, command=text, hidden=hidden)
        for number, text in enumerate(texts, 1)
    )
