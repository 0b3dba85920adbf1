"""Which of the events that were sent are kept. The same for every database, and without one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hmac import compare_digest

import msgspec

from untildone.core.dataclass import dataclass
from untildone.core.wire import DRIVER, PUBLISHED, Receipt
from untildone.errors import SenderRefused
from untildone.server.archive.fitting import number_of, text_of, whole_of
from untildone.server.archive.port import LOCAL, Origin, Sender, StoredEvent

MOST_SKIPPED = 10_000_000
"""Numbers in a row that a log can have lost before they were sent: years of trace."""
MOST_FIRST_TENURE = 1_000_000
"""A run that begins here may have been taken over elsewhere before, but not so often that nobody could any more."""
EventRow = tuple[str, int, float, str, str, str, int, int | None, str]
"""A row of `events`, in the order of EVENT_COLUMNS."""
EVENT_COLUMNS = ("run_id", "seq", "at", "kind", "type", "source", "version", "iteration", "data")
FACT_COLUMNS = (
    "run_id",
    "sandbox_id",
    "origin",
    "created_at",
    "heard_at",
    "last_seq",
    "control_seq",
    "trimmed_seq",
    "tenure",
    "trace_chars",
    "newest_order",
    "driver_hash",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Events that somebody wants to be kept."""

    sender: Sender
    run_id: str
    events: Sequence[StoredEvent]
    now: float
    numbered: bool = True
    """Otherwise they get the next numbers of the run, here."""


@dataclass(slots=True)
class RunFacts:
    """What is known of a run while its row is locked, and becomes of it."""

    run_id: str
    sandbox_id: str
    origin: Origin
    created_at: float
    heard_at: float
    last_seq: int = 0
    control_seq: int = 0
    trimmed_seq: int = 0
    tenure: int = 0
    trace_chars: int = 0
    newest_order: int = 0
    driver_hash: str = ""
    present: set[int] = field(default_factory=set)
    """Numbers up to `last_seq` that are there, as far as anybody offers them again."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a group of offers comes to."""

    answers: list[Receipt | SenderRefused]
    """One for each offer, in order."""
    rows: list[EventRow]
    heard: list[RunFacts]
    """Runs that change."""


def by_run(offers: Iterable[Offer]) -> dict[str, list[Offer]]:
    """Offers of each run, the runs sorted: whoever locks several must do so in one order."""
    grouped: dict[str, list[Offer]] = {}
    for offer in offers:
        grouped.setdefault(offer.run_id, []).append(offer)
    return dict(sorted(grouped.items()))


def first_facts(offers: Sequence[Offer]) -> RunFacts:
    """Of a run nobody has heard of before: it belongs to the first who may have it."""
    offer = next((offer for offer in offers if misnamed(offer) is None), offers[0])
    sender = offer.sender
    return RunFacts(
        offer.run_id,
        sender.sandbox_id,
        sender.origin,
        offer.now,
        offer.now,
        tenure=min(sender.tenure, MOST_FIRST_TENURE),
        driver_hash=sender.driver_hash,
    )


def misnamed(offer: Offer) -> SenderRefused | None:
    """Names of published runs are not to be had by others: their events would find the place taken."""
    sender = offer.sender
    if offer.run_id.startswith(PUBLISHED) and sender.origin != "published":
        return SenderRefused(f"a run cannot be called {offer.run_id}: names with {PUBLISHED} are the server's")
    if sender.sandbox_id == LOCAL and sender.origin != "local":
        return SenderRefused(f"sandbox {LOCAL} is the server's own machine: call this one something else")
    return None


def refusal(facts: RunFacts, offer: Offer) -> SenderRefused | None:
    """Why these events are not kept, if so."""
    sender = offer.sender
    if (other := of_another_tenure(offer.run_id, facts.tenure, sender.tenure)) is not None:
        return other
    if (facts.origin, sender.origin) == ("local", "worker"):
        return SenderRefused(f"run {offer.run_id} is copied from the log of the server's own machine already")
    if sender.sandbox_id != facts.sandbox_id:
        return SenderRefused(
            f"run {offer.run_id} is not a run of sandbox {sender.sandbox_id}: whoever is first with an id has it"
        )
    if sender.origin != facts.origin:
        return SenderRefused(f"run {offer.run_id} is sent in another way ({facts.origin})")
    if not (sender.trusted or is_drivers(facts.driver_hash, sender.driver_hash)):
        return SenderRefused(not_the_driver(offer.run_id))
    return _hole(facts, offer) if offer.events and sender.origin == "worker" else None


def of_another_tenure(run_id: str, tenure: int, given: int) -> SenderRefused | None:
    """Why the words of this tenure are not those of the run's driver, if so."""
    if given < tenure:
        return SenderRefused(f"another machine has taken run {run_id} over", taken=True)
    if given > tenure:
        # Only taking a run over makes it another driver's: words alone would end the run of whoever drives it.
        return SenderRefused(f"run {run_id} was not taken over by this machine: take it over first", behind=tenure)
    return None


def is_drivers(driver_hash: str, shown: str) -> bool:
    """Whether the key that was shown is the driver's. A run that began without one has none to show."""
    return not driver_hash or compare_digest(driver_hash, shown)


def not_the_driver(run_id: str) -> str:
    """What somebody is told who speaks of a run without its key."""
    return (
        f"run {run_id} is another driver's: whoever was first with that id has its key ({DRIVER}); "
        "without it an operator token is needed"
    )


def _hole(facts: RunFacts, offer: Offer) -> SenderRefused | None:
    """Whether something would be missing for ever.

    A log loses old trace, and never what is newest: only its owner knows whether what lies between is gone for good,
    and says so by naming the end of the copy. Of a run that is new here, anything may be gone.
    """
    first, last = offer.events[0].seq, facts.last_seq
    knows = offer.sender.after is not None and offer.sender.after <= last
    if offer.events[-1].seq - max(last, first) > MOST_SKIPPED or (last and first - last > MOST_SKIPPED):
        return SenderRefused(f"run {offer.run_id} skips more numbers than a log can lose", last_seq=last)
    if last and first > last + 1 and not knows:
        return SenderRefused(
            f"the copy of run {offer.run_id} ends at {last}: send what comes after that", last_seq=last
        )
    return None


def doubtful(facts: RunFacts, offers: Iterable[Offer]) -> tuple[int, int] | None:
    """The lowest and the highest number on offer that may be there already."""
    seqs = [event.seq for offer in offers if offer.numbered for event in offer.events if event.seq <= facts.last_seq]
    return (min(seqs), max(seqs)) if seqs else None


def judge(known: Mapping[str, RunFacts], offers: Iterable[Offer]) -> Judged:
    """Go through offers in order; the facts of their runs change with each."""
    judged = Judged([], [], [])
    heard: dict[str, RunFacts] = {}
    for offer in offers:
        facts = known[offer.run_id]
        refused = misnamed(offer) or refusal(facts, offer)
        if refused is None:
            heard[offer.run_id] = facts
        judged.answers.append(refused or accept(facts, offer, judged.rows))
    judged.heard.extend(heard.values())
    return judged


def accept(facts: RunFacts, offer: Offer, rows: list[EventRow]) -> Receipt:
    """Add the new ones to the rows, and to the facts."""
    facts.heard_at = offer.now
    before = len(rows)
    for event in offer.events:
        seq = event.seq if offer.numbered else facts.last_seq + 1
        if _is_wanted(facts, seq, event):
            facts.present.add(seq)
            facts.last_seq = max(facts.last_seq, seq)
            rows.append(_row(facts, seq, event))
    return Receipt(last_seq=facts.last_seq, stored=len(rows) - before, orders=facts.newest_order)


def _is_wanted(facts: RunFacts, seq: int, event: StoredEvent) -> bool:
    if seq > facts.last_seq:
        return True
    # What was removed on purpose does not come back.
    return seq not in facts.present and (event.kind == "control" or seq > facts.trimmed_seq)


def _row(facts: RunFacts, seq: int, event: StoredEvent) -> EventRow:
    data = text_of(event.data)
    if event.kind == "control":
        facts.control_seq = max(facts.control_seq, seq)
    else:
        facts.trace_chars += len(data)
    name = text_of(event.type)
    number = started(data) if name == "iteration.started" else None
    return (facts.run_id, seq, number_of(event.at), event.kind, name, event.source, event.version, number, data)


class _Start(msgspec.Struct):
    iteration_num: int


def started(data: str) -> int | None:
    """The number of the iteration that starts with this payload."""
    try:
        return whole_of(msgspec.json.decode(data, type=_Start).iteration_num)
    except msgspec.MsgspecError:
        return None
