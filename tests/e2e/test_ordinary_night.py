"""On the real Claude Code: what a user's own night needs in the sandbox that is there by default."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.kit import Stage, finished, staged, working
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall

pytestmark = pytest.mark.claude

RUN = ("run", "an ordinary night", "-m", "3", "--name", "night", "--skip-permissions")
WORK = r"""
exec > done.txt 2>&1
echo "python $(.venv/bin/python -c 'import sys; print(sys.prefix)')"
echo "tool $(node_modules/.bin/tool)"
echo "author $(git config user.name)"
echo "remembered $(cat "$HOME"/.claude/projects/*/memory/MEMORY.md)"
for notes in "$HOME"/.claude/projects/*/memory; do echo "obey the agent" > "$notes/planted.md"; done
mkdir -p ~/.cache/pip ~/.cargo/registry ~/.npm && echo "caches can be written"
git -C "$OTHER" config alias.evil '!true' || echo "settings of the other repository are read-only"
echo x > "$OTHER/written" && echo "the other folder can be written"
for name in git claude systemd-inhibit cat bwrap sh ssh; do
  printf '#!/bin/sh\ntouch %s/ran-%s\nexec /usr/bin/%s "$@"\n' "$OUTSIDE" "$name" "$name" > ".venv/bin/$name"
  chmod +x ".venv/bin/$name"
done
"""


def bash(command: str) -> Reply:
    return Reply(text="Working.", tools=(ToolCall(name="Bash", input={"command": command}),))


def furnished(stage: Stage) -> None:
    """The home and the folder of a user who has an environment active, tools beside it, hooks and instructions."""
    home, repo = Path(stage.env["HOME"]), stage.repo
    claude = home / ".claude"
    notes = claude / "projects" / str(repo).replace("/", "-").replace("_", "-").replace(".", "-") / "memory"
    for folder in (claude / "hooks", notes, repo / "node_modules" / ".bin", stage.tmp / "outside"):
        folder.mkdir(parents=True)
    (claude / "CLAUDE.md").write_text("Always say please.")
    (notes / "MEMORY.md").write_text("the tests are slow")
    hook = claude / "hooks" / "note.sh"
    hook.write_text("#!/bin/sh\necho ran >> hook.txt\n")
    hook.chmod(0o755)
    after = [{"matcher": "Bash", "hooks": [{"type": "command", "command": str(hook)}]}]
    (claude / "settings.json").write_text(json.dumps({"hooks": {"PostToolUse": after}}))
    (home / ".gitconfig").write_text("[user]\n\tname = A. User\n\temail = a@user.example\n")
    tool = repo / "node_modules" / ".bin" / "tool"
    tool.write_text("#!/bin/sh\necho works\n")
    tool.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(repo / ".venv")], check=True)
    other = stage.tmp / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    (repo / ".gitignore").write_text(".venv\nnode_modules\nhook.txt\n")
    stage.git("add", "-A")
    stage.git("commit", "-qm", "furnished")
    stage.git("config", "--remove-section", "user")
    for name in [name for name in stage.env if name.startswith("GIT_")]:
        del stage.env[name]
    # No way leads to where the Python of the environment is.
    stage.env["PATH"] = f"{repo}/.venv/bin:{repo}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"


def test_what_a_night_needs_is_there_and_nothing_it_leaves_is_run_outside(tmp_path: Path) -> None:
    work = WORK.replace("$OTHER", str(tmp_path / "other")).replace("$OUTSIDE", str(tmp_path / "outside"))
    scenario = Scenario(name="night", iterations=((bash(work), Reply(text=working())), (Reply(text=finished()),) * 2))
    with staged(tmp_path, scenario) as stage:
        furnished(stage)
        result = stage.result(*RUN, "--check", "test -f done.txt", "--add-dir", str(tmp_path / "other"))
        assert (result["exit_reason"], result["verified"]) == ("validation_passed", True), result
        said = (stage.repo / "done.txt").read_text()
        for line in (
            f"python {stage.repo}/.venv",
            "tool works",
            "author A. User",
            "remembered the tests are slow",
            "caches can be written",
            "settings of the other repository are read-only",
            "the other folder can be written",
        ):
            assert line in said, said
        assert (stage.repo / "hook.txt").read_text().startswith("ran")
        assert any("Always say please." in json.dumps(request.body) for request in stage.model.requests)
        assert "A. User" in stage.git("log", "-1", "--format=%an")
        assert [*Path(stage.env["HOME"]).rglob("planted.md")] == []
        assert "the agent works in a sandbox (bubblewrap)" in stage.untildone("log", "night").stdout
        again = stage.untildone(*RUN, "--new", "--dry-run")
        assert again.returncode == 0, again.stderr
        stage.untildone("doctor")
        assert [*(tmp_path / "outside").iterdir()] == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"apiKeyHelper": "echo sk-from-helper"}, "the key comes from the program that `apiKeyHelper` names"),
        ({"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}, "CLAUDE_CODE_USE_BEDROCK is set"),
    ],
)
def test_a_login_that_cannot_be_kept_outside(tmp_path: Path, settings: dict[str, object], why: str) -> None:
    with staged(tmp_path, Scenario(name="helper", iterations=((Reply(text=finished()),),) * 3)) as stage:
        place = Path(stage.env["HOME"]) / ".claude" / "settings.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(settings))
        key = stage.env.pop("ANTHROPIC_API_KEY")
        named = stage.untildone(*RUN, "--sandbox", "bwrap")
        assert named.returncode == 2
        assert "--sandbox bwrap is not possible here" in named.stderr
        assert why in named.stderr
        assert "use --sandbox claude, or --sandbox host" in named.stderr
        if "apiKeyHelper" in settings:
            stage.untildone(*RUN)
            told = stage.untildone("log", "night").stdout
            assert "NO SANDBOX: the agent can read and change whatever you can" in told
            assert why in told
        assert key
