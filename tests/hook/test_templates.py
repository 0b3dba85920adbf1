"""Goals that are known: ours and the user's own."""

from pathlib import Path

import pytest

from untildone.errors import UsageError
from untildone.hook.templates import names, own_folder, template

OURS = ["bug", "coverage", "docs", "lint", "refactor", "tests", "types"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def put(env: dict[str, str], name: str, text: str) -> Path:
    folder = Path(own_folder(env))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("name", OURS)
def test_ours_have_a_goal_a_promise_an_end_and_say_what_they_are_for(name: str, env: dict[str, str]) -> None:
    found = template(name, env)
    assert found.about
    assert len(found.promises) == 1
    assert found.promises[0] == found.promises[0].upper()
    assert "It is done when" in found.goal
    assert 10 <= found.max_iterations <= 30
    assert found.checks == ()
    assert not found.own


def test_there_are_no_others(env: dict[str, str]) -> None:
    assert names(env) == OURS


def test_the_users_own_comes_before_ours_and_may_bring_checks(env: dict[str, str]) -> None:
    path = put(env, "tests.md", "---\n# Mine\ncompletion_promise: A | B\nchecks:\n  - make test\n---\nMy way\n")
    found = template("tests", env)
    assert (found.goal, found.about, found.promises, found.checks) == ("My way", "Mine", ("A", "B"), ("make test",))
    assert (found.own, found.path) == (True, str(path))
    assert names(env) == OURS


@pytest.mark.parametrize("text", ["no settings", "---\n---\n\n", "---\nmax_iterations: many\n---\ngoal", "x" * 300_000])
def test_a_file_that_is_no_template_is_named(text: str, env: dict[str, str]) -> None:
    put(env, "mine.md", text)
    with pytest.raises(UsageError, match="mine"):
        template("mine", env)


@pytest.mark.parametrize(
    "name", ["", "nonsense", "../secret", "/etc/passwd", ".hidden", "a\0b", "x" * 5000, "tests.md"]
)
def test_a_name_is_only_a_name(name: str, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config/untildone").mkdir(parents=True)
    (tmp_path / "config/untildone/secret.md").write_text("---\n---\nsecret\n")
    with pytest.raises(UsageError, match="there is no template") as refused:
        template(name, env)
    assert len(str(refused.value)) < 400


def test_a_pipe_does_not_hold_anybody_up(env: dict[str, str]) -> None:
    import os

    os.mkfifo(put(env, "x.md", "").with_name("pipe.md"))
    with pytest.raises(UsageError):
        template("pipe", env)
