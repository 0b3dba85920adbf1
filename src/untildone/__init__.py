"""untildone runs Claude Code until the work is really done, and can prove it.

from untildone import Policy, run

result = run("Make the test suite pass", Policy(max_runs=10, max_cost_usd=5), checks=["pytest -q"])
print(result.reason, result.verified, result.commit)
"""

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would cost more than all of this file
if TYPE_CHECKING:
    from untildone.agents.scripted import ScriptedAgent, Step
    from untildone.core.claims import Claim, Report
    from untildone.core.contract import CheckSpec, Contract
    from untildone.core.decide import decide
    from untildone.core.events import Event, Record
    from untildone.core.fold import fold
    from untildone.core.outcome import CheckResult, FaultEvidence, Order, Outcome, Usage
    from untildone.core.policy import AgentOptions, Landing, Policy, Review, RunSpec, Tending
    from untildone.core.state import LoopState
    from untildone.core.stopping import Reason
    from untildone.errors import ConfigError, UntildoneError
    from untildone.library import Result, run, run_async
    from untildone.ports import Agent

__version__ = "0.1.0"

__all__ = [
    "Agent", "AgentOptions", "CheckResult", "CheckSpec", "Claim", "ConfigError", "Contract", "Event", "FaultEvidence",
    "Landing", "LoopState", "Order", "Outcome", "Policy", "Reason", "Record", "Report", "Result", "Review", "RunSpec",
    "ScriptedAgent", "Step", "Tending", "UntildoneError", "Usage", "decide", "fold", "run", "run_async",
]  # fmt: skip

# Names are loaded when they are used: `import untildone` stays light enough for a hook.
_HOMES = {
    "agents.scripted": ("ScriptedAgent", "Step"),
    "core.claims": ("Claim", "Report"),
    "core.contract": ("CheckSpec", "Contract"),
    "core.decide": ("decide",),
    "core.events": ("Event", "Record"),
    "core.fold": ("fold",),
    "core.outcome": ("CheckResult", "FaultEvidence", "Order", "Outcome", "Usage"),
    "core.policy": ("AgentOptions", "Landing", "Policy", "Review", "RunSpec", "Tending"),
    "core.state": ("LoopState",),
    "core.stopping": ("Reason",),
    "errors": ("ConfigError", "UntildoneError"),
    "library": ("Result", "run", "run_async"),
    "ports": ("Agent",),
}
_WHERE = {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
