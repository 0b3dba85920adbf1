"""Before and after a tool call: what an agent in a loop may not do, and what is written down."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hook.stop_kit import HOOK, OTHER, Stage
from untildone.hook.tools import on_posttooluse, on_posttoolusefailure, on_pretooluse


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.start()
    return made


def event(tool: str, tool_input: Any, **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": tool_input, **fields}


def refusal(stage: Stage, tool: str, tool_input: Any, **fields: Any) -> str:
    answer = on_pretooluse(stage.call(**event(tool, tool_input, **fields))) or {}
    assert answer.get("hookSpecificOutput", {}).get("permissionDecision", "deny") == "deny"
    return str(answer.get("hookSpecificOutput", {}).get("permissionDecisionReason", ""))


def bash(stage: Stage, command: str, **fields: Any) -> str:
    return refusal(stage, "Bash", {"command": command, "description": "run"}, **fields)


# --- files -------------------------------------------------------------------------------------------------------

OURS = [
    ".untildone/loop.md",
    ".untildone/tasks.db",
    ".untildone/new/x",
    "./a/../.untildone/loop.md",
    ".UNTILDONE/Loop.md",
    ".stravinsky/continuation-loop.md",
    ".multi-agent/autonomous-mode",
    ".multi-agent/circuit-breaker.json",
    ".devteam/devteam.db",
    "untildone.toml",
]
THEIRS = [
    "src/x.py",
    "untildone.md",
    "src/untildone/loop.md",
    ".untildoned/x",
    "docs/untildone.toml",
    ".claude/todo_state.json",
    ".stravinsky/notes.md",
    "TODO.md",
    "pyproject.toml",
]


@pytest.mark.parametrize("tool", ["Edit", "Write", "MultiEdit"])
@pytest.mark.parametrize("path", OURS)
def test_no_tool_edits_the_state_or_the_contract(stage: Stage, tool: str, path: str) -> None:
    assert refusal(stage, tool, {"file_path": path, "content": "x"})
    assert refusal(stage, tool, {"file_path": str(stage.project / path), "content": "x"})


@pytest.mark.parametrize("path", THEIRS)
def test_everything_else_may_be_edited(stage: Stage, path: str) -> None:
    assert refusal(stage, "Write", {"file_path": str(stage.project / path), "content": "x"}) == ""
    assert refusal(stage, "NotebookEdit", {"notebook_path": path, "new_source": "x"}) == ""


def test_no_detour_leads_there(stage: Stage) -> None:
    (stage.project / "link").symlink_to(stage.project / ".untildone")
    (stage.project / "file").symlink_to(stage.file)
    sub = stage.project / "sub"
    sub.mkdir()
    assert refusal(stage, "Write", {"file_path": str(stage.project / "link/loop.md")})
    assert refusal(stage, "Edit", {"file_path": "file"})
    assert refusal(stage, "Edit", {"file_path": "../.untildone/loop.md"}, cwd=str(sub))
    assert refusal(stage, "NotebookEdit", {"notebook_path": ".untildone/x.ipynb"})
    assert refusal(stage, "Write", {"file_path": str(stage.home / "loops/x.json")})
    assert refusal(stage, "Write", {"file_path": stage.env["HOME"] + "/.config/untildone/config.toml"})


def test_the_contract_inside_pyproject_stays_and_the_rest_of_it_may_change(stage: Stage) -> None:
    text = '[project]\nname = "x"\n\n[tool.untildone.contract]\nchecks = ["pytest"]\n\n[tool.ruff]\nline-length = 100\n'
    path = str(stage.put("pyproject.toml", text))
    assert refusal(stage, "Edit", {"file_path": path, "old_string": '["pytest"]', "new_string": '["true"]'})
    assert refusal(stage, "Write", {"file_path": path, "content": text.replace("contract", "other")})
    edits = [{"old_string": 'name = "x"', "new_string": 'name = "y"'}, {"old_string": "pytest", "new_string": "true"}]
    assert refusal(stage, "MultiEdit", {"file_path": path, "edits": edits})
    assert refusal(stage, "Edit", {"file_path": path, "old_string": "100", "new_string": "120"}) == ""
    assert refusal(stage, "Write", {"file_path": path, "content": text.replace("100", "120")}) == ""


# --- commands ----------------------------------------------------------------------------------------------------

WRITING = [
    *(
        "echo x > .untildone/loop.md",
        "sed -i s/10/99/ .untildone/loop.md",
        "rm .untildone/loop.md",
        "rm -rf .untildone",
    ),
    *("mv .untildone x", "cp x .untildone/loop.md", "tee .untildone/loop.md < x", "truncate -s 0 .untildone/loop.md"),
    *("python3 -c \"open('.untildone/loop.md','w')\"", "sqlite3 .untildone/tasks.db 'update tasks set status=1'"),
    *(
        "cat x | tee -a .stravinsky/continuation-loop.md",
        "touch .multi-agent/autonomous-mode",
        "bash -c 'rm .untildone/loop.md'",
    ),
    *(
        "git checkout .untildone/loop.md",
        "ln -s x .untildone/loop.md",
        "echo x >> untildone.toml",
        "perl -pi -e s/a/b/ untildone.toml",
    ),
    *(
        "find .untildone -delete",
        "sqlite3 .devteam/devteam.db 'delete from tasks'",
        "sqlite3 -readonly .devteam/devteam.db 'select 1; delete from tasks'",
        "sqlite3 .devteam/devteam.db \"select writefile('.untildone/loop.md', 'x')\"",
        "sqlite3 .devteam/devteam.db '.shell rm .untildone/loop.md'",
        "sqlite3 .devteam/devteam.db <<E\nselect 1;\n.shell rm .untildone/loop.md\nE",
        "echo 'delete from tasks' | sqlite3 .devteam/devteam.db",
        "sqlite3 .devteam/devteam.db < x.sql",
        'sqlite3 .devteam/devteam.db "$(cat x.sql)"',
        "sqlite3 -cmd 'delete from tasks' .devteam/devteam.db 'select 1'",
        "sqlite3 .devteam/devteam.db 'select 1' > .untildone/loop.md",
        "cat > .UNTILDONE/loop.md <<E\nx\nE",
    ),
]
OPERATING = [
    *(
        "untildone loop stop",
        "untildone loop reset",
        "untildone loop adopt",
        "untildone loop start x",
        "untildone plugin uninstall",
    ),
    *(
        "untildone run x -m 1",
        "untildone stop",
        "python3 -m untildone loop stop",
        "uvx untildone run x",
        "/opt/bin/untildone resume",
    ),
    *(
        "cd x && untildone loop stop",
        "bash -c 'untildone loop stop'",
        "claude plugin uninstall untildone",
        "env X=1 untildone reset",
    ),
    *(
        "python3 -muntildone loop stop",
        "u=untildone; $u loop stop",
        "$(echo untildone) loop stop",
        "echo loop stop | xargs untildone",
        "echo untildone loop stop | sh",
        "tmux new -d 'untildone loop stop'",
    ),
    *(
        "claude -p '/untildone:cancel'",
        "claude --print '/untildone:loop --adopt'",
        "echo /untildone:cancel | claude -p",
        "tmux send-keys -t 0 /untildone:cancel Enter",
        "python3 -c \"import os; os.system('untildone loop stop')\"",
        "python3 -c \"import subprocess; subprocess.run(['untildone', 'loop', 'stop'])\"",
        "(setsid env -i HOME=$HOME PATH=$PATH sh -c 'sleep 1; python3 -muntildone loop stop' &)",
        "pip uninstall -y untildone",
    ),
]
READING = [
    *(
        "cat .untildone/loop.md",
        "grep -n max .untildone/loop.md | head",
        "ls -la .untildone",
        "cp .untildone/loop.md /tmp/copy",
    ),
    *(
        "git status .untildone",
        "test -f .untildone/loop.md && echo yes",
        "sed -n 1,5p .untildone/loop.md",
        "cat untildone.toml > x",
    ),
    *(
        "untildone task add 'x'",
        "untildone task done TASK-001",
        "untildone loop status",
        "untildone status",
        "untildone plugin status",
    ),
    *(
        "untildone ask 'which?'",
        "untildone loop history",
        "untildone --help",
        "untildone loop --help",
        "pip show untildone",
    ),
    *(
        "pytest tests/untildone",
        "grep -r untildone src",
        "cat > notes.md <<E\nuntildone loop stop\nE",
        "echo 'untildone loop stop'",
    ),
    *(
        "sqlite3 .devteam/devteam.db \"SELECT COUNT(*) FROM tasks WHERE status = 'pending';\" 2>/dev/null || echo 0",
        "sqlite3 -readonly -header -separator , .devteam/devteam.db 'SELECT * FROM v_current_session'",
        "sqlite3 .untildone/tasks.db \"select id || ': ' || title from tasks; select 1\"",
        "sqlite3 .devteam/devteam.db <<E\n.headers on\nE",
        "sqlite3 .devteam/devteam.db .schema",
    ),
    *(
        "ls",
        "make test",
        "git commit -m 'untildone loop stop'",
        "find .untildone -name '*.md'",
        "python3 src/untildone/x.py",
    ),
    *(
        "python3 src/untildone/run.py",
        "pip install untildone",
        "claude -p '/untildone:status'",
        "gh pr create --title 'untildone loop stop' --body x",
        "python3 -m untildone task ls",
        "python3 -c \"print('untildone')\"",
    ),
]


@pytest.mark.parametrize("command", [*WRITING, *OPERATING])
def test_no_command_writes_the_state_or_steers(stage: Stage, command: str) -> None:
    assert bash(stage, command)


@pytest.mark.parametrize("command", READING)
def test_reading_looking_and_tasks_are_free(stage: Stage, command: str) -> None:
    assert bash(stage, command) == ""


@pytest.fixture
def at_home(tmp_path: Path) -> Stage:
    """Where the state folder lies where it does for most people."""
    made = Stage(tmp_path)
    del made.env["UNTILDONE_STORE"]
    made.home = tmp_path / ".local/state/untildone"
    made.start(checks=["false"], promises=["P OK"])
    return made


DETOURS = [
    "cd .untildone && rm loop.md",
    "(cd .untildone; rm -f loop.md)",
    "pushd .untildone && echo > loop.md",
    "cd sub/../.untildone && truncate -s0 loop.md",
    "cd .untildone; x=$(rm loop.md); cd ..",
    "rm -rf .unt*",
    "rm -rf .u*/",
    "rm .*/loop.md",
    "rm .untildon[e]/loop.md",
    "rm -rf .{untildone,cache}",
    "x=.untildone; rm $x/loop.md",
    "export d=.until; rm ${d}done/loop.md",
    "d=.until && sed -i s/a/b/ ${d}done/loop.md",
    "find . -name loop.md -delete",
    "find . -name 'l*.md' -exec rm {} +",
    "find . -path './.unt*' -delete",
    "find . -type f -exec sed -i s/a/b/ {} +",
    "ls -d .u* | xargs rm -rf",
    "find .untildone -name loop.md | xargs rm",
    "echo 'rm .untildone/loop.md' | sh",
    "python3 <<E\nopen('.untildone/loop.md', 'w')\nE",
    "python3 -c \"import glob, os; [os.remove(f) for f in glob.glob('.u*/loop.md')]\"",
    "python3 -c 'from untildone.hook import spool'",
    "mv ../'a project' ../b",
    "rm -rf .",
    "ln -s .untildone u",
    "bash -c 'bash -c \"cd .untildone && rm loop.md\"'",
    ": " + "x" * 100_000 + "; rm .untildone/loop.md",
    "cd ~/.local/state/untildone/spool && echo '{}' >> a.jsonl",
    "echo '{}' >> ~/.local/state/untildone/spool/a.jsonl",
    "echo '{}' >> $HOME/.local/state/untildone/spool/a.jsonl",
    "echo '{}' >> \"${HOME}/.local/state/untildone/spool/a.jsonl\"",
    "echo '{}' >> ${XDG_STATE_HOME:-$HOME/.local/state}/untildone/spool/a.jsonl",
    "cd; cd .local/state; rm -r untildone",
    "rm -r ~/.local/state",
    "rm ~/.local/state/untild*/loops/*.json",
    "cp x ~/.local/state/untildone/loops/x.json",
    "cat ~/.local/state/untildone/notes.key",
    "tar xf x.tar -C ~/.local/state/untildone",
    "echo > ~/.config/untildone/config.toml",
    "echo '{}' > .claude/settings.local.json",
    "cd .claude && echo '{}' > settings.json",
    "jq . x > ~/.claude/settings.json",
    "sed -i s/a/b/ $CLAUDE_CONFIG_DIR/settings.json",
    "cp x.md .claude/commands/untildone/loop.md",
    "rm -rf .claude/commands",
]
NO_DETOURS = [
    "cd .untildone && cat loop.md",
    "(cd .untildone && ls); make",
    "cd .untildone && ls; cd .. && make test",
    "find . -name '*.pyc' -delete",
    "find build -delete",
    "find . -type d -empty -delete",
    "find . -name '*.md' -exec grep -l x {} +",
    "find . -path './build/*' -delete",
    "rm -rf build/* *.pyc",
    "rm -rf ~/.cache/pip",
    "mv src/*.py lib/",
    "for f in *.txt; do rm $f; done",
    "tar --exclude .untildone -cf x.tar .",
    "rsync -a --exclude=.untildone ./ /srv/o/",
    "ls ~/.local/state/untildone | head",
    "cat .claude/settings.json",
    "ruff format .",
    "prettier --write '*.toml'",
    "x=$(cat .untildone/loop.md | wc -l); echo $x",
    "echo .untildone >> .gitignore",
    "grep -rn untildone . | xargs -n1 echo",
    "python3 manage.py run",
    "git stash -u",
    'echo "$HOME" && cd "$HOME" && ls',
]


@pytest.mark.parametrize("command", DETOURS)
def test_no_way_of_writing_it_leads_there(at_home: Stage, command: str) -> None:
    at_home.env["CLAUDE_CONFIG_DIR"] = str(at_home.project.parent / "claude")
    at_home.put(".claude/commands/untildone/x", "")
    assert bash(at_home, command)


@pytest.mark.parametrize("command", NO_DETOURS)
def test_what_only_looks_like_it_is_free(at_home: Stage, command: str) -> None:
    at_home.put("untildone.toml", "")
    assert bash(at_home, command) == ""


def test_a_shell_that_stands_there_already_is_held_too(stage: Stage) -> None:
    inside = str(stage.project / ".untildone")
    assert bash(stage, "rm loop.md", cwd=inside)
    assert bash(stage, "cat loop.md", cwd=inside) == ""
    (stage.project / "link").symlink_to(inside)
    assert bash(stage, "rm link/loop.md")


def test_what_makes_the_hooks_run_stays(stage: Stage) -> None:
    stage.env["CLAUDE_CONFIG_DIR"] = str(stage.project.parent / "claude")
    for path in (
        ".claude/settings.json",
        ".claude/settings.local.json",
        "~/.claude/settings.json",
        f"{stage.env['CLAUDE_CONFIG_DIR']}/settings.json",
        ".claude/commands/untildone/loop.md",
        str(HOOK / "run.sh"),
        str(HOOK.parent / "plugin/hooks.json"),
    ):
        assert "hooks of this loop run" in refusal(stage, "Write", {"file_path": path, "content": "{}"}), path
    assert refusal(stage, "Write", {"file_path": ".claude/agents/x.md", "content": ""}) == ""
    assert bash(stage, f"sed -i s/a/b/ '{HOOK}/main.py'")
    assert bash(stage, "python3 -m pytest") == ""


def test_tools_of_others_are_held_to_the_same(stage: Stage) -> None:
    assert refusal(stage, "mcp__fs__write_file", {"path": str(stage.file), "content": "x"})
    assert refusal(stage, "mcp__fs__read_file", {"path": str(stage.file)}) == ""
    assert refusal(stage, "Read", {"file_path": str(stage.home / "notes.key")})
    assert refusal(stage, "Read", {"file_path": str(stage.file)}) == ""


def test_the_state_folder_of_this_machine_is_out_of_reach(stage: Stage) -> None:
    assert bash(stage, f"rm -rf '{stage.home}/loops'")
    assert bash(stage, f"cat '{stage.home}/hook.log'") == ""


def test_what_cannot_be_undone_is_refused_and_written_down(stage: Stage) -> None:
    said = bash(stage, "git push --force origin main")
    assert "overwrites" in said
    assert "BLOCKED" in said
    [line] = stage.told("refused")
    assert (line["tool"], line["detail"]) == ("Bash", "git push --force origin main")
    assert bash(stage, "rm -rf build") == ""


def git(stage: Stage, *argv: str) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=e@x"]
    subprocess.run(["git", "-C", str(stage.project), *named, *argv], check=True, timeout=240, capture_output=True)


def test_throwing_changes_away_is_refused_and_nothing_of_the_repositorys_settings_runs(
    stage: Stage, tmp_path: Path
) -> None:
    git(stage, "init", "-q")
    stage.put("x", "1")
    git(stage, "add", "x")
    git(stage, "commit", "-qm", "x")
    git(stage, "config", "filter.f.clean", f"touch '{tmp_path}/ran'; cat")
    stage.put(".gitattributes", "* filter=f\n")
    os.utime(stage.project / "x", (1, 1))
    base = stage.call().event
    for command in ("git reset --hard", "git checkout .", "git clean -fd"):
        denied = stage.launched("PreToolUse", {**base, **event("Bash", {"command": command})})
        assert "committed nowhere" in denied["hookSpecificOutput"]["permissionDecisionReason"]
    assert not (tmp_path / "ran").exists()


def test_the_users_own_lists_count_and_those_of_a_repository_do_not(stage: Stage) -> None:
    stage.put("untildone.toml", '[hook]\nallow = ["*"]\ndeny = ["make*"]\n')
    assert bash(stage, "git push --force")
    assert bash(stage, "make test") == ""
    settings_file = Path(stage.env["HOME"]) / ".config/untildone/config.toml"
    settings_file.parent.mkdir(parents=True)
    settings_file.write_text('[hook]\ndeny = ["npm publish*"]\nallow = ["git push --force"]\n')
    assert "settings forbid" in bash(stage, "npm publish")
    assert bash(stage, "git push --force") == ""
    settings_file.write_text('[hook]\ndeny = ["make *"]\n')
    os.utime(settings_file, ns=(1, 1))
    assert bash(stage, "make x")
    assert bash(stage, "npm publish") == ""
    settings_file.write_text("[hook\n")
    assert bash(stage, "make x") == ""
    assert bash(stage, "rm -rf /")
    assert "does not count" in stage.log


# --- who, and when -----------------------------------------------------------------------------------------------


def test_nobody_outside_the_loop_is_held_back(stage: Stage) -> None:
    assert bash(stage, "rm -rf /", session_id=OTHER) == ""
    assert bash(stage, "rm -rf /", session_id=None) == ""
    on_posttooluse(stage.call(**event("Bash", {}), session_id=OTHER))
    assert stage.told("tool") == []
    stage.change_entry(session="")
    assert bash(stage, "rm -rf /") == ""


def test_a_subagent_is_held_to_the_same(stage: Stage) -> None:
    assert bash(stage, "untildone loop stop", agent_id="a49c71476bb803962", agent_type="general-purpose")


def test_when_time_is_up_nothing_is_begun_any_more(stage: Stage) -> None:
    assert refusal(stage, "Read", {"file_path": "x"}) == ""
    stage.edit(deadline=time.time() - 1)
    assert "deadline" in refusal(stage, "Read", {"file_path": "x"})
    stage.edit(deadline=None)
    stage.change_entry(total_seconds=5.0, created=time.time() - 10)
    assert "time of this loop is up" in refusal(stage, "Bash", {"command": "ls"})
    stage.change_entry(total_seconds=0.0, iteration_seconds=5.0, turn_started=time.time() - 10)
    assert "time of this turn is up" in refusal(stage, "Bash", {"command": "ls"})


def test_a_call_is_one_line_in_the_spool(stage: Stage) -> None:
    on_posttooluse(stage.call(**event("Edit", {"file_path": "x"}), tool_response={}))
    on_posttoolusefailure(stage.call(**event("Bash", {"command": "false"}), error="Exit code 1"))
    assert [(line["tool"], line["ok"], line["edit"]) for line in stage.told("tool")] == [
        ("Edit", True, True),
        ("Bash", False, False),
    ]


def test_through_the_launcher(stage: Stage) -> None:
    base = stage.call().event
    denied = stage.launched("PreToolUse", {**base, **event("Bash", {"command": "untildone loop stop"})})
    assert denied["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert stage.launched("PreToolUse", {**base, **event("Bash", {"command": "ls"})}) == {}
    assert stage.launched("PostToolUse", {**base, **event("Bash", {"command": "ls"})}) == {}
    assert stage.launched("PostToolUseFailure", {**base, **event("Bash", {"command": "ls"})}) == {}
    assert [line["what"] for line in stage.told()][-3:] == ["refused", "tool", "tool"]
    assert stage.log == ""


ODD = st.none() | st.integers() | st.text(max_size=30) | st.lists(st.text(max_size=5), max_size=3)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    tool=st.sampled_from(["Bash", "Edit", "Write", "MultiEdit", "NotebookEdit", "TodoWrite"]) | ODD, value=ODD, cwd=ODD
)
def test_odd_input_is_answered_or_left_alone(stage: Stage, tool: Any, value: Any, cwd: Any) -> None:
    given_input = {"command": value, "file_path": value, "notebook_path": value, "edits": value, "todos": value}
    for tool_input in (given_input, value):
        call = stage.call(**event(tool, tool_input), tool_response=value)
        call.event = {**call.event, "cwd": cwd}
        answer = on_pretooluse(call)
        assert answer is None or answer["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert on_posttooluse(call) is None
