"""The tables for people who come from another loop: every published option is there, and what it names exists."""

import re
from pathlib import Path

import click
import pytest

from untildone.cli.app import cli
from untildone.core.settings import SETTINGS
from untildone.hook import commanding

DOCS = Path(__file__).parent.parent / "docs"
RALPH = """\
-c --calls -p --prompt -s --status -m --monitor -v -l --live -t --timeout --dry-run -n --notify -b --backup --rollback
--show-tool-args --output-format --allowed-tools --no-continue --session-expiry --reset-circuit --circuit-status
--auto-reset-circuit --reset-session --github-issue --comment-progress --comment-interval --auto-close --close-summary
--create-pr --link-issue --draft-pr --create-followups --followup-label --add-label --halt-on-failure --sandbox
--sync-include --sync-exclude setup enable enable-ci import stats monitor migrate .ralphrc fix_plan.md status.json
RALPH_STATUS
"""
DEVTEAM = """\
stop-hook.sh post-message.sh MAX_FAILURES MAX_ITERATIONS EXIT_SIGNAL: autonomous-mode circuit-breaker.json session.json
/devteam:implement /devteam:sprint --max-iterations --autonomous autonomous-controller.md autonomous-mode.md
autonomous_mode_enabled max_iterations current_iteration circuit_breaker session_started_at session_last_activity
exit_detection v_current_session
"""


def rows(page: str, heading: str) -> list[tuple[str, str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8").partition(f"{heading}\n")[2]
    lines = text[: text.find("\n#")].splitlines() if "\n#" in text else text.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    return [(*row, *[""] * 3)[:3] for row in cells[2:]]  # type: ignore[misc]


def flags_of(command: click.Command) -> set[str]:
    context = click.Context(command)
    found = {flag for param in command.get_params(context) for flag in (*param.opts, *param.secondary_opts)}
    below = command.list_commands(context) if isinstance(command, click.Group) else []
    subcommands = (command.get_command(context, name) for name in below)  # type: ignore[attr-defined]
    return found.union(*(flags_of(one) for one in subcommands if one is not None))


@pytest.mark.parametrize(
    ("page", "heading", "published"),
    [("migrating.md", "## ralph", RALPH), ("plugin.md", "### From the task loop of devteam", DEVTEAM)],
    ids=["ralph", "devteam"],
)
def test_every_published_option_has_a_row_and_what_the_row_names_exists(
    page: str, heading: str, published: str
) -> None:
    table = rows(page, heading)
    told = " ".join(there for there, _, _ in table)
    known = set(re.findall(r"[^\s`,;]+", told)) | {name.rpartition("/")[2] for name in re.findall(r"[^\s`,;]+", told)}
    assert set(published.split()) - known == set()
    assert [there for there, here, _ in table if not here] == [], "honoured, or why not"
    assert [there for there, here, why in table if here == "no" and not why] == []
    ours = flags_of(cli) | {flag for one in SETTINGS for flag in one.flags} | {f"--{name}" for name in commanding._LOOP}
    ours |= {"--max-iterations", "--autonomous", "--continue"}
    named = {flag for _, here, why in table for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", f"{here} {why}")}
    assert named - ours == set()
    commands = set(cli.list_commands(click.Context(cli)))
    assert {word for _, here, _ in table for word in re.findall(r"`untildone ([a-z-]+)", here)} - commands == set()
