"""The docs say what the code says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from untildone import wiring
from untildone.cli.app import cli, entry
from untildone.cli.logfiles import LOG_CAP
from untildone.cli.scratch import KEPT_PREFIX, PREFIX
from untildone.core import events, trace
from untildone.core.faults import FAULTS
from untildone.core.policy import Policy
from untildone.core.settings import SETTINGS
from untildone.core.stopping import EXITS, Reason
from untildone.engine.journal import TRACE_DAYS
from untildone.store.leftovers import CRASH_LOGS_KEPT, RUN_LOGS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_generated_parts_are_up_to_date_and_drift_is_found(tmp_path: Path) -> None:
    copy = tmp_path / "docs"
    copy.mkdir()
    for file in ("generate.py", *(path.name for path in DOCS.glob("*.md"))):
        text = page(file)
        if file == "settings.md":
            text = text.replace("`max_runs`", "`max_walks`")
        (copy / file).write_text(text, encoding="utf-8")
    check = subprocess.run(
        [sys.executable, str(copy / "generate.py"), "--check"], capture_output=True, text=True, timeout=240, check=False
    )
    # Nothing but the change: all other pages are up to date.
    assert (check.returncode, check.stderr) == (1, "")
    assert check.stdout == "docs/settings.md is not what the code says: run ./dev docs\n"


def test_every_setting_is_documented() -> None:
    text = page("settings.md")
    wanted = [word for s in SETTINGS for word in (s.name, *s.flags, *s.off_flags, *s.env)]
    assert [word for word in wanted if f"`{word}`" not in text] == []


def test_every_event_is_documented() -> None:
    text = page("events.md")
    types = [
        value.TYPE
        for module in (events, trace)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, events.Event) and "TYPE" in vars(value)
    ]
    assert len(types) > 20
    assert [name for name in types if f"### `{name}`" not in text and name != "unknown"] == []


def test_every_exit_code_reason_and_fault_is_documented() -> None:
    text = page("stopping.md")
    wanted = [*(str(code) for code, _ in EXITS), *Reason]
    assert [word for word in wanted if f"| `{word}` |" not in text] == []
    text = page("faults.md")
    assert [name for name in FAULTS if f"\n| `{name}` |" not in text or f"| `{name}` |\n" not in text] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (path.parent / link).exists()] == []


def flags_of(command: click.Command) -> set[str]:
    ctx = click.Context(command)
    own = {flag for param in command.get_params(ctx) for flag in (*param.opts, *param.secondary_opts)}
    if isinstance(command, click.Group):
        inner = (command.get_command(ctx, name) for name in command.list_commands(ctx))
        own |= {flag for sub in inner if sub is not None for flag in flags_of(sub)}
    return own


def test_flags_in_the_prose_exist() -> None:
    known = flags_of(cli)
    pages = ("quickstart.md", "architecture.md", "stopping.md", "plugin.md")
    own = [ROOT / "README.md", *(DOCS / name for name in pages)]
    used = {
        (path.name, flag)
        for path in own
        for command in re.findall(r"untildone [^\n`]+", path.read_text(encoding="utf-8"))
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", command)
    }
    assert len(used) >= 10
    assert sorted((page, flag) for page, flag in used if flag not in known) == []


def test_the_examples_for_a_night_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("overnight.md")
    assert sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - flags_of(cli)) == []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNTILDONE_HOME", str(tmp_path / "state"))
    for name in set(re.findall(r"[\w-]+\.md", text)):
        (tmp_path / name).write_text("a goal\n")
    typed = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ").splitlines()
    starts = [shlex.split(line) for line in typed if line.startswith("untildone run ")]
    assert len(starts) == 2
    assert [entry([*words[1:], "--dry-run", "--json"]) for words in starts] == [0, 0]


def test_what_is_kept_is_what_the_docs_say() -> None:
    _, _, text = page("overnight.md").partition("## What it keeps")
    rows = dict(re.findall(r"^\| ([^|:]+?)(?::[^|]*)? \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE))
    details = rows["details"]
    assert f"{Policy().trace_keep >> 20} MiB" in details
    assert f"older than {TRACE_DAYS} days" in details
    assert f"for {wiring.KEEP_DAYS} days" in details
    printed = rows["what a detached run prints"]
    assert f"{LOG_CAP >> 20} MiB" in printed
    assert f"{wiring.KEEP_DAYS} days" in printed
    assert f"newest {CRASH_LOGS_KEPT}" in rows["details of a crash of untildone itself"]
    assert f"{wiring.KEEP_DAYS} days" in rows["lock files"]
    places = (
        wiring.STORE_FILE,
        f"{RUN_LOGS}/",
        f"{PREFIX}*",
        f"{KEPT_PREFIX}*",
        "untildone-rescued-*",
        "refs/untildone/",
    )
    assert [place for place in places if f"`{place}" not in text] == []


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("../README.md", "docs/permissions.md"),
        ("quickstart.md", "permissions.md"),
        ("overnight.md", "permissions.md"),
        ("plugin.md", "permissions.md"),
    ],
)
def test_a_page_that_starts_the_agent_says_what_it_may_do(name: str, link: str) -> None:
    text = page(name)
    assert f"[permissions]({link})" in text
    assert name == "plugin.md" or "`--allow-tool RULE`" in text or "`--allow-tool`" in text


def test_flags_promised_to_people_who_migrate_exist() -> None:
    known = flags_of(cli)
    rows = re.findall(r"^\|([^|]+)\|([^|]+)\|", page("migrating.md"), re.MULTILINE)
    here = [left if right.strip().startswith("the same") else right for left, right in rows]
    promised = {flag for cell in here for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", cell)}
    assert len(promised) > 30
    assert sorted(promised - known) == []


def test_the_lock_names_versions_and_nothing_else() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert len(lines) > 10
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)] == []
