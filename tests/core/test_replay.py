import pytest

from core.run_kit import completed, done_claim, failed, opening, records, started
from untildone.core import events as ev
from untildone.core.beginning import beginning
from untildone.core.claims import Claim
from untildone.core.outcome import Usage
from untildone.core.policy import Policy, RunSpec
from untildone.core.replay import parse_changes, what_if
from untildone.core.trace import AgentReply
from untildone.errors import UsageError

SPEC = RunSpec(goal="g", cwd="/w", name="n")


def night(iterations: int, policy: Policy | None = None) -> list[ev.Record]:
    """A run of equal iterations, a minute and a dollar each, in two replies."""
    happened: list[ev.Event] = [
        beginning("r", SPEC, policy or Policy(max_runs=iterations, stagnation_threshold=99)),
        ev.ContinuousResumed(pid=1, host="h", version="0", lease=1),
    ]
    for number in range(1, iterations + 1):
        happened.append(ev.IterationStarted(iteration_num=number))
        happened += [
            AgentReply(iteration_num=number, message_id=f"{number}.{part}", model="m", usage=Usage(), cost_usd=0.5)
            for part in (1, 2)
        ]
        happened.append(ev.IterationCompleted(iteration_num=number, cost_usd=1.0, duration_seconds=60.0))
    happened.append(ev.ContinuousSuspended(stop_reason="max_runs_reached"))
    return [ev.Record(seq=seq, at=20.0 * seq, event=event) for seq, event in enumerate(happened, 1)]


def test_a_lower_limit_would_have_stopped_earlier() -> None:
    found = what_if(night(4), {"max_runs": 2})
    assert (found.reason, found.then.attempts, found.really.attempts) == ("max_runs_reached", 2, 4)
    assert (found.then.spent_usd, found.really.spent_usd) == (2.0, 4.0)
    assert "stopped in iteration 2" in found.text
    assert "$2.00" in found.text


def test_a_budget_would_have_cut_in_mid_iteration() -> None:
    found = what_if(night(4), {"max_cost_usd": 1.5})
    assert (found.reason, found.then.attempts, found.then.spent_usd) == ("max_cost_reached", 2, 1.5)


def test_a_breaker_threshold_would_have_tripped() -> None:
    lenient = Policy(max_runs=6, stagnation_threshold=99)
    found = what_if(night(6, lenient), {"stagnation_threshold": 2})
    assert (found.reason, found.then.attempts) == ("circuit_open", 2)
    assert what_if(night(6, lenient), {"stagnation_threshold": 50}).reason == "max_runs_reached"


def test_the_same_policy_stops_where_the_run_did() -> None:
    found = what_if(night(3), {"max_runs": 3})
    assert (found.reason, found.then.attempts) == ("max_runs_reached", 3)


def test_a_higher_limit_goes_beyond_what_is_recorded() -> None:
    found = what_if(night(2), {"max_runs": 9})
    assert found.reason is None
    assert "gone on beyond" in found.text


def test_changes_are_read_like_settings() -> None:
    assert parse_changes(["max-runs=3", "max_duration=1h", "max_cost_usd=0"]) == {
        "max_runs": 3, "max_duration": 3600.0, "max_cost_usd": None,
    }  # fmt: skip


@pytest.mark.parametrize("wrong", ["max_runs", "goal=x", "deadline=07:30", "=3"])
def test_only_limits_and_thresholds_can_be_tried(wrong: str) -> None:
    with pytest.raises(UsageError, match="give NAME=VALUE with one of max_runs"):
        parse_changes([wrong])


def test_a_claim_that_would_have_been_asked_about_is_taken_at_its_word() -> None:
    told = [*opening(), started(1), completed(1, claim=done_claim()), started(2), completed(2)]
    assert what_if(records(told), {"completion_threshold": 1}).reason == "completion_signal"
    assert what_if(records(told), {"completion_threshold": 2}).reason is None


def told(*events: ev.Event, policy: Policy | None = None) -> list[ev.Record]:
    return records([*opening(policy), *events])


RESUMED = ev.ContinuousResumed(pid=2, host="h", version="0", lease=2)
WORKED = (started(1), completed(1), started(2), completed(2))
STOPPED = (
    started(1),
    ev.StopRequested(by="cli"),
    failed(1, "stopped"),
    ev.ContinuousSuspended(stop_reason="stop_requested"),
)
AT_TWO = Policy(max_runs=2)
LOST = ev.ContinuousSuspended(stop_reason="surroundings_failed")
RAISED = ev.LimitsChanged(by="cli", changes={"max_runs": 3})
REACHED = ev.ContinuousSuspended(stop_reason="max_runs_reached")


@pytest.mark.parametrize(
    ("happened", "reason", "is_same"),
    [
        ((*WORKED, REACHED), "max_runs_reached", True),
        # A human stopped it and let it go on: that is a fact, whatever the limits are.
        ((*STOPPED, RESUMED, *WORKED, REACHED), "max_runs_reached", True),
        ((*STOPPED, RESUMED, *STOPPED, RESUMED, *WORKED, REACHED), "max_runs_reached", True),
        ((*STOPPED, RESUMED, *STOPPED), "stop_requested", True),
        # The driver died before it could obey.
        ((started(1), completed(1), ev.StopRequested(by="cli"), RESUMED, started(2), completed(2), REACHED),
         "max_runs_reached", True),
        # Stopped by something that no limit decides.
        ((started(1), completed(1), LOST), "surroundings_failed", True),
        ((started(1), completed(1), LOST, RESUMED, started(2), completed(2), REACHED), "max_runs_reached", True),
        # The human raised the limit: with the old one it would have stopped there again.
        ((*WORKED, REACHED, RAISED, RESUMED, started(3), completed(3), REACHED), "max_runs_reached", False),
    ],
)  # fmt: skip
def test_a_run_that_was_stopped_and_resumed_is_told_as_it_was(
    happened: tuple[ev.Event, ...], reason: str, is_same: bool
) -> None:
    found = what_if(told(*happened, policy=AT_TWO), {"max_runs": 2})
    assert (found.reason, found.same) == (reason, is_same)
    assert ("the run would have been the same" in found.text) is is_same


def test_an_answer_that_is_recorded_is_not_assumed() -> None:
    """The agent claimed to be done, was asked what is left, and named something: the run went on."""
    answer = completed(1, claim=Claim(), output_preview="the tests are missing")
    happened = (
        started(1),
        completed(1, claim=done_claim("signal")),
        started(1, question=True),
        answer,
        started(2),
        completed(2),
        REACHED,
    )
    found = what_if(told(*happened, policy=AT_TWO), {"max_runs": 2})
    assert (found.reason, found.then.attempts, found.same) == ("max_runs_reached", 2, True)


def test_no_limit_is_told_as_none() -> None:
    assert what_if(told(*WORKED, policy=AT_TWO), {"max_runs": None}).text.startswith("With max_runs = none the run")
