"""Ten central rules, each broken in a copy of the source: a test of `./dev test` must notice. `-rP` shows which one.

Each rule names the file of tests that is asked, so that a rule that loses its test is found here and not by a user.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import untildone

pytestmark = pytest.mark.soak

SOURCE = Path(untildone.__file__).parent
ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    rule: str
    file: str
    old: str
    new: str
    asked: str


MUTATIONS = (
    Mutation(
        "three failures in a row stop a run", "core/decide.py",
        "s.failures_in_a_row >= s.policy.error_threshold", "False", "tests/core/test_decide.py",
    ),
    Mutation(
        "a limit that is reached stops a run", "core/limits.py",
        "limit.used(state, now) >= value - _reserve(limit, value, state) - _EPSILON", "False",
        "tests/core/test_decide.py",
    ),
    Mutation(
        "a driver that lost its lease cannot write", "store/sqlite.py",
        "elif lease is not None and (lease.run_id, lease.token) != (run_id, row[1]):", "elif False:",
        "tests/store/test_event_log.py",
    ),
    Mutation(
        "a cost is counted once", "core/spending.py",
        "spend=total(state.spend, entry)", "spend=total(total(state.spend, entry), entry)", "tests/core/test_fold.py",
    ),
    Mutation(
        "a failed check is no proof", "core/verdict.py",
        "passed=not told,", "passed=True,", "tests/core/test_verdict.py",
    ),
    Mutation(
        "checks run in a fresh checkout of the commit", "witness/examiner.py",
        'if subject.room == "tree":', "if True:", "tests/witness/test_examiner.py",
    ),
    Mutation(
        "the tests of the base judge the new code as well", "engine/judging.py",
        "if base.differ and commands(contract):", "if False:", "tests/engine/test_judging.py",
    ),
    Mutation(
        "iterations without any work open the breaker", "core/breaker.py",
        "if not 0 < policy.stagnation_threshold <= breaker.no_progress:", "if True:", "tests/core/test_breaker.py",
    ),
    Mutation(
        "a streak of claims is broken by an iteration without one", "core/fold.py",
        "streak=state.streak + 1 if done else 0", "streak=state.streak + 1 if done else state.streak",
        "tests/core/test_fold.py",
    ),
    Mutation(
        "what a killed driver had not booked is booked from the transcript", "engine/recover.py",
        "await book_unrecorded(journal, parts, left)", "", "tests/crash/test_crash_points.py",
    ),
    Mutation(
        "a driver whose run was taken over cannot send events", "server/archive/accepting.py",
        "if given < tenure:", "if False:", "tests/server/test_archive_accepting.py",
    ),
    Mutation(
        "known secrets are masked before they leave the machine", "uplink/masking.py",
        "text = without(text, _found(text, wanted))", "pass", "tests/uplink/test_masking.py",
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_broken_rule_is_noticed(tmp_path: Path, mutation: Mutation) -> None:
    copy = tmp_path / "untildone"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1, f"{mutation.file} has changed: name the rule's new place"
    (copy / mutation.file).write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not soak", mutation.asked],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    caught = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    assert done.returncode == 1, done.stdout[-3000:]
    assert caught, done.stdout[-3000:]
    print(f"{mutation.rule}: caught by {caught[0]} and {len(caught) - 1} more")
