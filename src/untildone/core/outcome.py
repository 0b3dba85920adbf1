"""One iteration as values: what was ordered, what came back, and what it changed."""

from dataclasses import field

from untildone.core.claims import Report
from untildone.core.contract import Room
from untildone.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several replies."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def counted(self) -> int:
        """What counts against `max_tokens`: cache reads do not, they are nearly free."""
        return self.input_tokens + self.output_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the engine asks of an agent for one iteration."""

    run_id: str
    iteration_num: int
    prompt: str
    rules: str
    """How to report, for the system prompt; the same in every iteration so that it stays cached."""
    resume_session: str | None = None
    """Go on in this session instead of a fresh one."""
    fork: bool = False
    """Go on in a copy of it; it is left as it is."""
    new_rules: bool = False
    """The session was begun by somebody else: the rules it has on record are not these."""
    budget_usd: float | None = None
    """What may still be spent; the agent hands it to Claude as a second fence at process start."""
    question: bool = False
    """It asks where the work stands; nothing is to be done."""
    model: str | None = None
    """Another model than the options say, while the first choice is not to be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvidence:
    """Structured facts about a failed iteration, as the agent reported them. Prose only where no field exists."""

    is_error: bool = False
    subtype: str | None = None
    terminal_reason: str | None = None
    api_error_status: int | None = None
    api_error: str | None = None
    """`error` of the synthetic message or `api_error` of the result, e.g. `rate_limit`, `usage_limit_reached`."""
    stop_reason: str | None = None
    resets_at: float | None = None
    """Epoch seconds from a rejected `rate_limit_event`."""
    limit_type: str | None = None
    retry_after: float | None = None
    """Seconds, from the last `api_retry`."""
    has_result: bool = True
    exit_code: int | None = None
    signal: int | None = None
    login_replaced: bool = False
    """The agent was started with another login than there is now."""
    starved: bool = False
    """The system killed something for want of memory while the agent ran."""
    text: str = ""
    """The result's text or the tail of stderr: for people, and the last resort of the classifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an agent gives back for an Order. Never an exception: a failed iteration is an outcome too."""

    session_id: str | None = None
    final_text: str = ""
    """Text of the last assistant message of the main conversation; nothing else can hold a claim."""
    report: Report | None = None
    """The structured report, if the agent gave one (tool call or structured output)."""
    cost_usd: float | None = 0.0
    """All replies served in full, as the agent booked them. None: unknown."""
    estimated_usd: float = 0.0
    """Besides: what replies cut in mid-air probably cost. An estimate, never mixed into `cost_usd`."""
    cut_replies: tuple[tuple[str, float], ...] = ()
    """Message id and estimate of each reply whose end was not seen; a transcript may still know it."""
    unseen_requests: int = 0
    """Requests that were out when it was cut off: served or not, what they cost is unknown."""
    usage: Usage = field(default_factory=Usage)
    num_turns: int = 0
    failure: FaultEvidence | None = None
    """Set when the iteration did not end well."""
    interrupted: bool = False
    """It ended because the engine asked for it."""
    denials: tuple[str, ...] = ()
    """What the agent was refused, as `Tool(detail)`."""
    activity: tuple[str, ...] = ()
    """Fingerprints of the tool calls made: new ones are evidence of work even if nothing changed."""
    error_text: str = ""
    """Error output of failed tool calls, capped: raw material of the error signature."""
    output_chars: int = 0
    """Characters of assistant text in the whole iteration."""
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an iteration did to the world, as the loop itself saw it."""

    changed: bool = False
    files_changed: int = 0
    tree: str = ""
    """Fingerprint of the working tree afterwards."""
    activity: tuple[str, ...] = ()
    output_chars: int = 0
    error_signature: str = ""
    denials: tuple[str, ...] = ()
    question: str = ""
    """The question that the final message ended with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check, run by the loop itself."""

    name: str
    command: str
    passed: bool
    exit_code: int | None = None
    """None: it did not end in time."""
    seconds: float = 0.0
    output_tail: str = ""
    output_sha256: str = ""
    room: Room = "tree"
    flaky: bool = False
    """It gave both verdicts on the same commit: it passed only if it then passed several times in a row."""
    hidden: bool = False
    """Its text and output must never reach the agent."""
    was_green: bool | None = None
    """Whether it passed before any work was done; None: not known."""
    log: str = ""
    """The file that holds all it printed, if it was kept."""
    ran: bool = True
    """False: it could not be run at all, and the output says why."""
    tests_run: int | None = None
    """Tests that gave a verdict, as their runner counted them; None: it does not say."""
    tests_skipped: int | None = None
    """None: not known, or not all tests were come to."""
    notes: tuple[str, ...] = ()
    """What to know about the place it ran in: folders it could write to that are not its own, files not to be had."""
    weaker: str = ""
    """Why it proves less than it could: it ran where more than the commit could be seen. "": it did not."""
    noise: tuple[str, ...] | None = None
    """Hashes of what its output changes from one run to the next on the same commit; None: it ran once."""
