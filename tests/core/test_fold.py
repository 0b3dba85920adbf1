"""Every order of events that a crash can leave is folded; money and counters come out right."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.event_kit import values_of
from core.run_kit import START, after, completed, done_claim, failed, now_of, opening, records, started
from untildone.core import codec
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.decide import decide, interruption, next_look
from untildone.core.events import Record
from untildone.core.fold import HANDLERS, fold
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import Policy
from untildone.core.state import LoopState

CONTROL = [cls for cls in codec.REGISTRY.values() if cls.KIND == "control"]


def test_every_control_event_is_folded_and_no_other() -> None:
    assert set(HANDLERS) == set(CONTROL)


def _reply(message_id: str = "m1", cost: float | None = 0.5) -> tr.AgentReply:
    return tr.AgentReply(iteration_num=1, message_id=message_id, model="m", usage=Usage(10, 5), cost_usd=cost)


def _begun(message_id: str = "m1", cost: float = 0.2) -> tr.AgentReplyStarted:
    return tr.AgentReplyStarted(iteration_num=1, message_id=message_id, model="m", usage=Usage(10), cost_usd=cost)


def test_a_running_iteration_counts_its_replies_and_the_close_replaces_them() -> None:
    running = after(started(1), _begun(), _reply())
    assert running.spent_usd == pytest.approx(0.5)
    closed = fold(records([*opening(), started(1), _begun(), _reply(), completed(1, cost_usd=0.51)]))
    assert closed.spent_usd == pytest.approx(0.51)
    assert closed.open is None


def test_unknown_cost_is_unknown_and_what_was_seen_is_kept() -> None:
    assert after(started(1), completed(1, cost_usd=None)).spend.unknown_costs == 1
    assert after(started(1), _reply(cost=None), completed(1, cost_usd=None)).spend.unknown_costs == 1
    seen = after(started(1), _reply(), completed(1, cost_usd=None)).spend
    assert (seen.cost_usd, seen.unknown_costs) == (0.5, 0)


def test_a_reply_cut_in_mid_air_is_an_estimate() -> None:
    state = after(started(1), _reply(), _begun("m2"), failed(1, "driver_died", cost_usd=0.5, estimated_usd=0.2))
    assert (state.spend.cost_usd, state.spend.estimated_usd) == pytest.approx((0.5, 0.2))


def test_an_iteration_nobody_closed_is_booked_when_the_next_starts() -> None:
    state = after(started(1), _reply(), _begun("m2"), started(2))
    assert state.spend.cost_usd == pytest.approx(0.5)
    assert state.spend.estimated_usd == pytest.approx(0.2)


def test_attempts_count_iterations_not_tries() -> None:
    state = after(started(1), failed(1, "rate_limit"), started(1, retry=1), completed(1), started(2), completed(2))
    assert (state.attempts, state.successes) == (2, 2)


def test_trouble_that_passes_goes_on_in_the_same_session() -> None:
    state = after(started(1), failed(1, "overloaded", session_id="s1", retry_at=2_000_000.0))
    assert state.retry is not None
    assert (state.retry.number, state.retry.retry, state.retry.session_id) == (1, 1, "s1")
    assert state.failures_in_a_row == 0


def test_counted_faults_add_up_and_a_success_forgives() -> None:
    state = after(started(1), failed(1, "crash"), started(2), failed(2, "no_result"))
    assert state.failures_in_a_row == 2
    assert after(started(1), failed(1, "crash"), started(2), completed(2)).failures_in_a_row == 0


def test_the_streak_needs_claims_in_a_row() -> None:
    claims = [started(1), completed(1, claim=done_claim()), started(2), completed(2)]
    assert after(*claims[:2]).streak == 1
    assert after(*claims).streak == 0


def test_a_failed_iteration_leaves_the_streak_alone() -> None:
    assert after(started(1), completed(1, claim=done_claim()), started(2), failed(2, "crash")).streak == 1


def test_failed_checks_reset_the_streak_and_are_told() -> None:
    state = after(
        started(1),
        completed(1, claim=done_claim()),
        ev.IterationValidation(iteration_num=1, passed=False, feedback="2 failed"),
        checks=("t",),
    )
    assert (state.streak, state.feedback, state.claim_due, state.verified) == (0, "2 failed", False, False)


def test_time_counts_only_while_a_driver_lives() -> None:
    driver = ev.ContinuousResumed(pid=2, host="h", version="0", lease=2)
    log = [
        Record(seq=1, at=0.0, event=opening()[0]),
        Record(seq=2, at=0.0, event=driver),
        Record(seq=3, at=10.0, event=started(1)),
        # killed here; a human speaks into the void; a new driver comes an hour later
        Record(seq=4, at=1800.0, event=ev.MessageReceived(by="u", content="hello?")),
        Record(seq=5, at=3600.0, event=driver),
        Record(seq=6, at=3605.0, event=failed(1, "driver_died")),
    ]
    assert fold(log).elapsed(3606.0) == pytest.approx(16.0)


def test_a_clock_set_back_never_takes_time_away() -> None:
    log = [
        Record(seq=n, at=at, event=e)
        for n, (at, e) in enumerate(zip((9.0, 9.0, 5.0, 1.0), [*opening(), started(1), completed(1)], strict=True), 1)
    ]
    assert fold(log).active_seconds == 0.0


def test_messages_wait_until_a_prompt_carried_them() -> None:
    first, second = ev.MessageReceived(by="u", content="one"), ev.MessageReceived(by="u", content="two")
    assert [m.content for m in after(first, second).messages] == ["one", "two"]
    carried = after(first, started(1, messages_shown=1), second)
    assert [m.content for m in carried.messages] == ["two"]


def test_limits_can_be_raised_and_nothing_else_slips_in() -> None:
    changed = after(ev.LimitsChanged(by="u", changes={"max_runs": 99, "completion_signal": 3, "no_such": 1}))
    assert changed.policy == replace(Policy(max_runs=10), max_runs=99)


def test_reset_clears_what_it_says() -> None:
    tired = after(started(1), failed(1, "crash"), ev.ResetRequested(by="u", history=True))
    assert tired.failures_in_a_row == 0


def test_old_records_are_not_folded_twice() -> None:
    log = records([*opening(), started(1), completed(1)])
    once = fold(log)
    assert fold(log, once) == once


def test_a_ticked_task_file_is_a_claim_before_the_first_iteration() -> None:
    ticked = ev.TasksRead(iteration_num=0, open_blocking=0, open_optional=0, ticked=3, all_done=True)
    assert after(ticked).streak_form == "tasks"


# --- properties ------------------------------------------------------------------------------------------------

ANY_CONTROL = st.one_of([values_of(cls) for cls in CONTROL])
TIMES = st.floats(min_value=0, max_value=4e9, allow_nan=False)


@st.composite
def any_log(draw: st.DrawFn) -> list[Record]:
    """Control events in any order, at any time, with anything in them."""
    events = draw(st.lists(ANY_CONTROL, max_size=12))
    begin: list[Any] = draw(st.sampled_from([[], opening(), opening(Policy(unbounded=True), checks=("c",))]))
    return [Record(seq=n, at=draw(TIMES), event=event) for n, event in enumerate([*begin, *events], 1)]


@settings(max_examples=100, deadline=None)
@given(any_log(), TIMES)
def test_fold_and_decide_have_an_answer_to_anything(log: list[Record], now: float) -> None:
    state = fold(log)
    assert decide(state, now) is not None
    interruption(state, now)
    next_look(state, now)


@settings(max_examples=30, deadline=None)
@given(any_log(), st.integers(0, 12))
def test_folding_in_two_parts_is_folding_at_once(log: list[Record], cut: int) -> None:
    assert fold(log[cut:], fold(log[:cut])) == fold(log)


@settings(max_examples=30, deadline=None)
@given(any_log())
def test_a_snapshot_is_the_state(log: list[Record]) -> None:
    state = fold(log)
    assume(math.isfinite(state.spent_usd))  # beyond all floats a snapshot is refused, and the events are folded anew
    assert codec.decode_value(codec.encode_value(state), LoopState) == codec.decode_value(
        codec.encode_value(codec.decode_value(codec.encode_value(state), LoopState)), LoopState
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["ok", "claim", "rate_limit", "crash", "cut", "kill", "stop", "message"]), max_size=30))
def test_no_cost_is_lost_or_doubled_whatever_is_cut_off(story: list[str]) -> None:
    """A simulated life: what was served is exactly what is booked."""
    events: list[Any] = []
    served, number = 0.0, 0
    for n, step in enumerate(story):
        if step in {"stop", "message"}:
            events.append(ev.StopRequested(by="u") if step == "stop" else ev.MessageReceived(by="u", content="x"))
            continue
        number += 1
        events += [started(number), _begun(f"m{n}"), _reply(f"m{n}", 0.25)]
        served += 0.25
        if step == "kill":
            continue  # nobody closed it
        if step in {"ok", "claim"}:
            claim = {"claim": done_claim()} if step == "claim" else {}
            events.append(completed(number, cost_usd=0.25, evidence=Evidence(changed=True), **claim))
        else:
            events.append(failed(number, "driver_died" if step == "cut" else step, cost_usd=0.25))
    state = after(*events)
    assert state.spent_usd == pytest.approx(served)
    assert state.attempts == number


def test_the_state_is_plain_values() -> None:
    """What cannot be encoded could not be snapshotted."""
    state = after(started(1), _begun(), ev.MessageReceived(by="u", content="x"))
    back = codec.decode_value(codec.encode_value(state), LoopState)
    for field in fields(LoopState):
        assert getattr(back, field.name) == getattr(state, field.name), field.name
    assert decide(back, now_of(state)) == decide(state, now_of(state))


def test_a_clock_that_jumps_moves_every_moment_that_a_duration_is_counted_from() -> None:
    hour = 3600.0
    events = [*opening(), started(1), failed(1, "overloaded", retry_at=START + 60), started(1, retry=1)]
    before = fold(records(events))
    jumped = [Record(seq=before.last_seq + 1, at=START + hour + 6, event=ev.ClockJumped(seconds=hour))]
    after_jump = fold(jumped, before)
    assert before.open is not None
    assert after_jump.open is not None
    assert after_jump.open.started_at - before.open.started_at == hour
    assert after_jump.active_seconds - before.active_seconds == pytest.approx(1.0)
    assert after_jump.elapsed(START + hour + 7) == pytest.approx(before.elapsed(START + 7))
    assert [moment - hour for moment in after_jump.calls] == list(before.calls)
    waiting = fold(records(events[:-1]))
    for cause, moves in (("overloaded", hour), ("usage_limit", 0.0)):
        assert waiting.wait is not None
        rests = replace(waiting, wait=replace(waiting.wait, cause=cause))
        moved = fold([replace(jumped[0], seq=rests.last_seq + 1)], rests).wait
        assert moved is not None
        assert moved.until - waiting.wait.until == moves
