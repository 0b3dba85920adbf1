"""What a claim costs: the checks alone, and the checks together with everything that decides about their judges."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from result import Figure, Result, ratio
from stage import commit_all
from untildone import Policy, Record, run
from untildone.agents.scripted import ScriptedAgent
from untildone.core.contract import Contract
from untildone.core.events import IterationValidation
from untildone.core.outcome import Order, Outcome
from untildone.core.policy import COMPLETION_SIGNAL

CHANGED_GATE = 2.2
UNCHANGED_GATE = 1.1
TEST = """import sys, time
sys.path.insert(0, ".")
from product import answer
time.sleep({seconds})
assert answer() == 42
"""


def measure(*, quick: bool) -> Result:
    """Take turns: a claim where no test was changed, with and without the guard, and one where a test was changed."""
    seconds, rounds = (2.0, 2) if quick else (5.0, 3)
    unguarded, unchanged, changed, alone = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="untildone-bench-", ignore_cleanup_errors=True) as name:
        for number in range(rounds):
            place = Path(name) / str(number)
            unguarded.append(_claim(place / "unguarded", seconds, guard=False).seconds)
            unchanged.append(_claim(place / "unchanged", seconds).seconds)
            look = _claim(place / "changed", seconds, _rewrite_the_test)
            changed.append(look.seconds)
            alone.append(sum(check.seconds for check in look.checks))
            assert look.base_checks, "the checks did not run with the base's judges"
    return Result(
        title=f"A claim, with a check of {seconds:g} s",
        figures=(
            Figure(
                name="a test was changed: against the check alone",
                value=ratio(changed, alone),
                at_most=CHANGED_GATE,
                note=f"{min(changed):.2f} s against {min(alone):.2f} s at best",
            ),
            Figure(
                name="no test was changed: against the same without the guard",
                value=ratio(unchanged, unguarded),
                at_most=UNCHANGED_GATE,
                note=f"{min(unchanged):.2f} s against {min(unguarded):.2f} s at best",
            ),
        ),
    )


def _rewrite_the_test(folder: Path) -> None:
    test = folder / "tests" / "test_product.py"
    test.write_text(test.read_text() + "# It is the answer.\n")


def _claim(
    place: Path, seconds: float, also: Callable[[Path], None] = lambda _: None, *, guard: bool = True
) -> IterationValidation:
    """The look that a claim leads to, in a repository of its own."""
    folder = place / "repository"
    _make_repository(folder, seconds)

    def work(_: Order) -> Outcome:
        (folder / "product.py").write_text("def answer():\n    return 42\n")
        also(folder)
        return Outcome(final_text=COMPLETION_SIGNAL)

    looks: list[IterationValidation] = []

    def watch(record: Record) -> None:
        if isinstance(record.event, IterationValidation):
            looks.append(record.event)

    done = run(
        "Give the answer.",
        Policy(max_runs=1),
        cwd=folder,
        checks=["python3 tests/test_product.py"],
        contract=Contract(guard="on" if guard else "off", baseline=False),
        agent=ScriptedAgent([work]),
        store=place / "state",
        on_event=watch,
    )
    assert done.verified, done
    return looks[-1]


def _make_repository(folder: Path, seconds: float) -> None:
    (folder / "tests").mkdir(parents=True)
    (folder / "product.py").write_text("def answer():\n    return 41\n")
    (folder / "tests" / "test_product.py").write_text(TEST.format(seconds=seconds))
    commit_all(folder)
