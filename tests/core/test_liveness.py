"""What counts as a sign of life, and what silence is."""

from collections.abc import Iterable

import pytest

from untildone.core.liveness import Liveness, Pulse, is_hung, observe, sampling_period
from untildone.core.policy import Policy

TIMEOUT = 900.0
PERIOD = sampling_period(TIMEOUT)
POLICY = Policy(idle_timeout=TIMEOUT)


def watched(samples: Iterable[tuple[float, Pulse | None]], period: float = PERIOD) -> Liveness:
    liveness = Liveness(period=period, seen_at=0.0)
    for now, pulse in samples:
        liveness = observe(liveness, pulse, now)
    return liveness


def every(seconds: float, until: float, **per_second: float) -> list[tuple[float, Pulse]]:
    """Samples of a tree that does the same in every second."""
    found = []
    for step in range(int(until / seconds) + 1):
        now = step * seconds
        grown = {name: int(rate * now) if name != "cpu_seconds" else rate * now for name, rate in per_second.items()}
        found.append((now, Pulse(**{"cpu_seconds": 0.0, "io_bytes": 0, "processes": 1, **grown})))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("timeout", "period"), [(1, 0.2), (3, 0.2), (20, 1), (200, 10), (900, 15), (86400, 15)])
def test_it_is_looked_at_often_enough_and_not_too_often(timeout: float, period: float) -> None:
    assert sampling_period(timeout) == period


@pytest.mark.parametrize("seconds", [0.2, 1.0, 15.0])
def test_a_claude_that_only_waits_is_hung_after_the_timeout(seconds: float) -> None:
    idle = {"cpu_seconds": 0.02, "io_bytes": 250.0}
    assert not is_hung(watched(every(seconds, TIMEOUT - 2 * seconds, **idle), seconds), POLICY)
    assert is_hung(watched(every(seconds, TIMEOUT + 2 * seconds, **idle), seconds), POLICY)


@pytest.mark.parametrize(
    "life",
    [{"heard": 1 / 600}, {"cpu_seconds": 0.1}, {"io_bytes": 1000.0}, {"processes": 1 / 600}],
    ids=lambda life: next(iter(life)),
)
def test_each_sign_alone_keeps_it_alive(life: dict[str, float]) -> None:
    assert not is_hung(watched(every(PERIOD, 10 * TIMEOUT, **life)), POLICY)


def test_a_runtime_that_tidies_up_now_and_then_is_no_sign() -> None:
    bursts = [(now, Pulse(cpu_seconds=0.12 * (now // 5))) for now in range(1200)]
    assert is_hung(watched(bursts, period=1.0), POLICY)


def test_work_that_begins_late_in_the_silence_counts() -> None:
    """However long it was silent before: a second of computing is a second of computing."""
    late = [*every(1.0, 890), (891.0, Pulse(cpu_seconds=1.0, io_bytes=0, processes=1))]
    assert watched(late, period=1.0).silent == 0


def test_a_suspended_machine_or_a_jump_of_the_clock_is_no_silence() -> None:
    before = every(PERIOD, 300)
    slept = [(now + 8 * 3600, pulse) for now, pulse in every(PERIOD, 300)]
    liveness = watched([*before, *slept])
    assert not is_hung(liveness, POLICY)
    assert liveness.silent <= 600 + PERIOD
    back = watched([*before, (-5000.0, Pulse(cpu_seconds=0.0, io_bytes=0, processes=1))])
    assert back.silent == 300


def test_nothing_is_expected_of_an_agent_that_is_done_talking() -> None:
    samples = every(PERIOD, 600)
    liveness = watched([*samples, (615.0, None), (630.0, None), (645.0, samples[-1][1])])
    assert liveness.silent == 0


def test_another_process_starts_its_own_count() -> None:
    liveness = watched([*every(PERIOD, 600), (615.0, Pulse(heard=0, cpu_seconds=3.0, io_bytes=9, processes=2))])
    assert liveness.silent == 0
    smaller = watched([(0.0, Pulse(heard=5)), (600.0, Pulse(heard=5)), (1200.0, Pulse(heard=1))])
    assert smaller.silent == 0


def test_only_what_the_system_can_tell_counts() -> None:
    quiet = [(now, Pulse(heard=7)) for now in range(0, 930, 15)]
    assert is_hung(watched(quiet), POLICY)
    talks = [(now, Pulse(heard=now // 600)) for now in range(0, 9000, 15)]
    assert not is_hung(watched(talks), POLICY)


def test_without_a_timeout_nothing_is_hung() -> None:
    assert not is_hung(Liveness(period=15, seen_at=0, silent=1e9), Policy(idle_timeout=None))
