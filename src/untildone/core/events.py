"""What happened. Every fact of a run is one of these frozen, versioned values, and nothing else is stored.

`control` events decide what happens next and are folded into the state; `trace` events are for eyes.
Names and payloads are the wire format too: there is no translation layer.
Evolving one: new fields get a default; anything else raises VERSION and adds an upgrade in `codec`.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from untildone.core.claims import Claim
from untildone.core.dataclass import dataclass
from untildone.core.event import Command as Command
from untildone.core.event import Event as Event
from untildone.core.event import Kind as Kind
from untildone.core.event import Progress as Progress
from untildone.core.event import Record as Record
from untildone.core.event import Source as Source
from untildone.core.event import Unknown as Unknown
from untildone.core.landing_events import LandingBegun as LandingBegun
from untildone.core.landing_events import LandingCommitted as LandingCommitted
from untildone.core.landing_events import LandingFailed as LandingFailed
from untildone.core.landing_events import LandingGaveUp as LandingGaveUp
from untildone.core.landing_events import LandingHeld as LandingHeld
from untildone.core.landing_events import LandingLeft as LandingLeft
from untildone.core.landing_events import LandingMerged as LandingMerged
from untildone.core.landing_events import LandingPrepared as LandingPrepared
from untildone.core.landing_events import LandingPullOpened as LandingPullOpened
from untildone.core.landing_events import LandingPushed as LandingPushed
from untildone.core.landing_events import LandingRejected as LandingRejected
from untildone.core.landing_events import LandingReverted as LandingReverted
from untildone.core.landing_events import LandingSnapshot as LandingSnapshot
from untildone.core.landing_events import LandingWatched as LandingWatched
from untildone.core.landing_events import RejectionCause as RejectionCause
from untildone.core.landing_events import Rewound as Rewound
from untildone.core.outcome import CheckResult as CheckResult
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import Policy, RunSpec
from untildone.core.reviewing import ReviewVerdict
from untildone.core.session_events import FailureCounted as FailureCounted
from untildone.core.session_events import GoalChanged as GoalChanged
from untildone.core.session_events import NotesFolded as NotesFolded
from untildone.core.session_events import QuestionAsked as QuestionAsked
from untildone.core.witness_events import BaselineTaken as BaselineTaken
from untildone.core.witness_events import DisputeAccepted as DisputeAccepted
from untildone.core.witness_events import IterationValidation as IterationValidation
from untildone.core.witness_events import WaiverGiven as WaiverGiven
from untildone.core.witness_events import WitnessAtWork as WitnessAtWork

# --- the run -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousStarted(Event):
    """A run began: the goal, the limits, and all that is needed to pursue it again."""

    TYPE: ClassVar[str] = "continuous.started"
    VERSION: ClassVar[int] = 2
    run_id: str
    goal: str
    limits: Mapping[str, float | int | None]
    completion_signal: str
    completion_threshold: int | None
    policy: Policy
    spec: RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousResumed(Event):
    """A driver took up a run: the first one too, so that every driver is in the log."""

    TYPE: ClassVar[str] = "continuous.resumed"
    pid: int
    host: str
    version: str
    lease: int
    sandbox: str = ""
    """Where its agent works: `bwrap`, `claude` or `host`; empty: it was not told."""
    sandbox_note: str = ""
    """What is lent to it there, or why it is on the host although a sandbox was wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousRecovered(Event):
    """What a new driver found and repaired after the old one died."""

    TYPE: ClassVar[str] = "continuous.recovered"
    iteration_num: int | None = None
    """The iteration the dead driver left open, if any."""
    orphans_ended: int = 0
    """Processes of the dead driver's agent that were still alive."""
    snapshot: str | None = None
    """Private ref that holds the half-done work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousWaiting(Event):
    """The loop rests until a moment, for a cause."""

    TYPE: ClassVar[str] = "continuous.waiting"
    cause: str
    until: float | None
    """Epoch seconds; None: until a person ends it."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousLimitReached(Event):
    """A limit the user set was reached."""

    TYPE: ClassVar[str] = "continuous.limit_reached"
    limit_type: str
    limit_value: float
    current_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed(Event):
    """A command of the user's around the iterations failed."""

    TYPE: ClassVar[str] = "continuous.hook_failed"
    hook: str
    """before_iteration or after_iteration"""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarning(Event):
    """Most of a limit is used up."""

    TYPE: ClassVar[str] = "continuous.budget_warning"
    limit_type: str
    limit_value: float
    current_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesSeen(Event):
    """The machine runs short of something, or has enough again."""

    TYPE: ClassVar[str] = "continuous.resources"
    disk_low: bool
    disk_free: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJumped(Event):
    """The machine's clock was set, or the machine was suspended: this is no time that passed for the run."""

    TYPE: ClassVar[str] = "continuous.clock_jumped"
    seconds: float
    """Positive: forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousSuspended(Progress):
    """The run stopped and can be continued."""

    TYPE: ClassVar[str] = "continuous.suspended"
    stop_reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousCompleted(Progress):
    """The run is done. Final."""

    TYPE: ClassVar[str] = "continuous.completed"
    stop_reason: str
    verified: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousWarning(Event):
    """Something a person should know that stops nothing: notes cut, a hook that failed, a branch made."""

    TYPE: ClassVar[str] = "continuous.warning"
    KIND: ClassVar[Kind] = "trace"
    message: str


# --- iterations --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationStarted(Progress):
    """Intent: durable before the agent is touched."""

    TYPE: ClassVar[str] = "iteration.started"
    iteration_num: int
    retry: int = 0
    """0 for the first try of this iteration; a fault that costs no attempt adds one."""
    handoff: bool = False
    """The reserve pays for one last word: notes for the next driver."""
    model: str | None = None
    """The fallback that took over, if one did."""
    review: bool = False
    """It is not work on the goal but a review of what was done."""
    question: bool = False
    """It is not work on the goal but the question whether all of it is reached."""
    prompt_preview: str = ""
    resume_session: str | None = None
    tree: str = ""
    """Fingerprint of the working tree before the first try: what this iteration changed is measured from there."""
    head: str | None = None
    branch: str | None = None
    """The commit and the branch before this try: what was committed since is told from there, also after a crash."""
    messages_shown: int = 0
    """How many human messages, counted from the run's start, this prompt has delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationCompleted(Progress):
    """An iteration ended without a fault."""

    TYPE: ClassVar[str] = "iteration.completed"
    iteration_num: int
    cost_usd: float | None
    """None: unknown, never 0."""
    session_id: str | None = None
    transcript_b64: str | None = None
    output_preview: str = ""
    estimated_usd: float = 0.0
    unseen_requests: int = 0
    """Requests without an answer: served or not, what they cost is unknown."""
    usage: Usage = field(default_factory=Usage)
    duration_seconds: float = 0.0
    num_turns: int = 0
    claim: Claim = field(default_factory=Claim)
    evidence: Evidence = field(default_factory=Evidence)
    verdict: ReviewVerdict | None = None
    """What a reviewer found; only of a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationFailed(Event):
    """An iteration ended by a fault or an interruption; what was spent is booked all the same."""

    TYPE: ClassVar[str] = "iteration.failed"
    iteration_num: int
    error: str
    error_type: str
    """A name from `core.faults`."""
    retry_allowed: bool
    cost_usd: float | None
    estimated_usd: float = 0.0
    unseen_requests: int = 0
    """Requests without an answer: served or not, what they cost is unknown."""
    session_id: str | None = None
    usage: Usage = field(default_factory=Usage)
    duration_seconds: float = 0.0
    evidence: Evidence = field(default_factory=Evidence)
    retry_at: float | None = None
    """Epoch seconds before which a new try is pointless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationCompletionSignal(Event):
    """The agent claimed to be done."""

    TYPE: ClassVar[str] = "iteration.completion_signal"
    KIND: ClassVar[Kind] = "trace"
    iteration_num: int
    signal_count: int
    threshold: int
    open_tasks: int = 0
    """Tasks that are still open, for which the claim does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksRead(Event):
    """The task file as it stood before or after an iteration."""

    TYPE: ClassVar[str] = "iteration.tasks"
    iteration_num: int
    open_blocking: int
    open_optional: int
    ticked: int
    all_done: bool = False
    """Every blocking box is ticked: that is a claim."""
    missing: bool = False
    """The file is gone or no longer a file; the other numbers say nothing."""


# --- what the agent did to its own record ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTampered(Event):
    """The record was changed from outside. It had no effect but this line."""

    TYPE: ClassVar[str] = "continuous.tampered"
    detail: str
    records: tuple[int, ...] = ()
    """The numbers that were forged, changed or taken away, the first few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringRefused(Event):
    """The agent gave a command that is the operator's. It was refused."""

    TYPE: ClassVar[str] = "continuous.steering_refused"
    SOURCE: ClassVar[Source] = "system"
    command: str


# --- what humans ask for: anyone may append these, at any time ------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(Command):
    """Stop the run, now or after the running iteration."""

    TYPE: ClassVar[str] = "continuous.stop_requested"
    after_iteration: bool = False
    signal: str | None = None
    """The process signal that asked, if it was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested(Command):
    """Pause the run, once its running iteration has ended, until it is resumed."""

    TYPE: ClassVar[str] = "continuous.pause_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested(Command):
    """End a pause."""

    TYPE: ClassVar[str] = "continuous.resume_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(Command):
    """A human says something to the agent: in the next prompt, or at once if urgent."""

    TYPE: ClassVar[str] = "agent.message_injected"
    content: str
    message_type: str = "user_message"
    urgent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipWaitRequested(Command):
    """Do not wait any longer: try now."""

    TYPE: ClassVar[str] = "continuous.skip_wait_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRefused(Command):
    """Something was asked of the run from far away that cannot be done."""

    TYPE: ClassVar[str] = "continuous.order_refused"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsChanged(Command):
    """New values for some limits, by policy field name."""

    TYPE: ClassVar[str] = "continuous.limits_changed"
    changes: Mapping[str, float | int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged(Command):
    """A run that stopped is to go on with other settings. Goal, folder and name stay what they are."""

    TYPE: ClassVar[str] = "continuous.settings_changed"
    VERSION: ClassVar[int] = 2
    policy: Policy
    spec: RunSpec
    changes: tuple[str, ...] = ()
    """What differs from before, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequested(Command):
    """Clear the breaker, the session, or the streaks and fault counters."""

    TYPE: ClassVar[str] = "continuous.reset_requested"
    circuit: bool = True
    session: bool = False
    history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMoved(Command):
    """The run goes on on another machine; the one before can no longer change it."""

    TYPE: ClassVar[str] = "continuous.moved"
    tenure: int
    """Grows with every machine: words of an earlier one are refused."""
    host: str = ""
    """Where it is now."""
    start: str | None = None
    """The commit it began with, where another one stands for that there."""
