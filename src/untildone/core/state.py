"""Where a run stands: the value that `fold` builds from the control events. Nothing else is remembered."""

from dataclasses import field, replace
from typing import Literal

from untildone.core.breaker import Breaker
from untildone.core.claims import Form, Report
from untildone.core.dataclass import dataclass
from untildone.core.findings import Finding
from untildone.core.outcome import Usage
from untildone.core.policy import Policy, RunSpec
from untildone.core.progress import Progress, has_judges, patience, stuck
from untildone.core.trace import QuotaWindow

Phase = Literal["new", "running", "suspended", "completed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """The ledger: replies served in full, estimates apart, and what is unknown said so."""

    cost_usd: float = 0.0
    estimated_usd: float = 0.0
    unknown_costs: int = 0
    """Iterations or replies whose price nobody knows; the true sum is higher than `cost_usd`."""
    usage: Usage = field(default_factory=Usage)

    @property
    def total_usd(self) -> float:
        return self.cost_usd + self.estimated_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIteration:
    """An iteration that was started and not yet closed."""

    number: int
    retry: int
    started_at: float
    started_seq: int
    tree: str = ""
    head: str | None = None
    branch: str | None = None
    handoff: bool = False
    review: bool = False
    question: bool = False
    resume_session: str | None = None
    session_id: str | None = None
    spend: Spend = field(default_factory=Spend)
    replies: int = 0
    wakeups: int = 0
    """Times that the result of a background task made the agent start another one."""
    reply_under_way: str | None = None
    """Message id of a reply that began and has not ended."""
    reply_under_way_usd: float = 0.0
    out_of_sight: bool = False
    """Another machine began it: what it asked for last cannot be seen from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The next try belongs to the same iteration: the fault cost no attempt."""

    number: int
    retry: int
    session_id: str | None
    because: str
    tree: str = ""
    """The tree before the first try."""
    review: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """An iteration that is closed in the log and whose work may be neither committed nor saved yet."""

    iteration_num: int
    closed_after: int
    """The record before the one that closed it."""
    tree: str
    head: str | None
    branch: str | None
    """The tree, the commit and the branch before it."""
    fault: str | None
    """Why it failed; None: it ended well, and a commit is due."""
    after_stop: bool = False
    """The run was stopped before it was done: somebody else may have been in the tree since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfDone:
    """Work of an iteration that was cut off; it is still in the tree, and saved under a private ref."""

    iteration_num: int
    reason: str
    ref: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something a human said, waiting for a prompt to carry it."""

    number: int
    content: str
    urgent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The loop may not start an iteration before `until`."""

    until: float
    cause: str
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    """A human, or a signal, asked the run to stop."""

    by: str
    after_iteration: bool
    signal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Why nothing can be committed in the folder for now."""

    cause: str
    said: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How far the work has come on its way to the base."""

    branch: str | None = None
    base: str | None = None
    start: str | None = None
    """The commit the run began with."""
    judged_from: str | None = None
    """The same with what people changed while no driver was there; None: they changed nothing."""
    left: str | None = None
    """The tree as the last driver left it; None: one is there, or it died."""
    history: str = ""
    """The git folder with the history of a folder without git; empty: it has its own."""
    remote: str | None = None
    """Where the remote led when the run began; None: nobody looked."""
    commit: str | None = None
    """What is being landed; None: nothing is under way."""
    because: str = ""
    """The stop reason that waits for it; empty: the run goes on afterwards."""
    pushed: str | None = None
    head: str | None = None
    """Where the branch stands on the remote: what was pushed, or what the forge put on top of it."""
    made: str | None = None
    """The branch that the remote did not have before this run pushed it."""
    number: int | None = None
    """The pull request."""
    url: str = ""
    since: float = 0.0
    """When the commit being landed was last pushed: patience with CI is counted from there."""
    in_line: str = ""
    """Who lands before, while it waits for that."""
    fixes: int = 0
    """How often the agent was asked to mend what kept it from landing."""
    seen: str = ""
    """The newest comment that was read."""
    landed: str | None = None
    """The newest commit of the run that has arrived."""
    merged: str | None = None
    """The commit on the base that holds it."""
    rejected: str = ""
    """What kept it from landing the last time, for people."""
    held_up: str = ""
    """What is wrong with the forge, while that is waited for."""
    trouble: str = ""
    """Why landing was given up; a new driver tries again."""

    @property
    def base_of_judges(self) -> str | None:
        """What tests, settings and scripts of checks are compared with."""
        return self.judged_from or self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """A run, folded."""

    run_id: str = ""
    spec: RunSpec = field(default_factory=lambda: RunSpec(goal="", cwd="", name=""))
    policy: Policy = field(default_factory=Policy)
    phase: Phase = "new"
    stop_reason: str | None = None
    stop_detail: str = ""
    last_seq: int = 0

    attempts: int = 0
    successes: int = 0
    excused: int = 0
    """Attempts that were cut off and are no failure: a human stopped them, or a limit did."""
    failures_in_a_row: int = 0
    denials_in_a_row: int = 0
    last_denials: tuple[str, ...] = ()
    spend: Spend = field(default_factory=Spend)
    """Closed iterations only; `spent` adds the open one."""
    open: OpenIteration | None = None
    retry: Retry | None = None

    streak: int = 0
    """Claims in a row."""
    streak_form: Form = "none"
    claim_due: bool = False
    """A claim waits for the checks."""
    answered: bool = False
    """After its last claim the agent was asked what is left of the goal, and said nothing."""
    doubts: tuple[str, ...] = ()
    """Sentences beside its last claim that the agent is asked about."""
    uncounted: str = ""
    """Why the last claim did not count, if it did not: what the same message, or the answer to the question, said."""
    verified: bool = False
    """The checks passed after the last claim."""
    verified_commit: str | None = None
    feedback: str = ""
    """What keeps the work from counting as done: failed checks, guard, review, or the landing."""
    feedback_from: Literal["checks", "review", "landing"] = "checks"
    checks_said: Literal["passed", "failed", ""] = ""
    """What the checks themselves said when the loop last looked, whatever else was in the way."""
    refused_streak: tuple[int, Form] = (0, "none")
    """The claims in a row that the witness did not believe: they count again if a human waives what it found."""
    baseline: tuple[tuple[str, bool], ...] | None = None
    """Each check's verdict before any work was done; None: not taken yet."""
    verdicts: tuple[tuple[str, str, bool], ...] = ()
    """Verdicts as (commit or tree, identity of the check, passed): both on one commit mean that it is flaky."""
    tests_before: tuple[tuple[str, int, int | None], ...] = ()
    """By the identity of a check: tests it ran and skipped before any work was done."""
    red: tuple[tuple[str, str], ...] = ()
    """What failed when the loop last looked: the check, and the file with all it printed if that may be told."""
    failing: tuple[tuple[str, str], ...] = ()
    """The same checks, and the first failed test of each with its message, as far as that may be told."""
    flaky: tuple[str, ...] = ()
    """Checks that gave both verdicts on one commit."""
    weaker: str = ""
    """Why the newest checks prove less than they could; "" when only the commit could be seen."""
    findings: tuple[Finding, ...] = ()
    """What the guard saw last."""
    examined: str | None = None
    """The newest commit that the witness let pass."""
    guarded: bool = False
    """The guard found nothing that blocks, after the last claim."""
    waived: tuple[str, ...] = ()
    """Globs of guarded files that a human let change."""
    disputed: tuple[str, ...] = ()
    """What held in the base and does not hold on the new code, although the checks pass; the newest look."""
    dispute_rounds: int = 0
    """How often in a row it was the same dispute: the agent has one chance to settle it."""
    dispute_refused: bool = False
    """A reviewer looked at the dispute and said no."""
    dispute_under_review: bool = False
    """The review that is due or going on is about the dispute."""
    accepted: tuple[str, ...] = ()
    """Disputes that a reviewer or a human settled in favour of the new code."""
    accepted_by: str = ""
    settled: tuple[str, ...] = ()
    """Accepted disputes without which the last look would not have passed: done with these is not verified."""
    review_due: bool = False
    review_rounds: int = 0
    """Reviews in a row that asked for changes."""
    review_findings: str = ""
    """What the last review asked for; the next reviewer looks whether it was done."""
    approved: bool = False
    """The last review found nothing that must change, and nothing was changed since."""
    land_due: bool = False
    """What the last iteration committed is to be checked and landed although the run goes on."""
    arrival: Arrival = field(default_factory=Arrival)
    blocked: str | None = None
    """The agent says it cannot go on, and why."""
    block_doubted: bool = False
    """It said so before it had tried anything: it gets one more try."""
    fatal: str | None = None
    """Name of a fault that only a human can mend."""
    fatal_detail: str = ""
    breaker: Breaker = field(default_factory=Breaker)
    progress: Progress = field(default_factory=Progress)

    calls: tuple[float, ...] = ()
    """When iterations were started within the last hour."""
    wait: Wait | None = None
    outage_since: float | None = None
    limited_since: float | None = None
    """When a usage limit was met first; None again after a reply."""
    backoffs: int = 0

    stop: StopAsked | None = None
    paused: bool = False
    messages: tuple[Message, ...] = ()
    messages_received: int = 0
    ordered: int = 0
    """The newest order of a server that was carried out: the log itself says what is still to be fetched."""
    tenure: int = 0
    """Which machine's words these are, as the server counts them; 0: the run never moved."""

    half_done: HalfDone | None = None
    unsettled: Unsettled | None = None
    last_report: Report | None = None
    questions: tuple[str, ...] = ()
    """What the agent asked and nobody has answered, the newest first; the last few."""
    asked_question: bool = False
    """The last iteration ended by asking a human who is not there."""
    last_error: str = ""
    last_session: str | None = None
    last_session_at: float = 0.0
    tasks_open: int | None = None
    tasks_ticked: int = 0
    tasks_all_done: bool = False
    tasks_boxed: bool = False
    """The task file had boxes once: from then on only ticked boxes are a claim."""
    commit_trouble: str = ""
    """Why the last work could not be committed; while it lasts, nothing counts as done."""
    held: Held | None = None
    """Nothing can be committed now, so that no iteration is begun."""

    tasks_completed: int = 0
    files_modified: int = 0
    """Files that iterations changed, each counted once for every iteration."""
    files_uncommitted: int = 0
    """Those that the last iteration seemed to change: what its commit holds is the truth."""
    commits: int = 0
    last_commit: str | None = None
    last_subject: str = ""
    """The first line of the last commit's message."""
    quota: tuple[QuotaWindow, ...] = ()
    """The subscription's windows, as last seen."""
    disk_low: bool = False
    disk_free: int = 0
    """Free bytes, as last recorded; means something only while `disk_low`."""
    warned: tuple[str, ...] = ()
    """Limits whose budget warning was given."""
    handoff_due: bool = False
    """A limit cut the last iteration; its session may say one last word out of the reserve."""
    fallback: int = 0
    """How many fallbacks were moved on to in this iteration; 0: the first choice works."""
    lost_usd: tuple[tuple[str, float], ...] = ()
    """What was spent on iterations that failed, by fault."""
    lane: str | None = None
    """Which purse is being spent, as Claude last said."""
    spend_by_lane: tuple[tuple[str, float], ...] = ()
    """What each purse has paid, estimates included; closed iterations only."""
    unpriced: tuple[str, ...] = ()
    """Models whose price is not known: their tokens are counted at the dearest known price."""
    untold_usd: float = 0.0
    """What passed the door of the sandbox without Claude Code telling of it; it is booked."""
    prices_differ: bool = False
    """Claude Code and the price list do not agree on what the same replies cost: said once."""
    sandbox: str = ""
    """Where the agent works, as the last driver said."""
    refused_hosts: tuple[str, ...] = ()
    exceeded: tuple[tuple[str, str], ...] = ()
    """Bounds of its sandbox that the agent exceeded, by setting, and what was done about it."""
    """Hosts that the agent could not reach from its sandbox."""
    usage_limit_hit: bool = False
    """A usage or rate limit was met at least once."""

    tampered: tuple[str, ...] = ()
    """What was done to the record behind the driver's back, the last few."""
    refusals: int = 0
    """Operator commands the agent gave and that were refused, as far as they were counted."""

    notes_folded: int = 0
    """Of a loop inside Claude Code: how many bytes of what its hooks wrote down are in the log."""
    notes_skipped: int = 0
    """Lines of that which made no sense."""
    notes_last: int = 0
    """The number of the last line that a hook wrote."""
    notes_foreign: int = 0
    """Lines that no hook wrote."""
    notes_gaps: int = 0
    """Places where lines of the hooks are missing."""

    driving: bool = False
    driven_from: int = 0
    """The number of the event with which the newest driver began."""
    active_seconds: float = 0.0
    """Time with a living driver, up to `last_at`, without pauses."""
    waited_seconds: float = 0.0
    """Of these, the time in which it only waited: for a limit, an outage, a moment."""
    resting: bool = False
    """The last thing a driver recorded is that it waits."""
    on_hold: bool = False
    """A driver waits because a human paused the run: this time is no time of the run's."""
    last_at: float = 0.0
    """When a driver last recorded something."""
    started_at: float = 0.0

    @property
    def circuit(self) -> Breaker:
        """The breaker, which is open as well while nothing gets better."""
        if self.breaker.state == "open" or self.spec.in_session:
            return self.breaker
        judged = has_judges(self.spec)
        reason = stuck(self.progress, patience(self.policy), judged=judged)
        if not reason:
            return self.breaker
        return replace(self.breaker, state="open", reason=reason, opened_at=self.progress.at)

    @property
    def spent_usd(self) -> float:
        """Everything spent so far, the open iteration and estimates included."""
        return self.spend.total_usd + (self.open.spend.total_usd if self.open else 0.0)

    @property
    def served_usd(self) -> float:
        """Replies served in full, the open iteration included: what every `total_cost_usd` says."""
        return self.spend.cost_usd + (self.open.spend.cost_usd if self.open else 0.0)

    @property
    def spent_tokens(self) -> int:
        """Tokens that count against `max_tokens`, the open iteration included."""
        return self.spend.usage.counted + (self.open.spend.usage.counted if self.open else 0)

    def elapsed(self, now: float) -> float:
        """Seconds with a living driver, as seen by that driver."""
        return self.active_seconds + (self.passed(now) if self.driving else 0.0)

    def passed(self, now: float) -> float:
        """Seconds since the driver's last fact; without those before the start that was asked for, or in a pause."""
        return 0.0 if self.on_hold else max(0.0, now - max(self.last_at, self.policy.start_at or 0.0))

    def worked(self, now: float) -> float:
        """The same without the time in which it only waited."""
        until = self.last_at if self.resting else now
        return max(0.0, self.elapsed(until) - self.waited_seconds)
