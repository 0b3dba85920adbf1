"""Rules about the shape of the source: small functions, documented public names, a pure core."""

import ast
from pathlib import Path

import pytest

import untildone

ROOT = Path(untildone.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FUNCTION_LINES = 30
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_something_to_measure() -> None:
    assert len(FILES) > 20


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "services", "misc"])
def test_no_room_is_a_bag(word: str) -> None:
    assert [relative(path) for path in FILES if word in path.with_suffix("").parts] == []


def undocumented(tree: ast.Module) -> list[str]:
    definitions = [node for node in tree.body if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    return [node.name for node in definitions if not node.name.startswith("_") and ast.get_docstring(node) is None]


def reaches_out(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="open" | "print" | "input")):
            return True
        case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now" | "today" | "utcnow"):
            return True
        case _:
            return False


def test_functions_are_small_public_names_documented_and_the_core_reads_no_clock_and_no_file() -> None:
    """One test: to parse all of the source takes a second."""
    sizes: list[int] = []
    without_docstring: list[str] = []
    impure: list[str] = []
    for path in FILES:
        tree = ast.parse(path.read_bytes())
        without_docstring += [f"{relative(path)}:{name}" for name in undocumented(tree)]
        is_core = path.parent == ROOT / "core"
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                sizes.append((node.end_lineno or node.lineno) - node.lineno + 1)
            elif is_core and reaches_out(node):
                impure.append(relative(path))
    assert sorted(sizes)[int(len(sizes) * 0.9)] < FUNCTION_LINES, "nine functions in ten fit on a screen"
    assert without_docstring == []
    assert impure == []
