"""What users import from `untildone`: adding or removing a name is a decision, so it is written down twice."""

import subprocess
import sys

import untildone

PINNED = [
    "Agent", "AgentOptions", "CheckResult", "CheckSpec", "Claim", "ConfigError", "Contract", "Event", "FaultEvidence",
    "Landing", "LoopState", "Order", "Outcome", "Policy", "Reason", "Record", "Report", "Result", "Review", "RunSpec",
    "ScriptedAgent", "Step", "Tending", "UntildoneError", "Usage", "decide", "fold", "run", "run_async",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert untildone.__all__ == PINNED


def test_every_public_name_can_be_used_and_says_what_it_is() -> None:
    missing = [name for name in PINNED if not hasattr(untildone, name)]
    silent = [name for name in PINNED if not getattr(untildone, name).__doc__]
    assert (missing, silent) == ([], [])


def test_no_other_name_is_offered() -> None:
    loaded = "import untildone; print(*sorted(name for name in vars(untildone) if not name.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=240, check=True)
    assert set(done.stdout.split()) <= {*PINNED, "Any", "TYPE_CHECKING", "import_module"}
