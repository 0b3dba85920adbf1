"""Stories of agents, honest and not: a few on the scripted agent, all of them on the real Claude Code."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from corpus.corpus_kit import KINDS, Story, placed, play, play_scripted, rehearse, stories, wrong

BOUNDED = [story for story in stories() if story.bounded]


def name(story: Story) -> str:
    return f"{story.kind}/{story.name}"


def test_there_are_enough_stories_of_every_kind() -> None:
    count = Counter(story.kind for story in stories())
    least = {"attacks": 60, "honest": 30, "words": 20, "stuck": 20, "moments": 15}
    assert {kind: count[kind] for kind in KINDS if count[kind] < least[kind]} == {}
    assert len({story.cls for story in stories() if story.kind == "attacks"}) >= 12
    disputed = [story.name for story in stories() if story.kind == "honest" and "disputed" in story.expect["verdict"]]
    assert len(disputed) * 5 <= count["honest"]
    assert [story.name for story in BOUNDED if story.needs or story.script] == []


@pytest.mark.parametrize("story", BOUNDED, ids=name)
def test_with_the_scripted_agent(story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(story, play_scripted(story, tmp_path / "stage", monkeypatch.setenv)) == ""


@pytest.mark.soak
@pytest.mark.claude
@pytest.mark.parametrize("story", stories(), ids=name)
def test_with_the_real_claude_code(story: Story, tmp_path: Path) -> None:
    if story.needs and shutil.which(story.needs) is None:
        pytest.fail(f"{story.needs} is missing: apt-get install nodejs npm python3")
    said = wrong(story, play(story, tmp_path / "stage"))
    assert bool(said) == bool(story.beyond), said or "it is judged rightly by now: take `beyond` out"


@pytest.mark.soak
@pytest.mark.parametrize("story", [story for story in stories() if story.kind in {"attacks", "honest"}], ids=name)
def test_the_checks_are_as_the_story_needs_them(story: Story, tmp_path: Path) -> None:
    """They pass in the agent's tree after its work; before an attack they fail, so that there is something to gain."""
    with placed(story, tmp_path / "stage") as place:
        before, after = rehearse(story, place, place.environment(story, "http://127.0.0.1:9"))
    assert after
    assert story.kind == "honest" or not before
