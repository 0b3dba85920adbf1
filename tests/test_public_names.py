"""What users import from `untildone`: adding or removing a name is a decision, so it is written down twice."""

import ast
from pathlib import Path

import untildone

NAMES = [
    "Agent", "AgentOptions", "CheckResult", "Claim", "ConfigError", "Event", "FaultEvidence", "LoopState", "Order",
    "Outcome", "Policy", "Reason", "Record", "Report", "Result", "RunSpec", "ScriptedAgent", "Step", "Tending",
    "UntildoneError", "Usage", "decide", "fold", "run", "run_async",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert sorted(untildone.__all__) == sorted(NAMES)


def test_every_public_name_can_be_had() -> None:
    for name in NAMES:
        assert getattr(untildone, name).__name__ == name


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(untildone.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(typed) == sorted(NAMES)
