import subprocess
import sys
from pathlib import Path

from cli.cli_kit import FIRST, SUSPENDED, Runs

RUN_ONCE = "run x --agent claude_cli --claude ./claude --max-iterations 1"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    written = line.replace("untildone", f"{sys.executable} -m untildone")
    return subprocess.run(["bash", "-c", written], capture_output=True, text=True, timeout=240, check=False)


def failing_agent(project: Path) -> None:
    program = project / "claude"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)


def test_a_run_whose_reader_went_away_ends_with_its_own_exit_code(project: Path, store: Path) -> None:
    failing_agent(project)
    said = shell(f"untildone {RUN_ONCE} | true; exit ${{PIPESTATUS[0]}}")
    assert (said.returncode, said.stderr) == (3, "")


def test_a_result_that_cannot_be_written_is_said_and_the_exit_code_stays(project: Path, store: Path) -> None:
    failing_agent(project)
    said = shell(f"untildone {RUN_ONCE} --json > /dev/full")
    assert (said.returncode, said.stderr) == (
        3,
        "untildone: the result could not be written: No space left on device\n",
    )


def test_a_full_disk_behind_the_output_is_no_bug_of_ours(runs: Runs, project: Path) -> None:
    runs.begin(project, *FIRST, SUSPENDED)
    said = shell("untildone status > /dev/full")
    assert (said.returncode, said.stderr) == (
        1,
        "untildone: the output cannot be written: No space left on device\n",
    )


def test_a_closed_error_stream_changes_nothing(project: Path, store: Path) -> None:
    said = shell("untildone run 2>&-")
    assert (said.returncode, said.stdout) == (2, "")
    assert shell("untildone run >&-").returncode == 2
    assert shell("untildone run 2>/dev/full").returncode == 2
