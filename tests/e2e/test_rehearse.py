"""The first thing a newcomer runs: a whole story on the real Claude Code, no key, no cost."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.claude


def rehearse(tmp: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp), "TMPDIR": str(tmp), "LANG": "C.UTF-8"}
    return subprocess.run(
        [sys.executable, "-m", "untildone", "rehearse", *args],
        cwd=tmp, env=env, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def test_the_story_is_lived_through_to_a_verified_end(tmp_path: Path) -> None:
    done = rehearse(tmp_path)
    assert done.returncode == 0, done.stderr
    shown = done.stdout
    for said in (
        "waiting for the rate limit",
        "same session",
        "checks failed",
        "checks passed",
        "done and verified",
        "# Briefing",
        "Results stay floats",
        "below absolute zero",
        "not: git push",
    ):
        assert said in shown, said
    assert "untildone brief" not in shown
    assert "git log" not in shown
    assert "API key" not in shown, "nobody has paid"
    assert max(map(len, shown.split("That was a rehearsal")[1].splitlines())) < 80
    assert "Traceback" not in shown + done.stderr
    assert list(tmp_path.glob("untildone-rehearsal-*")) == [], "nothing is left behind"


@pytest.mark.soak
def test_its_result_as_json(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "--json")
    result: dict[str, Any] = json.loads(done.stdout)
    assert list(result) == [
        "run_id", "name", "exit_reason", "success", "verified", "loops_completed", "attempts", "total_cost_usd",
        "elapsed_seconds", "total_tasks_completed", "total_files_modified", "final_status", "rate_limit_hit", "error",
    ]  # fmt: skip
    facts = [result[key] for key in ("exit_reason", "success", "verified", "attempts", "rate_limit_hit", "error")]
    assert facts == ["validation_passed", True, True, 3, True, None]
