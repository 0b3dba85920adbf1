"""How long a usage limit is waited for."""

from core.run_kit import START, failed, opening, records, started
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.decide import Stop, Wait, decide
from untildone.core.fold import fold
from untildone.core.outcome import Usage
from untildone.core.policy import Policy
from untildone.core.state import LoopState
from untildone.core.stopping import Reason


def _probing(days: float, *, pause: float = 3000.0, policy: Policy | None = None) -> LoopState:
    """A usage limit met, tried again after so many days, and met again."""
    met = [*opening(policy), started(1), failed(1, "usage_limit", retry_at=START + 60, session_id="s1")]
    again = START + days * 86_400
    later = [
        ev.Record(seq=5, at=again - 1, event=started(1, retry=1)),
        ev.Record(seq=6, at=again, event=failed(1, "usage_limit", retry_at=again + pause, session_id="s1")),
    ]
    return fold([*records(met), *later])


def test_a_usage_limit_nobody_names_the_end_of_is_not_tried_for_ever() -> None:
    week, longer = _probing(7), _probing(8)
    assert isinstance(decide(week, week.last_at), Wait)
    stop = decide(longer, longer.last_at)
    assert stop == Stop(Reason.USAGE_LIMIT, "no reset was named, and 8d of trying again found no end")


def test_a_reset_that_was_named_is_waited_for_however_far_it_is() -> None:
    state = _probing(8, pause=5 * 86_400)
    assert isinstance(decide(state, state.last_at), Wait)


def test_all_tries_at_one_usage_limit_count_against_the_longest_wait() -> None:
    agreed = Policy(max_runs=9, max_wait=7200)
    hour, longer = _probing(1 / 24, policy=agreed), _probing(2 / 24, policy=agreed)
    assert isinstance(decide(hour, hour.last_at), Wait)
    stop = decide(longer, longer.last_at)
    assert stop == Stop(Reason.USAGE_LIMIT, "the wait would last longer than 2h (--max-wait)")


def test_a_reply_or_a_new_driver_begins_the_wait_anew() -> None:
    met = _probing(7)
    assert met.limited_since is not None
    at = met.last_at + 60
    usage = tr.AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(), cost_usd=0.1)
    served = fold([ev.Record(seq=7, at=at, event=started(1, retry=2)), ev.Record(seq=8, at=at, event=usage)], met)
    assert served.limited_since is None
    resumed = ev.ContinuousResumed(pid=2, host="h", version="0", lease=2)
    assert fold([ev.Record(seq=7, at=at, event=resumed)], met).limited_since is None
