"""Compares two costs. Other work on the machine only ever adds, so the cheapest of many tries, in turn, is compared."""

import time
from collections.abc import Awaitable, Callable, Iterator

LEAST, MOST = 5, 100
"""Tries of each. Trying ends once the limit is kept; a cost that is really higher never keeps it."""


def _rounds(times: float) -> Iterator[list[float]]:
    """Rounds that take the costs of one try of each, first the dear one; ends once the limit is kept."""
    dear = cheap = float("inf")
    for number in range(1, MOST + 1):
        tried: list[float] = []
        yield tried
        dear, cheap = min(dear, tried[0]), min(cheap, tried[1])
        if number >= LEAST and dear <= times * cheap:
            return
    raise AssertionError(f"{dear:.6f} s is {dear / cheap:.1f} times {cheap:.6f} s, more than {times}")


def costs_at_most(
    times: float, dear: Callable[[], object], cheap: Callable[[], object], clock: Callable[[], float] = time.thread_time
) -> None:
    """Fail if `dear` takes more than so many times as long as `cheap`."""
    for tried in _rounds(times):
        for work in (dear, cheap):
            began = clock()
            work()
            tried.append(clock() - began)


async def takes_at_most(
    times: float, dear: Callable[[], Awaitable[object]], cheap: Callable[[], Awaitable[object]]
) -> None:
    """The same for what is waited for."""
    for tried in _rounds(times):
        for work in (dear, cheap):
            began = time.perf_counter()
            await work()
            tried.append(time.perf_counter() - began)
