"""What a run looks like is folded from its control events, in pieces, whatever stands in them."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.event_kit import values_of
from core.night_kit import night
from core.run_kit import START, completed, failed, opening, records, started
from server.archive_kit import control, raw, stored
from untildone.core import codec
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.event import Event, Record
from untildone.core.fold import fold
from untildone.core.history import IterationRow, iteration_rows
from untildone.core.outcome import Usage
from untildone.core.policy import SESSION, Policy
from untildone.core.stopping import Reason
from untildone.engine.journal import Snapshot
from untildone.server.archive.port import Projection, RunEntry
from untildone.server.folding import Folded, fold_on, projection_of, records_of, seen, state_of


def entry(projection: Projection | None = None, **changes: object) -> RunEntry:
    facts = {
        "run_id": "run1", "sandbox_id": "box", "origin": "worker", "created_at": START, "heard_at": START,
        "last_seq": 0, "control_seq": 0, "projection": projection or Projection(), **changes,
    }  # fmt: skip
    return RunEntry(**facts)  # type: ignore[arg-type]


def folded(*events: Event, policy: Policy | None = None) -> Folded:
    return fold_on(Folded(), records([*opening(policy), *events]), {})[0]


def shown(*events: Event, policy: Policy | None = None) -> Projection:
    return projection_of(entry(), folded(*events, policy=policy))


@pytest.mark.parametrize("seed", range(5))
def test_folding_in_pieces_gives_what_folding_at_once_gives(seed: int) -> None:
    told, pieces = control(night()), random.Random(seed)
    now, table = Folded(), dict[int, IterationRow]()
    while told:
        size = pieces.randint(1, 4)
        piece, told = told[:size], told[size:]
        # What was stored is all that the next piece knows.
        now = codec.decode_value(codec.encode_value(now), Folded)
        now, changed = fold_on(now, piece, {})
        table |= changed
        so_far = [record for record in control(night()) if record.seq <= now.state.last_seq]
        assert now.state == fold(so_far)
        assert [table[number] for number in sorted(table)] == iteration_rows(so_far)


def test_what_is_stored_can_be_read_as_a_snapshot() -> None:
    stored_fold = codec.encode_value(folded(started(1)))
    assert codec.decode_value(stored_fold, Snapshot).state == fold(records([*opening(), started(1)]))


def test_a_run_at_work_is_shown_with_its_money_and_its_progress() -> None:
    reply = tr.AgentReply(iteration_num=2, message_id="m", model="m", usage=Usage(), cost_usd=0.3)
    policy = Policy(max_runs=10, max_cost_usd=1.0)
    seen_now = shown(started(1), completed(1, cost_usd=0.5), started(2), reply, policy=policy)
    assert (seen_now.name, seen_now.goal, seen_now.folder, seen_now.host) == ("it", "make it work", "/w", "h")
    assert (seen_now.status, seen_now.phase, seen_now.why) == ("running", "running", "")
    assert (seen_now.attempts, seen_now.successes) == (2, 1)
    assert seen_now.cost_usd == pytest.approx(0.8)
    assert seen_now.progress == pytest.approx(0.8)
    assert seen_now.started_at == START + 1


def test_ticked_tasks_say_more_about_progress_than_limits() -> None:
    tasks = ev.TasksRead(iteration_num=0, open_blocking=3, open_optional=0, ticked=1)
    assert shown(tasks, started(1)).progress == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("reason", "detail", "said"),
    [
        (
            Reason.MAX_COST,
            "$1.02 of $1.00",
            "Reached the limit of cost ($1.02 of $1.00); resume with a higher limit: `untildone resume it",
        ),
        (
            Reason.STOP_REQUESTED,
            "by dashboard (alex)",
            "Stopped by dashboard (alex); resume: `untildone resume it`.",
        ),
        (Reason.STOP_REQUESTED, "by cli", "Stopped by a command; resume: `untildone resume it`."),
        (Reason.AUTHENTICATION, "", "The login or key was refused; log in with `untildone login`"),
        ("a_reason_of_tomorrow", "", "A_reason_of_tomorrow; see `untildone log it`"),
    ],
)
def test_why_it_stopped_is_one_sentence_with_cause_and_next_step(reason: str, detail: str, said: str) -> None:
    policy = Policy(max_cost_usd=1.0)
    stopped = shown(started(1), completed(1), ev.ContinuousSuspended(stop_reason=reason, detail=detail), policy=policy)
    assert stopped.status == "suspended"
    assert stopped.why.startswith(said)
    assert stopped.why.endswith(".")


def test_every_reason_has_a_sentence() -> None:
    for reason in Reason:
        why = shown(started(1), ev.ContinuousSuspended(stop_reason=reason)).why
        assert "; " in why, reason
        assert why[0].isupper(), reason


def test_a_run_that_waits_says_for_what() -> None:
    limited = failed(1, "rate_limit", retry_at=START + 900)
    waiting = shown(started(1), limited)
    assert waiting.status == "waiting"
    # The moment is told as such: whoever reads it may live in another zone.
    assert (waiting.why, waiting.phase) == (
        "Waiting for the rate limit; it goes on by itself.", "waiting for the rate limit",
    )  # fmt: skip
    assert waiting.waiting_until == START + 900


def test_a_run_that_is_silent_is_interrupted_and_one_that_ended_is_not() -> None:
    at_work = entry(shown(started(1)), heard_at=START)
    assert seen(at_work, START + 60).status == "running"
    assert seen(at_work, START + 60).alive
    assert not seen(replace(at_work, origin="local"), START + 60).alive
    left = seen(at_work, START + 600)
    assert (left.status, left.alive) == ("interrupted", False)
    assert left.why == (
        "Nothing was heard of it for 10m: if only the network is down, it reports again by itself; "
        "else start its worker again, or resume it with `untildone resume it` on h."
    )
    # Here there is no network in between: its driver is gone, and nothing else.
    here = seen(replace(at_work, origin="local"), START + 60).why
    assert here == "The program that drove this run is gone: resume it with `untildone resume it`."
    theirs = seen(replace(at_work, origin="published"), START + 600).why
    assert theirs.endswith("else start its program again.")
    ended = entry(shown(started(1), ev.ContinuousCompleted(stop_reason=Reason.VALIDATION_PASSED)), heard_at=START)
    assert seen(ended, START + 600).status == "completed"
    assert not seen(ended, START).alive


def test_a_run_is_called_by_the_id_the_server_knows() -> None:
    """The id in its events is a worker's text: it must not get into a command that people copy."""
    hostile = [replace(opening()[0], run_id="$(reboot)"), *opening()[1:]]
    hostile[0] = replace(hostile[0], spec=replace(hostile[0].spec, name="a b"))  # type: ignore[attr-defined]
    told = records([*hostile, ev.ContinuousSuspended(stop_reason=Reason.STOP_REQUESTED)])
    why = projection_of(entry(), fold_on(Folded(), told, {})[0]).why
    assert "untildone resume run1" in why
    assert "reboot" not in why


@settings(max_examples=40, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_any_events_in_any_order_can_be_shown_and_gone_on_with(data: st.DataObject) -> None:
    kinds = st.sampled_from([cls for cls in codec.REGISTRY.values() if cls.KIND == "control"])
    told = data.draw(st.lists(kinds.flatmap(values_of), max_size=6))
    before = folded(started(1))
    news = [Record(seq=10 + n, at=START, event=event) for n, event in enumerate(told)]
    after, rows = fold_on(before, records_of(stored(news)), {})
    projection = projection_of(entry(), after)
    assert projection.folded_seq == (news[-1].seq if news else before.state.last_seq)
    assert codec.decode_value(projection.state, Folded).state.last_seq == projection.folded_seq
    assert seen(entry(projection), START + 1000).why or projection.status not in {"running", "waiting", "paused"}
    assert all(0 <= row.cost_usd <= 1e12 and 0 <= number < 2**31 for number, row in rows.items())


def test_a_fold_that_cannot_be_read_is_none() -> None:
    assert state_of(entry(Projection(state=b"{garbage"))).phase == "new"


def test_records_of_keeps_what_it_does_not_know() -> None:
    (record,) = records_of([raw(7, "of.tomorrow", "{}")])
    assert (record.seq, codec.event_type(record.event)) == (7, "of.tomorrow")


def test_a_loop_that_no_session_has_begun_is_not_at_work() -> None:
    begin, *rest = opening()
    assert isinstance(begin, ev.ContinuousStarted)
    options = replace(begin.spec.options, agent=SESSION)
    lives = [replace(begin, spec=replace(begin.spec, options=options)), *rest]
    waits = projection_of(entry(origin="local"), fold_on(Folded(), records(lives), {})[0])
    assert waits.why == "It waits for a session: type `/untildone:loop --adopt` in one."
    assert (waits.status, waits.in_session) == ("waiting", True)
    begun = projection_of(entry(origin="local"), fold_on(Folded(), records([*lives, started(1)]), {})[0])
    assert (begun.status, begun.why) == ("running", "")


@pytest.mark.parametrize("portable", [False, True])
def test_advice_for_a_run_elsewhere_says_where_to_type_it(portable: bool) -> None:
    begin, *rest = opening()
    assert isinstance(begin, ev.ContinuousStarted)
    spec = replace(begin.spec, portable=portable, server="http://server.test")
    told = records([replace(begin, spec=spec), *rest, started(1), ev.ContinuousSuspended(stop_reason="stop_requested")])
    now = fold_on(Folded(), told, {})[0]
    far, here = (projection_of(entry(origin=origin), now).why for origin in ("worker", "local"))
    assert here.endswith("resume: `untildone resume it`.")
    assert "Its log is on h: type that there" in far
    assert ("`untildone resume --from-server run1`" in far) == portable
    assert "worker" not in far


@pytest.mark.parametrize(("reason", "again"), [("stop_requested", True), ("max_runs_reached", False)])
def test_a_workers_run_can_go_on_elsewhere_and_by_its_worker_where_that_would_not_begin_anew(
    reason: str, again: bool
) -> None:
    why = shown(started(1), ev.ContinuousSuspended(stop_reason=reason)).why
    assert "or go on elsewhere with `untildone resume --from-server run1`." in why
    assert ("start its worker again" in why) == again
