"""The same deaths with the real Claude Code at work: one boundary of every kind."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from crash.crash_kit import KILLED, CrashStage, check_books, naming
from crash.driver import MODEL_URL
from crash.points import kind_of
from crash.test_crash_points import one_of_each_kind
from e2e.kit import finished, price, working
from untildone.core import events as ev
from untildone.core.state import LoopState
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

PARTS = 4
WRITES = (
    "for f in one two three; do [ -e $f.txt ] || { echo $f.txt > $f.txt; break; }; done; "
    "[ -e three.txt ] && echo ALL WRITTEN; true"
)
SCENARIO = Scenario(
    name="crash",
    iterations=(
        (
            Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": WRITES}),), input_tokens=3000),
            Reply(when="ALL WRITTEN", text=finished("Round {i}, the last.")),
            Reply(text=working("Round {i}.", tasks=1)),
        ),
    ),
)
QUICK = (
    "after spawn",
    "before append agent.reply ",
    "after append iteration.completed",
    "before append landing.committed",
)


@dataclass
class ClaudeStage(CrashStage):
    """The agent is Claude Code, the far side's books are the scripted model's."""

    model: ScriptedModel = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.env = {MODEL_URL: self.model.url}

    def served(self) -> dict[str, float]:
        return {line.message_id: price(line) for line in self.model.ledger.served() if line.kind == "main"}

    def check_money(self, events: list[ev.Event], state: LoopState) -> None:
        """A request that was out when the driver died may have been cut; a reply that was served is in the books."""
        assert check_books(self.served(), events, state) == 0


def undisturbed(folder: Path) -> list[str]:
    with ScriptedModel(SCENARIO) as model:
        stage = ClaudeStage(folder, model=model)
        assert stage.drive() == 0
        stage.check(deaths=0)
        passed = stage.passed()
    # What else Claude says, and how often, depends on the moment.
    chatty = [
        point for point in passed if "tell " in point and "agent.reply" not in point and "agent.session" not in point
    ]
    return [point for point in passed if point not in chatty and kind_of(point) != "append trace"]


def die_and_recover(folder: Path, point: str) -> None:
    with ScriptedModel(SCENARIO) as model, naming(point):
        stage = ClaudeStage(folder, model=model)
        assert stage.drive(point) == KILLED, "the boundary was not reached"
        stage.drive_to_the_end()
        stage.check(deaths=1)


@pytest.mark.soak
def test_death_where_it_hurts_most(tmp_path: Path) -> None:
    points = undisturbed(tmp_path / "undisturbed")
    for number, wanted in enumerate(QUICK):
        die_and_recover(tmp_path / str(number), [point for point in points if point.startswith(wanted)][number % 3])


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_death_at_one_boundary_of_each_kind(tmp_path: Path, part: int) -> None:
    chosen = one_of_each_kind(undisturbed(tmp_path / "undisturbed"))
    assert {"spawn", "iterate", "append agent.reply", "append iteration.completed", "settle", "check"} <= set(
        map(kind_of, chosen)
    )
    for number, point in enumerate(chosen[part::PARTS]):
        die_and_recover(tmp_path / f"{part}-{number}", point)
