"""The one script: it explains itself, and CI runs nothing but it."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEV = ROOT / "dev"


def dev(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(DEV), *argv], capture_output=True, text=True, timeout=240, check=False)


def test_it_explains_every_verb() -> None:
    text = DEV.read_text(encoding="utf-8")
    cases = text[text.index('case "$verb" in') :]
    verbs = {verb for line in re.findall(r"^    ([a-z |]+)\)", cases, re.MULTILINE) for verb in line.split(" | ")}
    assert len(verbs) >= 8
    usage = dev()
    assert usage.returncode == 0
    assert sorted(verb for verb in verbs - {"help"} if f"\n  {verb} " not in usage.stdout) == []


def test_an_unknown_verb_is_an_error() -> None:
    wrong = dev("dance")
    assert wrong.returncode == 2
    assert "unknown verb 'dance'" in wrong.stderr


@pytest.mark.parametrize("script", ["dev", ".ci/run"])
def test_scripts_are_plain_sh_and_executable(script: str) -> None:
    path = ROOT / script
    assert path.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    assert path.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(path)], timeout=240, check=True)


def test_ci_runs_check_and_test() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("./dev")]
    assert commands == [
        "./dev check",
        "./dev test && exit",
        "./dev test -n 0 --last-failed --last-failed-no-failures none",
    ]
