"""Which events are worth a line while a run goes on, and in what tone each is said."""

from typing import Literal

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.stopping import DONE

Tone = Literal["good", "bad", "warn", "quiet", "head", "plain"]

# Shown by `log`; while one watches they only say what the lines around them say better.
_BOOKKEEPING = (
    ev.LandingPrepared,
    tr.AgentSession,
    tr.AgentStarted,
    ev.ContinuousLimitReached,
    tr.IterationFilesChanged,
)

_TOLD_OF_AGENTS = (tr.AgentPriceUnknown, tr.AgentHostRefused, tr.AgentBoundExceeded, tr.AgentBooksDiffer)

# Trouble inside an iteration that explains why nothing seems to happen.
_TELLING = frozenset({
    "api_retry", "rate_limit_event", "compact_boundary", "permission_denied", "model_fallback",
    "model_refusal_fallback", "model_refusal_no_fallback", "session_writes_lost",
})  # fmt: skip

_TONES: dict[type[ev.Event], Tone] = {
    ev.ContinuousStarted: "head",
    ev.ContinuousRecovered: "warn",
    ev.ContinuousWaiting: "warn",
    ev.ContinuousWarning: "warn",
    ev.BudgetWarning: "warn",
    ev.ResourcesSeen: "warn",
    ev.ClockJumped: "warn",
    ev.StoreTampered: "bad",
    ev.SteeringRefused: "bad",
    ev.HookFailed: "bad",
    ev.FailureCounted: "bad",
    ev.NotesFolded: "bad",
    ev.GoalChanged: "warn",
    ev.QuestionAsked: "warn",
    ev.LandingFailed: "bad",
    ev.LandingHeld: "warn",
    ev.ContinuousSuspended: "warn",
    ev.IterationStarted: "head",
    ev.IterationFailed: "bad",
    ev.LandingCommitted: "good",
    ev.LandingSnapshot: "warn",
    ev.LandingMerged: "good",
    ev.LandingRejected: "warn",
    ev.LandingReverted: "bad",
    ev.LandingGaveUp: "bad",
    ev.WaiverGiven: "warn",
    ev.Rewound: "warn",
    ev.MessageReceived: "warn",
    tr.AgentHostRefused: "warn",
    tr.AgentBooksDiffer: "warn",
    tr.AgentBoundExceeded: "warn",
    tr.AgentPriceUnknown: "warn",
    tr.AgentToolUse: "quiet",
    tr.AgentToolResult: "bad",
    tr.AgentStreamError: "bad",
    tr.AgentSystem: "warn",
    ev.Unknown: "quiet",
}


def is_worth_a_line(event: ev.Event) -> bool:
    """Would a person who watches, but not closely, want to read this?"""
    if isinstance(event, ev.ContinuousResumed):
        return bool(event.sandbox)  # what is in force
    if isinstance(event, tr.AgentSystem):
        return event.subtype in _TELLING
    return isinstance(event, _TOLD_OF_AGENTS) or not isinstance(event, (tr.AgentEvent, *_BOOKKEEPING))


def tone(event: ev.Event) -> Tone:
    """How an event is said."""
    match event:
        case ev.IterationValidation():
            return "good" if event.passed else "bad"
        case ev.ContinuousResumed():
            return "warn" if event.sandbox == "host" else "plain"
        case ev.ContinuousCompleted():
            return "good" if event.stop_reason in DONE else "warn"
        case _:
            return _TONES.get(type(event), "plain")
