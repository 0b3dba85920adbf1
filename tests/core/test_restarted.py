"""A start with an environment: what it says otherwise than the last time holds, and else what humans ordered."""

from dataclasses import replace

import pytest

from core.run_kit import START, completed, opening, spec, started
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.events import Event, Record
from untildone.core.fold import fold
from untildone.core.policy import Policy
from untildone.core.restarted import AGAIN, asked_by_start, in_order, kept_orders, said_last, undone_orders

FIRST = Policy(max_runs=30, max_cost_usd=10.0)
DRIVER = ev.ContinuousResumed(pid=2, host="h", version="0", lease=2)
LOWERED = ev.LimitsChanged(by="ann", changes={"max_cost_usd": 0.5})


def records(*events: Event) -> list[Record]:
    told = [*opening(FIRST), started(1), completed(1), *events]
    return [Record(seq=seq, at=START + seq, event=event) for seq, event in enumerate(told, 1)]


def start(told: list[Record], policy: Policy, **changes: object) -> list[Event]:
    return asked_by_start(fold(told), said_last(told), (spec(**changes), policy))


def test_the_same_environment_asks_for_nothing_whatever_was_ordered_since() -> None:
    assert start(records(LOWERED, ev.LimitsChanged(by="ann", changes={"max_runs": 99})), FIRST) == []
    waived = ev.SettingsChanged(by="cli", policy=FIRST, spec=replace(spec(), notes_file="N.md"))
    assert start(records(waived), FIRST) == []


def test_what_the_environment_says_anew_holds_and_nothing_else_of_it() -> None:
    (asked,) = start(records(LOWERED), replace(FIRST, max_runs=40))
    assert isinstance(asked, ev.SettingsChanged)
    assert (asked.by, asked.changes) == ("worker", ("max_runs = 40",))
    assert (asked.policy.max_runs, asked.policy.max_cost_usd) == (40, 0.5)


def test_parts_of_the_settings_are_compared_one_by_one() -> None:
    human = replace(spec(), contract=Contract(checks=commands("make"), guard="off"))
    told = records(ev.SettingsChanged(by="cli", policy=FIRST, spec=human))
    options = replace(spec().options, model="other")
    (asked,) = start(told, FIRST, options=options)
    assert isinstance(asked, ev.SettingsChanged)
    assert (asked.spec.options.model, asked.spec.contract) == ("other", human.contract)


def test_the_second_environment_is_what_the_third_start_is_compared_with() -> None:
    second = replace(FIRST, max_runs=40)
    told = records()
    told += [Record(seq=9, at=START + 9, event=start(told, second)[0])]
    told += [Record(seq=10, at=START + 10, event=ev.LimitsChanged(by="ann", changes={"max_runs": 2}))]
    assert start(told, second) == []
    (back,) = start(told, FIRST)
    assert isinstance(back, ev.SettingsChanged)
    assert back.policy.max_runs == 30


def test_a_log_without_its_beginning_keeps_what_holds() -> None:
    assert said_last(records()[1:]) is None
    assert asked_by_start(fold(records()), None, (spec(), Policy(max_runs=1))) == []


def test_a_pause_and_a_stop_that_nobody_obeyed_hold_the_next_driver_too() -> None:
    told = records(ev.PauseRequested(by="ann"), ev.StopRequested(by="bob", after_iteration=True))
    for _ in range(2):  # however often it is started
        kept = kept_orders(fold(told), told)
        assert kept == [ev.PauseRequested(by=f"ann{AGAIN}"), ev.StopRequested(by=f"bob{AGAIN}")]
        news = in_order([*kept, LOWERED], DRIVER)
        assert news == [LOWERED, DRIVER, *kept]
        told += [Record(seq=told[-1].seq + n, at=START + 50, event=event) for n, event in enumerate(news, 1)]
        state = fold(told)
        assert state.paused
        assert state.stop is not None


@pytest.mark.parametrize(
    "events",
    [
        (), (ev.PauseRequested(by="a"), ev.ResumeRequested(by="b")), (ev.StopRequested(by="signal", signal="SIGTERM"),),
        (ev.StopRequested(by="a"), ev.ContinuousSuspended(stop_reason="stop_requested")),
    ],
)  # fmt: skip
def test_what_is_over_or_was_no_order_is_not_kept(events: tuple[Event, ...]) -> None:
    told = records(*events)
    assert kept_orders(fold(told), told) == []


def test_what_a_person_types_again_says_what_it_undoes() -> None:
    told = records(LOWERED, ev.PauseRequested(by="ann"))
    assert undone_orders(fold(told), told, FIRST) == ["the pause by ann ends", "max_cost_usd was 0.5 and is 10"]
    assert undone_orders(fold(told[:5]), told[:5], replace(FIRST, max_cost_usd=0.5)) == []
