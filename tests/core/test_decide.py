"""The stop rules, one by one and against each other."""

from typing import Any

import pytest

from core.run_kit import START, after, asked, completed, done_claim, failed, now_of, started
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.decide import STOP_RULES, Iterate, Stop, Verify, Wait, decide, interruption, next_look
from untildone.core.faults import DISK_LOW, LIMIT_REACHED, QUOTA_KEPT, TURNS_EXHAUSTED, Fault
from untildone.core.limits import LIMITS, is_disk_low, warning_due
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import AgentOptions, Earlier, Policy
from untildone.core.state import LoopState
from untildone.core.stopping import ENDINGS, Reason
from untildone.core.trace import AgentQuota, AgentReply, AgentWoken, QuotaWindow

IDLE = Evidence(changed=False)
TRUSTING = Policy(max_runs=10, completion_match="published")


def reason_of(state: LoopState, now: float | None = None) -> Reason | None:
    decision = decide(state, now_of(state) if now is None else now)
    return decision.reason if isinstance(decision, Stop) else None


@pytest.mark.parametrize("wanted", [1, 2, 7])
def test_max_runs_is_exactly_that_many(wanted: int) -> None:
    events: list[ev.Event] = []
    for number in range(1, wanted + 1):
        state = after(*events, policy=Policy(max_runs=wanted))
        assert decide(state, now_of(state)) == Iterate(number)
        events += [started(number), completed(number)]
    assert reason_of(after(*events, policy=Policy(max_runs=wanted))) is Reason.MAX_RUNS


def test_completion_and_a_limit_in_the_same_iteration_is_completion() -> None:
    policy = Policy(max_runs=1, max_cost_usd=0.22, completion_threshold=1)
    state = after(started(1), completed(1, claim=done_claim()), *asked(1, cost_usd=0.12), policy=policy)
    assert reason_of(state) is Reason.COMPLETION_SIGNAL
    policy = Policy(max_runs=1, max_cost_usd=0.05, completion_threshold=1, completion_match="published")
    assert reason_of(after(started(1), completed(1, claim=done_claim()), policy=policy)) is Reason.COMPLETION_SIGNAL


def test_a_claim_with_checks_is_verified_first_even_after_a_limit() -> None:
    state = after(started(1), completed(1, claim=done_claim()), policy=Policy(max_runs=1), checks=("pytest",))
    assert decide(state, now_of(state)) == Verify(1)


def test_checks_that_pass_are_done_and_a_streak_without_them_is_not() -> None:
    claims = [started(1), completed(1, claim=done_claim()), started(2), completed(2, claim=done_claim())]
    refused = ev.IterationValidation(iteration_num=2, passed=False, feedback="no")
    assert isinstance(decide(after(*claims, refused, checks=("c",)), START + 9), Iterate)
    passed = ev.IterationValidation(iteration_num=2, passed=True)
    assert reason_of(after(*claims, passed, checks=("c",))) is Reason.VALIDATION_PASSED


@pytest.mark.parametrize(("form", "needed"), [("signal", 3), ("block", 2), ("report", 2)])
def test_weaker_claims_need_longer_streaks(form: str, needed: int) -> None:
    events: list[ev.Event] = []
    for number in range(1, needed + 1):
        assert reason_of(after(*events)) is None
        events += [started(number), completed(number, claim=done_claim(form))]
    assert reason_of(after(*events, policy=TRUSTING)) is Reason.COMPLETION_SIGNAL
    assert reason_of(after(*events)) is None
    assert reason_of(after(*events, *asked(needed))) is Reason.COMPLETION_SIGNAL


def test_a_human_comes_before_success() -> None:
    passed = ev.IterationValidation(iteration_num=1, passed=True)
    state = after(started(1), completed(1, claim=done_claim()), passed, ev.StopRequested(by="u"), checks=("c",))
    assert reason_of(state) is Reason.STOP_REQUESTED


def test_a_signal_is_told_apart_from_a_request() -> None:
    assert reason_of(after(ev.StopRequested(by="terminal", signal="SIGINT"))) is Reason.SHUTDOWN_SIGNAL


def test_stop_during_a_pending_claim_stops() -> None:
    state = after(started(1), completed(1, claim=done_claim()), ev.StopRequested(by="u"), checks=("c",))
    assert reason_of(state) is Reason.STOP_REQUESTED


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("authentication", Reason.AUTHENTICATION),
        ("billing", Reason.BILLING),
        ("model_not_found", Reason.MODEL_NOT_FOUND),
    ],
)
def test_what_only_a_human_can_mend_stops_at_once(fault: str, reason: Reason) -> None:
    assert reason_of(after(started(1), failed(1, fault))) is reason


LATER = START + 1000.0


@pytest.mark.parametrize("checks", [(), ("make",)])
def test_a_run_that_begins_later_does_nothing_until_then(checks: tuple[str, ...]) -> None:
    state = after(policy=Policy(max_runs=3, max_duration=60.0, start_at=LATER), checks=checks)
    assert decide(state, START + 2) == Wait(LATER, "start_at")
    assert not isinstance(decide(state, LATER), Wait)
    assert state.elapsed(LATER - 1) == 0.0, "the wait does not use up --max-duration"
    assert state.elapsed(LATER + 7) == 7.0


def test_while_it_waits_to_begin_humans_are_heard() -> None:
    policy = Policy(max_runs=3, max_duration=60.0, start_at=LATER)
    now = START + 5
    assert reason_of(after(ev.StopRequested(by="u"), policy=policy), now) is Reason.STOP_REQUESTED
    assert decide(after(ev.PauseRequested(by="u"), policy=policy), now) == Wait(None, "paused")
    skipped = after(ev.SkipWaitRequested(by="u"), policy=policy)
    assert decide(skipped, START + 4) == Iterate(1)
    assert skipped.elapsed(START + 4) == 1.0, "counted from the moment it was told to begin"
    over = after(ev.LimitsChanged(by="u", changes={"deadline": LATER - 1}), policy=policy)
    assert reason_of(over, now) is Reason.DEADLINE


def test_the_start_is_a_moment_of_the_true_clock() -> None:
    waiting = ev.ContinuousWaiting(cause="start_at", until=LATER)
    jumped = after(waiting, ev.ClockJumped(seconds=-500.0), policy=Policy(max_runs=3, start_at=LATER))
    assert decide(jumped, LATER - 1) == Wait(LATER, "start_at")
    assert decide(jumped, LATER) == Iterate(1)


def test_three_counted_faults_in_a_row_stop() -> None:
    events = [e for n in (1, 2, 3) for e in (started(n), failed(n, "crash"))]
    assert reason_of(after(*events[:4])) is None
    assert reason_of(after(*events)) is Reason.CONSECUTIVE_ERRORS


def test_an_outage_longer_than_its_budget_stops_and_a_reply_ends_it() -> None:
    policy = Policy(max_runs=9, outage_budget=100)
    out = [started(1), failed(1, "overloaded"), started(1, retry=1), failed(1, "overloaded")]
    assert reason_of(after(*out, policy=policy, every=49), START + 999) is None
    assert reason_of(after(*out, policy=policy, every=50), START + 999) is Reason.OUTAGE
    reply = AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(), cost_usd=0.0)
    assert reason_of(after(*out, started(1, retry=2), reply, policy=policy, every=50), START + 999) is None


def test_blocked_is_a_stop_of_its_own() -> None:
    claim = Claim(form="report", report=Report(status="BLOCKED", recommendation="need a key"))
    state = after(started(1), completed(1, claim=claim))
    assert decide(state, now_of(state)) == Stop(Reason.BLOCKED, "need a key")


def test_denied_again_and_again_lists_what_was_denied() -> None:
    denied = Evidence(denials=("Bash(rm -rf /)",))
    state = after(started(1), completed(1, evidence=denied), started(2), completed(2, evidence=denied))
    assert decide(state, now_of(state)) == Stop(Reason.PERMISSION_DENIED, "denied: Bash(rm -rf /)")


def test_three_idle_iterations_open_the_breaker() -> None:
    events = [e for n in (1, 2, 3) for e in (started(n), completed(n, evidence=IDLE))]
    assert reason_of(after(*events[:4])) is None
    assert reason_of(after(*events)) is Reason.CIRCUIT_OPEN


def test_an_open_breaker_can_wait_for_its_cooldown_instead() -> None:
    policy = Policy(max_runs=9, breaker_auto_reset=True, breaker_cooldown=60)
    events = [e for n in (1, 2, 3) for e in (started(n), completed(n, evidence=IDLE))]
    state = after(*events, policy=policy)
    wait = decide(state, now_of(state))
    assert isinstance(wait, Wait)
    assert wait.cause == "circuit_open"
    assert wait.until is not None
    assert isinstance(decide(state, wait.until + 1), Iterate)


def test_no_limit_survives_a_raise() -> None:
    state = after(started(1), completed(1), policy=Policy(max_runs=1))
    assert reason_of(state) is Reason.MAX_RUNS
    raised = after(
        started(1), completed(1), ev.LimitsChanged(by="u", changes={"max_runs": 2}), policy=Policy(max_runs=1)
    )
    assert decide(raised, now_of(raised)) == Iterate(2)


def test_a_pause_waits_for_a_human() -> None:
    assert decide(after(ev.PauseRequested(by="u")), START + 9) == Wait(None, "paused")
    assert isinstance(decide(after(ev.PauseRequested(by="u"), ev.ResumeRequested(by="u")), START + 9), Iterate)


def test_a_wait_that_would_pass_the_deadline_stops_now() -> None:
    policy = Policy(deadline=START + 100)
    state = after(started(1), failed(1, "usage_limit", retry_at=START + 500), policy=policy)
    assert reason_of(state) is Reason.DEADLINE
    state = after(started(1), failed(1, "usage_limit", retry_at=START + 500), policy=Policy(max_duration=100))
    assert reason_of(state) is Reason.MAX_DURATION


def test_the_call_window_waits_and_slides() -> None:
    policy = Policy(max_runs=9, max_calls_per_hour=2)
    events = [e for n in (1, 2) for e in (started(n), completed(n))]
    state = after(*events, policy=policy)
    wait = decide(state, now_of(state))
    assert wait == Wait(START + 3 + 3600, "calls_per_hour")
    assert isinstance(decide(state, START + 3 + 3601), Iterate)


def test_resume_mode_goes_on_in_the_last_session_until_it_expires() -> None:
    policy = Policy(max_runs=9, session="resume", session_expiry=100)
    state = after(started(1), completed(1, session_id="s1"), policy=policy)
    assert decide(state, now_of(state)) == Iterate(2, 0, "s1")
    assert decide(state, START + 500) == Iterate(2, 0, None)


def _open(policy: Policy, *more: ev.Event) -> LoopState:
    return after(started(1), *more, policy=policy)


@pytest.mark.parametrize(
    ("policy", "more", "fault"),
    [
        ({}, [ev.StopRequested(by="u")], "stopped"),
        ({}, [ev.StopRequested(by="u", after_iteration=True)], None),
        ({}, [ev.PauseRequested(by="u")], None),
        ({}, [ev.MessageReceived(by="u", content="now!", urgent=True)], "steered"),
        ({}, [ev.MessageReceived(by="u", content="later")], None),
        (
            {"max_cost_usd": 1.0},
            [AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(), cost_usd=1.6)],
            "limit_reached",
        ),
        (
            {"max_tokens": 5},
            [AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(9), cost_usd=0.0)],
            "limit_reached",
        ),
        ({"max_runs": 1}, [], None),
        ({"iteration_timeout": 0.5}, [], "timeout"),
        ({"deadline": START + 3}, [], "limit_reached"),
    ],
)
def test_what_interrupts_a_running_iteration(policy: dict[str, Any], more: list[ev.Event], fault: str | None) -> None:
    state = _open(Policy(**policy), *more)
    cut = interruption(state, now_of(state) + 1)
    assert (cut.name if cut else None) == fault


def test_the_clock_is_looked_at_in_time() -> None:
    state = _open(Policy(deadline=START + 50, iteration_timeout=20))
    assert next_look(state, START + 3) == pytest.approx(20.0)
    assert next_look(_open(Policy(max_runs=1)), START) is None


def test_every_reason_has_an_ending_and_a_rule() -> None:
    assert set(ENDINGS) == set(Reason)
    assert {rule.reason for rule in STOP_RULES} == set(Reason) - {
        Reason.INTERNAL_ERROR,
        Reason.SURROUNDINGS,
        Reason.LOOP_LOST,
    }


# --- surviving a night -------------------------------------------------------------------------------------------


def _limited(**more: Any) -> ev.IterationFailed:
    return failed(1, "usage_limit", retry_at=START + 500, session_id="s1", **more)


def test_a_usage_limit_waits_unless_told_not_to() -> None:
    assert decide(after(started(1), _limited()), START + 9) == Wait(START + 500, "usage_limit")
    assert reason_of(after(started(1), _limited(), policy=Policy(max_runs=9, wait=False))) is Reason.USAGE_LIMIT
    assert reason_of(after(started(1), _limited(), policy=Policy(max_runs=9, max_wait=60))) is Reason.USAGE_LIMIT
    assert reason_of(after(started(1), _limited(), policy=Policy(max_runs=9, max_wait=600))) is None


def test_a_clock_set_back_ends_a_pause_but_not_a_usage_limit() -> None:
    broken = after(started(1), failed(1, "overloaded", retry_at=START + 8, session_id="s1"))
    assert decide(broken, START + 5) == Wait(START + 8, "overloaded")
    assert decide(broken, START - 9000) == Iterate(1, 1, "s1")
    assert decide(after(started(1), _limited()), START - 9000) == Wait(START + 500, "usage_limit")


def test_a_wait_can_be_skipped() -> None:
    state = after(started(1), _limited(), ev.SkipWaitRequested(by="u"))
    assert decide(state, now_of(state)) == Iterate(1, 1, "s1")


def test_a_fallback_takes_over_at_a_usage_limit_and_the_first_choice_comes_back() -> None:
    options = AgentOptions(fallback=("haiku",))
    state = after(started(1), _limited(), options=options)
    assert decide(state, now_of(state)) == Iterate(1, 1, "s1", instead="haiku")
    again = after(started(1), _limited(), started(1, retry=1), _limited(), options=options)
    assert isinstance(decide(again, START + 9), Wait)
    done = after(started(1), _limited(), started(1, retry=1), completed(1), options=options)
    assert decide(done, now_of(done)) == Iterate(2)


def test_in_an_outage_a_fallback_takes_over_after_two_tries() -> None:
    options = AgentOptions(fallback=("haiku",))
    out = [started(1), failed(1, "overloaded", session_id="s")]
    assert decide(after(*out, options=options), START + 999) == Iterate(1, 1, "s")
    twice = after(*out, started(1, retry=1), failed(1, "overloaded", session_id="s"), options=options)
    assert decide(twice, START + 999) == Iterate(1, 2, "s", instead="haiku")


def _quota(used: float) -> AgentQuota:
    return AgentQuota(
        iteration_num=1, windows=(QuotaWindow(name="five_hour", utilization=used, resets_at=START + 900),)
    )


def test_quota_is_kept_for_the_morning() -> None:
    policy = Policy(max_runs=9, keep_quota=0.3)
    assert interruption(after(started(1), _quota(0.69), policy=policy), START + 9) is None
    running = after(started(1), _quota(0.71), policy=policy)
    assert interruption(running, START + 9) is QUOTA_KEPT
    closed = after(started(1), _quota(0.71), failed(1, "quota_kept", session_id="s"), policy=policy)
    assert decide(closed, START + 9) == Wait(START + 900, "quota_kept")
    assert decide(closed, START + 901) == Iterate(1, 1, "s")


def test_a_low_disk_waits_until_there_is_room() -> None:
    low = ev.ResourcesSeen(disk_low=True, disk_free=1)
    assert decide(after(low), START + 9) == Wait(None, "disk_low")
    assert isinstance(decide(after(low, ev.ResourcesSeen(disk_low=False, disk_free=9)), START + 9), Iterate)


def test_a_nearly_full_disk_interrupts_and_the_same_session_goes_on() -> None:
    policy = Policy(max_runs=9, disk_reserve=1000)
    seen = ev.ResourcesSeen(disk_low=True, disk_free=250)
    assert interruption(after(started(1), seen, policy=policy), START + 9) is None
    full = ev.ResourcesSeen(disk_low=True, disk_free=249)
    assert interruption(after(started(1), full, policy=policy), START + 9) is DISK_LOW
    cut = [started(1), full, failed(1, "disk_low", session_id="s")]
    assert decide(after(*cut, policy=policy), START + 9) == Wait(None, "disk_low")
    room = ev.ResourcesSeen(disk_low=False, disk_free=100)
    again = after(*cut, room, policy=policy)
    assert (decide(again, START + 9), again.failures_in_a_row) == (Iterate(1, 1, "s"), 0)
    assert interruption(after(room, started(1), policy=policy), START + 9) is None


def test_there_is_no_stop_and_go_around_the_reserve() -> None:
    policy = Policy(disk_reserve=1000)
    fell = [is_disk_low(free, policy, was_low=False) for free in (1000, 999)]
    rose = [is_disk_low(free, policy, was_low=True) for free in (1000, 1099, 1100)]
    assert (fell, rose) == ([False, True], [True, True, False])
    assert not is_disk_low(0, Policy(disk_reserve=0), was_low=True)


def test_a_limit_that_is_reached_gives_no_warning() -> None:
    near = after(started(1), completed(1, cost_usd=0.94), policy=Policy(max_cost_usd=1.0))
    over = after(started(1), completed(1, cost_usd=0.96), policy=Policy(max_cost_usd=1.0))
    assert (warning_due(near, START) is None, warning_due(over, START)) == (False, None)


def _spent(usd: float) -> AgentReply:
    return AgentReply(iteration_num=1, message_id=f"m{usd}", model="m", usage=Usage(), cost_usd=usd)


def test_a_reserve_pays_for_the_hand_over_once() -> None:
    policy = Policy(max_cost_usd=1.0)
    near = [started(1), _spent(0.96)]
    assert interruption(after(*near, policy=policy), START + 9) is LIMIT_REACHED
    cut = [*near, failed(1, "limit_reached", cost_usd=0.96, session_id="s1")]
    assert decide(after(*cut, policy=policy), START + 9) == Iterate(1, 1, "s1", handoff=True)
    handing_over = [*cut, started(1, retry=1, handoff=True)]
    assert interruption(after(*handing_over, policy=policy), START + 9) is None
    done = after(*handing_over, completed(1, cost_usd=0.02), policy=policy)
    assert (reason_of(done), done.attempts, done.successes) == (Reason.MAX_COST, 1, 0)
    failing = after(*handing_over, failed(1, "limit_reached", cost_usd=0.1, session_id="s1"), policy=policy)
    assert reason_of(failing) is Reason.MAX_COST


def test_without_anything_left_there_is_no_hand_over() -> None:
    policy = Policy(max_cost_usd=1.0)
    state = after(started(1), failed(1, "limit_reached", cost_usd=1.6, session_id="s1"), policy=policy)
    assert reason_of(state) is Reason.MAX_COST


def test_a_warning_is_given_once_and_again_when_the_limit_is_raised() -> None:
    policy = Policy(max_cost_usd=1.0)
    most = [started(1), completed(1, cost_usd=0.85)]
    assert (warning_due(after(*most, policy=policy), START) or LIMITS[0]).field == "max_cost_usd"
    warned = ev.BudgetWarning(limit_type="max_cost_usd", limit_value=1.0, current_value=0.85)
    assert warning_due(after(*most, warned, policy=policy), START) is None
    raised = ev.LimitsChanged(by="u", changes={"max_cost_usd": 1.01})
    assert warning_due(after(*most, warned, raised, policy=policy), START) is not None


# --- what is not done ----------------------------------------------------------------------------------------------


def _boxes(open_blocking: int, ticked: int, **more: Any) -> ev.TasksRead:
    done = ticked > 0 and not open_blocking
    return ev.TasksRead(
        iteration_num=1, open_blocking=open_blocking, open_optional=0, ticked=ticked, all_done=done, **more
    )


def test_where_there_are_boxes_words_are_no_claim() -> None:
    claims = [started(1), _boxes(2, 1), completed(1, claim=done_claim()), started(2), _boxes(2, 1)]
    state = after(*claims, completed(2, claim=done_claim()), task_file="T.md")
    assert isinstance(decide(state, now_of(state)), Iterate)
    ticked = after(started(1), _boxes(0, 3), completed(1), *asked(1), task_file="T.md")
    assert reason_of(ticked) is Reason.COMPLETION_SIGNAL


@pytest.mark.parametrize("cheat", [_boxes(0, 0, missing=True), _boxes(0, 0)], ids=["file gone", "boxes gone"])
def test_taking_the_boxes_away_is_no_claim(cheat: ev.TasksRead) -> None:
    twice = [started(1), cheat, completed(1, claim=done_claim()), started(2), cheat, completed(2, claim=done_claim())]
    assert reason_of(after(_boxes(2, 1), *twice, task_file="T.md")) is None


def test_what_cannot_be_committed_is_not_done() -> None:
    claims = [started(1), completed(1, claim=done_claim()), started(2), completed(2, claim=done_claim()), *asked(2)]
    trouble = ev.LandingFailed(iteration_num=2, reason="hook says no")
    assert reason_of(after(*claims, trouble)) is None
    mended = ev.LandingCommitted(iteration_num=2, commit="c")
    assert reason_of(after(*claims, trouble, mended)) is Reason.COMPLETION_SIGNAL


HELD = {cause: ev.LandingHeld(cause=cause, said=f"{cause}: do this") for cause in ("git_locked", "branch_switched")}


@pytest.mark.parametrize("cause", HELD)
def test_nothing_is_bought_or_checked_while_nothing_can_be_committed(cause: str) -> None:
    claims = [started(1), completed(1, claim=done_claim())]
    trouble = [HELD[cause], ev.LandingFailed(iteration_num=1, reason="as above")]
    state = after(*claims, *trouble, checks=("c",), policy=Policy(max_runs=1, max_duration=10_000.0))
    now = now_of(state)
    decision = decide(state, now)
    assert isinstance(decision, Wait)
    assert decision.cause == cause
    assert state.unsettled is not None, "it is committed as soon as that is possible"
    late = decide(state, now + 400)
    if cause == "git_locked":
        assert late == Stop(Reason.SURROUNDINGS, "git_locked: do this")
    else:
        assert isinstance(late, Wait)
    assert decide(state, now + 20_000) == Stop(
        Reason.SURROUNDINGS if cause == "git_locked" else Reason.MAX_DURATION, HELD[cause].said
    )
    assert reason_of(after(*claims, *trouble, ev.StopRequested(by="cli"))) is Reason.STOP_REQUESTED
    free = after(*claims, *trouble, ev.LandingHeld(), ev.LandingCommitted(iteration_num=1, commit="c"), checks=("c",))
    assert isinstance(decide(free, now_of(free)), Verify)


def test_only_the_first_iteration_goes_on_in_an_earlier_conversation() -> None:
    earlier = Earlier(session="there")
    state = after(earlier=earlier)
    assert decide(state, now_of(state)) == Iterate(1, 0, "there")
    state = after(started(1), completed(1, session_id="s1"), earlier=earlier)
    assert decide(state, now_of(state)) == Iterate(2, 0, None)
    state = after(started(1), failed(1, "overloaded", session_id="new", retry_at=0.0), earlier=earlier)
    assert decide(state, now_of(state)) == Iterate(1, 1, "new")


@pytest.mark.parametrize(
    ("starting", "waiting", "replies", "usd", "cut"),
    [
        (9, 0, 0, 0.0, None),
        (10, 0, 0, 0.0, TURNS_EXHAUSTED),
        (9, 90, 0, 0.0, None),  # the results of many tasks that were started together
        (0, 0, 300, 0.0, None),
        (0, 0, 301, 0.0, TURNS_EXHAUSTED),
        (0, 0, 39, 1.0, None),
        (0, 0, 40, 1.0, TURNS_EXHAUSTED),
    ],
)
def test_an_iteration_without_an_end_of_its_own_is_ended(
    starting: int, waiting: int, replies: int, usd: float, cut: Fault | None
) -> None:
    events: list[ev.Event] = [started(1)]
    events += [AgentWoken(iteration_num=1, tasks_started=1)] * starting + [AgentWoken(iteration_num=1)] * waiting
    events += [
        AgentReply(iteration_num=1, message_id=f"m{n}", model="m", usage=Usage(), cost_usd=usd) for n in range(replies)
    ]
    state = after(*events)
    assert interruption(state, now_of(state)) is cut
    assert interruption(after(*events, completed(1), started(2)), now_of(state)) is None
    free = after(
        *events, policy=Policy(max_wakeups=None, max_iteration_cost_usd=None), options=AgentOptions(max_turns=None)
    )
    assert interruption(free, now_of(state)) is None
