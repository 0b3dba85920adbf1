"""A run as people and programs see it."""

import json
import re
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.event_kit import values_of
from core.night_kit import POLICY, night, reported, validation
from core.run_kit import START, after, completed, done_claim, failed, now_of, opening, records, started
from untildone.cli.tables import status_text
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.advice import advice
from untildone.core.fold import HANDLERS, fold
from untildone.core.limits import is_reached, limit_of
from untildone.core.lines import event_line
from untildone.core.oneliners import check_template, closing_lines, monitor_line, result_line
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import SESSION, AgentOptions, Policy
from untildone.core.settings import SETTINGS
from untildone.core.state import LoopState
from untildone.core.stopping import DONE, Reason, exit_code, meaning
from untildone.core.views import RunView, result_json, run_view, status_json
from untildone.errors import UsageError

EAST = timezone(timedelta(hours=2))
KEYS = [
    "run_id", "name", "exit_reason", "success", "verified", "loops_completed", "attempts", "total_cost_usd",
    "elapsed_seconds", "total_tasks_completed", "total_files_modified", "final_status", "rate_limit_hit", "error",
]  # fmt: skip


def stopped(reason: str, *, detail: str = "", policy: Policy | None = None) -> RunView:
    state = after(started(1), completed(1), ev.ContinuousSuspended(stop_reason=reason, detail=detail), policy=policy)
    return run_view(state, now_of(state))


def seen(*events: ev.Event, policy: Policy | None = None, late: float = 0.0) -> RunView:
    state = after(*events, policy=policy)
    return run_view(state, now_of(state) + late, alive=True, zone=EAST)


def test_a_loop_that_no_session_has_is_not_at_work() -> None:
    state = after()
    waits = replace(state, spec=replace(state.spec, options=replace(state.spec.options, agent=SESSION)))
    view = run_view(waits, START, alive=True)
    assert (view.status, view.phase) == ("waiting", "waits for a session")
    begun = replace(waits, attempts=1)
    assert run_view(begun, START, alive=True).status == "running"


# --- the phase in a person's words ---------------------------------------------------------------------------


def test_a_run_that_never_began() -> None:
    view = run_view(LoopState(), START)
    assert (view.status, view.phase, view.exit_reason, view.advice) == ("new", "not started", None, "")


def test_a_wait_says_what_for_and_until_when_in_local_time() -> None:
    until = 1_760_000_000.0  # 2025-10-09 08:53 UTC
    view = seen(started(1), failed(1, "rate_limit", retry_at=until))
    assert (view.status, view.waiting_until) == ("waiting", until)
    assert view.phase == "waiting for the rate limit until 2025-10-09 10:53"
    assert view.doing == "waiting for the rate limit"
    state = after(started(1), failed(1, "usage_limit", retry_at=until))
    assert run_view(state, until - 60, alive=True, zone=EAST).phase == "waiting for the usage limit until 10:53"


@pytest.mark.parametrize(
    ("events", "status", "phase"),
    [
        ([started(1)], "running", "running"),
        ([started(1), ev.PauseRequested(by="me")], "running", "pausing"),
        ([ev.PauseRequested(by="me")], "paused", "paused"),
        ([ev.ResourcesSeen(disk_low=True, disk_free=9)], "waiting", "waiting for free disk space"),
        ([started(1), ev.StopRequested(by="me")], "running", "stopping"),
        ([started(1), ev.StopRequested(by="me", after_iteration=True)], "running", "stopping after this iteration"),
        ([ev.ContinuousSuspended(stop_reason="billing")], "suspended",
         "suspended: the account has no credit or is on hold"),
    ],
)  # fmt: skip
def test_the_phase_says_what_is_going_on(events: list[ev.Event], status: str, phase: str) -> None:
    view = seen(*events)
    assert (view.status, view.phase) == (status, phase)


def test_a_run_without_its_driver_is_interrupted_and_its_clock_stands() -> None:
    state = after(started(1), policy=POLICY)
    gone = run_view(state, now_of(state) + 5000, alive=False)
    assert gone.status == "interrupted"
    assert gone.elapsed_seconds == state.active_seconds
    assert "untildone resume it" in gone.advice
    time = next(gauge for gauge in gone.gauges if gauge.field == "max_duration")
    assert time.used == state.active_seconds
    alive = run_view(state, now_of(state) + 5000, alive=True)
    assert alive.elapsed_seconds == state.active_seconds + 5000


def test_checks_under_way_and_their_verdict() -> None:
    claim = [started(1), completed(1, claim=reported("all", done=True))]
    state = after(*claim, checks=("pytest",))
    view = run_view(state, now_of(state), alive=True)
    assert (view.phase, view.verdict, view.streak_needed) == ("running the checks", "not run", 1)
    refused = after(*claim, validation(1, passed=False), checks=("pytest",))
    assert run_view(refused, now_of(refused)).verdict == "failed"
    assert seen(*claim).verdict == "no checks"


# --- limits and money ----------------------------------------------------------------------------------------


def test_a_gauge_for_each_limit_that_is_set() -> None:
    policy = Policy(max_runs=4, max_cost_usd=5.0, max_tokens=2000, max_duration=7200.0, deadline=START + 1000)
    reply = tr.AgentReply(iteration_num=2, message_id="m", model="m", usage=Usage(900, 100), cost_usd=0.32)
    view = seen(started(1), completed(1), started(2), reply, policy=policy, late=494.0)
    assert {gauge.field: gauge.share for gauge in view.gauges} == {
        "max_runs": 0.25,
        "max_cost_usd": pytest.approx(0.084),
        "max_tokens": 0.5,
        "max_duration": pytest.approx(498 / 7200),
        "deadline": pytest.approx(0.4995, abs=0.001),
    }
    texts = {gauge.label: gauge.text for gauge in view.gauges}
    assert texts["budget"] == "$0.42 of $5.00"
    assert texts["time"] == "8m18s of 2h"
    assert texts["deadline"].endswith("(in 8m20s)")


def test_a_gauge_never_overflows() -> None:
    view = seen(started(1), completed(1, cost_usd=9.0), policy=Policy(max_cost_usd=5.0, deadline=START - 10))
    assert [gauge.share for gauge in view.gauges] == [1.0, 1.0]


def test_estimates_stand_apart_and_unknown_is_never_zero() -> None:
    assert seen(started(1), completed(1, cost_usd=0.42)).cost == "$0.42"
    assert seen(started(1), completed(1, cost_usd=0.42, estimated_usd=0.03)).cost == "$0.42 + about $0.03 (estimate)"
    unknown = seen(started(1), completed(1, cost_usd=None))
    assert unknown.cost == "unknown"
    assert result_json(unknown)["total_cost_usd"] is None
    partly = seen(started(1), completed(1, cost_usd=0.42), started(2), completed(2, cost_usd=None))
    assert partly.cost == "$0.42 + an unknown part"


def test_a_failed_attempt_makes_room_for_another() -> None:
    policy = Policy(max_runs=3)
    assert seen(started(1), policy=policy).iterations_at_most == 3
    assert seen(started(1), failed(1, "crash"), started(2), policy=policy).iterations_at_most == 4
    waiting = seen(started(1), failed(1, "rate_limit", retry_at=START + 900), policy=policy)
    assert (waiting.iterations_at_most, waiting.failed) == (3, 0)
    assert seen(started(1), policy=Policy(max_runs=3, max_iterations=2)).iterations_at_most == 2
    assert seen(started(1), policy=Policy(unbounded=True)).iterations_at_most is None


# --- the end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", list(Reason))
def test_every_stop_reason_has_an_exit_code_and_a_helpful_line(reason: Reason) -> None:
    view = stopped(reason, policy=Policy(max_runs=4, max_cost_usd=5.0, max_duration=3600.0))
    assert view.exit_code == exit_code(reason)
    assert view.success == (view.exit_code == 0)
    assert "`" in view.advice
    assert "{" not in view.advice


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ("ANTHROPIC_API_KEY", "Put a valid key into ANTHROPIC_API_KEY, or unset it"),
        ("apiKeyHelper", "Mend the `apiKeyHelper`"),
        ("none", "Log in with `untildone login`"),
        (None, "Log in with `untildone login`"),
    ],
)
def test_a_refused_login_names_what_was_refused(lane: str | None, said: str) -> None:
    assert advice(Reason.AUTHENTICATION, LoopState(lane=lane)).startswith(said)


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        (Reason.AUTHENTICATION, "Log in with `untildone login`, or set ANTHROPIC_API_KEY, then `untildone resume it`."),
        (Reason.MAX_COST, "Resume with a higher limit: `untildone resume it --max-cost 10`."),
        (Reason.MAX_RUNS, "Resume with a higher limit: `untildone resume it --max-runs 8`."),
        (Reason.MAX_DURATION, "Resume with a higher limit: `untildone resume it --max-duration 2h`."),
        (Reason.DEADLINE, "Resume with a higher limit: `untildone resume it --deadline HH:MM`."),
    ],
)
def test_the_advice_can_be_typed(reason: Reason, command: str) -> None:
    assert stopped(reason, policy=Policy(max_runs=4, max_cost_usd=5.0, max_duration=3600.0)).advice == command


@pytest.mark.parametrize(
    ("limit", "spent", "said"), [(1e-7, 0.0, "0.01"), (1e-7, 0.123, "0.25"), (0.015, 0.015, "0.03"), (2.5, 2.6, "5.20")]
)
def test_more_money_is_advised_in_amounts_people_know_and_that_suffice(limit: float, spent: float, said: str) -> None:
    end = ev.ContinuousSuspended(stop_reason="max_cost_reached")
    state = after(started(1), completed(1, cost_usd=spent), end, policy=Policy(max_cost_usd=limit))
    assert (
        run_view(state, now_of(state)).advice == f"Resume with a higher limit: `untildone resume it --max-cost {said}`."
    )


def test_no_sensible_amount_is_no_amount() -> None:
    end = ev.ContinuousSuspended(stop_reason="max_cost_reached")
    state = after(started(1), completed(1, cost_usd=float("inf")), end, policy=Policy(max_cost_usd=1.0))
    assert run_view(state, now_of(state)).advice == "Resume with a higher limit: `untildone resume it --max-cost N`."


@pytest.mark.parametrize(
    ("reason", "low", "flag", "said"),
    [
        (Reason.MAX_RUNS, Policy(max_runs=1), "--max-runs", "18"),
        (Reason.MAX_ITERATIONS, Policy(max_iterations=2), "--max-iterations", "18"),
        (Reason.MAX_COST, Policy(max_cost_usd=0.01), "--max-cost", "1.80"),
        (Reason.MAX_TOKENS, Policy(max_tokens=10), "--max-tokens", "222222220200"),
        (Reason.MAX_DURATION, Policy(max_duration=1.0), "--max-duration", "38s"),
    ],
)
def test_after_a_limit_was_lowered_what_is_advised_lets_the_run_go_on(
    reason: Reason, low: Policy, flag: str, said: str
) -> None:
    tokens = Usage(input_tokens=12_345_678_900, output_tokens=0)
    done = [one for n in range(1, 10) for one in (started(n), completed(n, usage=tokens))]
    state = after(*done, ev.ContinuousSuspended(stop_reason=reason))
    state = replace(state, policy=low)
    assert f"`untildone resume it {flag} {said}`" in run_view(state, now_of(state)).advice
    limit = limit_of(reason)
    assert limit is not None
    setting = next(one for one in SETTINGS if one.name == limit.field)
    raised = replace(state, policy=replace(low, **{limit.field: setting.parse(said)}))
    assert is_reached(limit, state, state.last_at)
    assert not is_reached(limit, raised, state.last_at)


def test_a_stop_by_signal_is_told_once() -> None:
    assert stopped("shutdown_signal", detail="by signal").detail == ""
    assert stopped("blocked", detail="no network").detail == "no network"


def test_a_name_that_would_need_quoting_is_not_put_into_commands() -> None:
    state = after(ev.ContinuousSuspended(stop_reason="outage"), name="a `b`; rm")
    assert "untildone resume run1" in run_view(state, now_of(state)).advice


def test_a_reason_of_a_newer_version_is_still_an_answer() -> None:
    view = stopped("moon_phase")
    assert (view.exit_code, view.success) == (1, False)
    assert "untildone log it" in view.advice


def test_the_result_has_exactly_the_promised_keys() -> None:
    result = result_json(run_view(fold(night()), START + 1000))
    assert list(result) == KEYS
    assert {key: result[key] for key in KEYS if key != "elapsed_seconds"} == {
        "run_id": "run1", "name": "it", "exit_reason": "validation_passed", "success": True, "verified": True,
        "loops_completed": 3, "attempts": 3, "total_cost_usd": 3.86, "total_tasks_completed": 2,
        "total_files_modified": 6, "final_status": "COMPLETE", "rate_limit_hit": True, "error": None,
    }  # fmt: skip


def test_an_error_is_told_only_where_something_went_wrong() -> None:
    assert result_json(stopped("max_runs_reached"))["error"] is None
    assert result_json(stopped("stop_requested", detail="by me"))["error"] is None
    assert result_json(stopped("blocked", detail="no key"))["error"] == "no key"
    assert result_json(stopped("billing"))["error"] == "the account has no credit or is on hold"


def test_the_status_has_all_of_the_result_and_more() -> None:
    state = fold(night())
    view = run_view(state, START + 1000)
    status = status_json(view, state)
    assert {key: status[key] for key in KEYS} == result_json(view)
    assert status["exists"] is True
    assert status["estimated_usd"] == 0.02
    assert status["checks"] == {"commands": ["pytest -q"], "verdict": "passed", "commit": "c0ffee0012345678"}
    assert status["circuit"] == {
        "tripped": False, "state": "closed", "trip_reason": None, "tripped_at": None, "no_progress_count": 0,
    }  # fmt: skip
    assert status["session"]["initial_prompt"] == "fix the parser"
    assert set(status["limits"]) == {"max_runs", "max_cost_usd", "max_duration"}


# --- on one line ---------------------------------------------------------------------------------------------


def test_the_format_fills_in_plain_fields() -> None:
    view = stopped("max_runs_reached")
    assert result_line("{exit_reason} {attempts} {success} {error}|{{x}}\\n", view) == "max_runs_reached 1 false |{x}\n"


@pytest.mark.parametrize(
    "wrong", ["{nope}", "{run_id.__class__}", "{run_id[0]}", "{run_id!r}", "{}", "{run_id", "run_id}"]
)
def test_anything_but_a_plain_field_is_refused_naming_the_fields(wrong: str) -> None:
    with pytest.raises(UsageError, match="exit_reason, success"):
        result_line(wrong, stopped("outage"))


def test_a_format_is_checked_without_a_run() -> None:
    check_template(r"{name}\t{{}} {exit_reason} {total_cost_usd}\n")
    for wrong in ("{nope}", "{", "{name.x}", "}"):
        with pytest.raises(UsageError, match="--format"):
            check_template(wrong)


def test_the_monitor_line() -> None:
    claim = reported("all", done=True, tasks_completed=2, tests_status="PASSING")
    evidence = Evidence(changed=True, files_changed=5)
    view = seen(
        started(1), completed(1, cost_usd=0.42, claim=claim, evidence=evidence),
        policy=Policy(max_iterations=50, max_cost_usd=5.0),
    )  # fmt: skip
    assert monitor_line(replace(view, iteration=3)) == (
        "[Loop 3/50] COMPLETE | Tasks: 2 | Files: 5 | Tests: PASSING | Cost: $0.42/$5.00 | "
        "Circuit: closed 0/6 | Streak: 1/2"
    )


def test_the_last_words_name_the_figures_and_the_next_step() -> None:
    took, advice = closing_lines(run_view(fold(night()), START + 1000))
    for part in (
        "3 iterations",
        "$3.86 + about $0.02 (estimate)",
        "6 file changes",
        "2 commits (last c0ffee00)",
    ):
        assert part in took
    assert "untildone brief it" in advice
    assert closing_lines(run_view(fold(night()), START + 1000), advice=False) == [took]


def test_hostile_words_never_reach_a_line_raw() -> None:
    state = after(ev.ContinuousSuspended(stop_reason="blocked", detail="\x1b[2Jgone\nline"), goal="a\x1b]0;x\x07b\nc")
    view = run_view(state, now_of(state))
    assert (view.goal, view.detail) == ("ab c", "gone line")
    assert "\x1b" not in result_line("{error}", view) + monitor_line(view)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of([values_of(kind) for kind in HANDLERS]), max_size=6), st.booleans())
def test_any_history_can_be_looked_at(events: list[ev.Event], alive: bool) -> None:
    state = fold(records(events))
    view = run_view(state, now_of(state), alive=alive)
    json.dumps(status_json(view, state))
    assert "\n" not in monitor_line(view)


# --- who paid, what was lost, who meddled ------------------------------------------------------------------------


def test_the_status_for_programs_has_the_ledger_by_purse_and_by_fault() -> None:
    session = tr.AgentSession(iteration_num=1, session_id="s", lane="none")
    state = after(started(1), session, failed(1, "hang", cost_usd=0.3), started(2), completed(2, cost_usd=0.5))
    found = status_json(run_view(state, now_of(state)), state)
    assert (found["lane"], found["spend_by_lane"], found["lost_usd"]) == (
        "subscription", {"subscription": 0.8}, {"hang": 0.3},
    )  # fmt: skip
    assert (found["tampered"], found["refusals"]) == ([], 0)


def test_meddling_is_told_in_a_sentence_each() -> None:
    once = seen(ev.StoreTampered(detail="record 7 was forged"), ev.SteeringRefused(command="stop"))
    assert once.meddling == (
        "the record was changed from outside once and put right: record 7 was forged",
        "the agent tried to steer the run once and was refused",
    )
    often = seen(*[ev.StoreTampered(detail=f"\x1b[2J{n}") for n in range(30)],
                 *[ev.SteeringRefused(command="stop")] * 3)  # fmt: skip
    assert often.meddling == (
        "the record was changed from outside 10 or more times and put right: 29",
        "the agent tried to steer the run 3 times and was refused",
    )
    assert seen(started(1)).meddling == ()


def test_an_iteration_is_under_way_until_nothing_more_will_come_of_it() -> None:
    checked = after(started(1), completed(1, claim=done_claim()), policy=POLICY, checks=("true",))
    assert run_view(checked, now_of(checked), alive=True).under_way
    assert seen(started(1)).under_way
    assert seen(started(1), failed(1, "overloaded")).under_way
    assert not seen(started(1), completed(1)).under_way
    assert not seen(started(1), failed(1, "hang")).under_way


def test_waiting_is_no_work() -> None:
    limited = failed(1, "rate_limit", retry_at=START + 700)
    waits = ev.ContinuousWaiting(cause="rate_limit", until=START + 700)
    log = records([*opening(), started(1), limited, waits])
    asked = ev.Record(seq=6, at=START + 300, event=ev.MessageReceived(by="ada", content="hurry"))
    told = ev.Record(seq=7, at=START + 400, event=ev.ContinuousWarning(message="still nothing"))
    waiting = run_view(fold([*log, asked, told]), START + 605, alive=True)
    assert (waiting.elapsed_seconds, waiting.worked_seconds) == (603, 3)
    again = [
        ev.Record(seq=8, at=START + 705, event=started(1, retry=1)),
        ev.Record(seq=9, at=START + 715, event=completed(1)),
    ]
    done = run_view(fold([*log, asked, told, *again]), START + 715, alive=True)
    assert (done.elapsed_seconds, done.worked_seconds) == (713, 13)
    assert "13s of work" in " ".join(closing_lines(done))
    gone = run_view(fold([*log, asked]), START + 9000, alive=False)
    assert (gone.elapsed_seconds, gone.worked_seconds) == (3, 3)


def test_a_model_without_a_known_price_has_an_estimate_and_no_cost() -> None:
    unpriced = tr.AgentPriceUnknown(iteration_num=1, model="acme")
    view = seen(started(1), unpriced, completed(1, cost_usd=0.0, estimated_usd=1.2))
    assert (view.cost, view.unpriced) == ("about $1.20 (estimate)", ("acme",))
    assert result_json(view)["total_cost_usd"] is None
    assert result_json(seen(started(1), completed(1, cost_usd=0.0)))["total_cost_usd"] == 0.0


# --- every stop says what happened and what to do ------------------------------------------------------------------

IDIOM = re.compile(r"\b(nobody|somebody|whoever|anybody|of ours|is none|any more|mend|took .* up)\b", re.IGNORECASE)


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.parametrize("reason", list(Reason))
def test_every_stop_says_what_happened_and_what_to_do_next(reason: Reason, in_session: bool) -> None:
    """On the last screen, in `status` and in the log: a sentence of plain words, and a command to copy."""
    options = AgentOptions(agent=SESSION) if in_session else AgentOptions()
    end = (ev.ContinuousCompleted if reason in DONE else ev.ContinuousSuspended)(stop_reason=reason)
    state = after(started(1), completed(1), end, options=options)
    view = run_view(state, now_of(state), alive=False)
    assert len(meaning(reason).split()) >= 3, "a sentence"
    assert re.search(r"`(untildone [a-z]|/untildone:)[^`]+`", view.advice), "a command to copy"
    assert view.advice == closing_lines(view)[-1]
    assert view.advice in status_text(view)
    if not in_session:
        assert " it" in view.advice or "run1" in view.advice, "of this run"
    log_line = event_line(records([end])[0]) or ""
    for text in (meaning(reason), view.phase, view.advice, log_line, *closing_lines(view)):
        assert not IDIOM.search(text), text


@pytest.mark.parametrize(("fault", "said"), [("stopped", "1 iteration"), ("limit_reached", "1 iteration"),
                                             ("crash", "1 iteration (1 failed)")])  # fmt: skip
def test_an_iteration_that_a_human_or_a_limit_cut_off_is_no_failure(fault: str, said: str) -> None:
    state = after(started(1), failed(1, fault), ev.ContinuousSuspended(stop_reason="stop_requested"))
    view = run_view(state, now_of(state), alive=False)
    assert said in closing_lines(view)[1].split(" · ")
