"""What the help says, and that it fits."""

import pytest

from cli.cli_kit import Say
from untildone.cli.app import COMMANDS

NAMES = [name for part in COMMANDS.values() for name in part]


@pytest.mark.parametrize("argv", [[], *([name] for name in NAMES)], ids=lambda argv: " ".join(argv) or "untildone")
def test_the_help_fits_a_screen_of_80_columns(say: Say, monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = say(*argv, "--help").out
    assert text.startswith("Usage: untildone")
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_a_command_about_a_run_says_how_to_name_it(say: Say) -> None:
    for name in ("status", "log", "brief", "replay", "stop", "limits", "attach"):
        assert "RUN is a name or an id" in say(name, "--help").out


def test_options_speak_to_people(say: Say) -> None:
    text = " ".join(say("run", "--help").out.split())
    assert "How long a check may take. [10m]" in text
    assert "before a claim is believed. Repeatable." in text
    assert "None:" not in text
    assert "Seconds" not in text


@pytest.mark.parametrize(
    ("words", "goal", "tree"),
    [
        (["--worktree", "fix the bug"], "fix the bug", ":"),
        (["--worktree", "fix", "fix the bug"], "fix the bug", "fix"),
        (["--worktree", "fix:main", "fix the bug"], "fix the bug", "fix:main"),
        (["--worktree=fix", "fix the bug"], "fix the bug", "fix"),
        (["fix the bug", "--worktree"], "fix the bug", ":"),
        (["--worktree", "--review", "fix the bug"], "fix the bug", ":"),
        (["--review", "iteration", "fix the bug"], "fix the bug", None),
        (["--review", "fix"], "fix", None),
        (["--worktree", "why?"], "why?", ":"),
    ],
)
def test_an_option_whose_value_may_be_left_out_swallows_no_goal(
    say: Say, words: list[str], goal: str, tree: str | None
) -> None:
    said = say("run", *words, "-m", "1", "--dry-run")
    assert said.code == 0, said.err
    assert f"\n{goal}\n" in said.out
    named = {None: "", ":": "untildone/", "fix": "branch fix,", "fix:main": "branch fix, from main"}[tree]
    assert ("new branch" in said.out) == (tree is not None)
    assert named in said.out
    assert ("\n          review  " in said.out) == ("--review" in words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "--worktree", "fix"], "a goal is missing, or --worktree took it ('fix'): put the goal before it"),
        (["run", "a goal", "--worktree", "no branch"], "--worktree takes BRANCH[:BASE], not 'no branch'"),
        (["run", "a goal", "--review", "often"], "--review takes never|iteration|landing, not 'often'"),
        (
            ["tasks", "--worktree", "TODO.md"],
            "--worktree took 'TODO.md' for its BRANCH[:BASE]: put it before --worktree",
        ),
        (["tasks"], "Missing argument 'FILE'."),
        (["run", "a goal", "--wortree"], "no option --wortree: did you mean --worktree?"),
        (["run", "a goal", "--chekc", "make"], "no option --chekc: did you mean --check?"),
        (["status", "--jsno"], "no option --jsno: did you mean --json?"),
        (["run", "a goal", "--zzzzzz"], "no option --zzzzzz: `untildone run --help` lists them"),
        (["run", "fix", "the", "tests"], "put the goal in quotes: untildone run 'fix the tests' -m 1"),
        (
            ["run", "fix", "--check", "pytest -q", "the", "tests"],
            "put the goal in quotes: untildone run 'fix the tests' --check 'pytest -q' -m 1",
        ),
        (["run", "fix", "the", "--worktree"], "put the goal in quotes: untildone run 'fix the' --worktree -m 1"),
        (["run", "a goal", "-max-cost", "5"], "-max-cost: a long option begins with two dashes: write --max-cost"),
        (["run", "-prompt", "a goal"], "-prompt: a long option begins with two dashes: write --prompt"),
        (["run", "a goal", "-max-cost=5"], "-max-cost=5: a long option begins with two dashes: write --max-cost=5"),
    ],
)
def test_a_word_in_the_wrong_place_is_told_in_one_line(say: Say, words: list[str], line: str) -> None:
    said = say(*words, *([] if words[0] == "status" else ["-m", "1"]))
    assert (said.code, said.out) == (2, "")
    assert line in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "example", "promise", "following"),
    [
        (["land"], "untildone land importer", "nothing is pushed by force", "untildone status RUN"),
        (["rewind"], "untildone rewind importer 3", "Nothing is lost", "untildone resume RUN"),
        (["fork"], "untildone fork importer --from 3", "are left as they are", "untildone worktrees ls"),
        (["worktrees"], "untildone worktrees reclaim", "branches are never deleted", "untildone run"),
        (["worktrees", "ls"], "untildone worktrees ls --json", "No worktree is changed", "untildone worktrees reclaim"),
        (["worktrees", "reclaim"], "untildone worktrees reclaim --yes", "Never removed", "untildone worktrees ls"),
        (["waive"], "untildone waive importer tests/test_old.py", "No file is changed", "untildone resume RUN"),
    ],
)
def test_what_delivers_shows_an_example_what_it_never_does_and_what_comes_next(
    say: Say, words: list[str], example: str, promise: str, following: str
) -> None:
    text = say(*words, "--help").out
    assert f"\n    {example}" in text
    told = " ".join(text.split())
    assert promise in told
    assert f"`{following}" in told
