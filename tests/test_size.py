"""Rules about the shape of the source: small functions, documented public names, a pure core."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import untildone

ROOT = Path(untildone.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FUNCTION_LINES = 30


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{relative(path)}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_is_something_to_measure() -> None:
    assert len(FILES) > 20


def test_nine_functions_in_ten_fit_on_a_screen() -> None:
    sizes = sorted(size for path in FILES for _, size in functions(path))
    assert sizes[int(len(sizes) * 0.9)] < FUNCTION_LINES


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "services", "misc"])
def test_no_room_is_a_bag(word: str) -> None:
    assert [relative(path) for path in FILES if word in path.with_suffix("").parts] == []


def public_definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def test_every_public_name_has_a_docstring() -> None:
    named = [(path, node) for path in FILES for node in public_definitions(path)]
    assert [f"{relative(path)}:{node.name}" for path, node in named if ast.get_docstring(node) is None] == []


def reaches_out(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="open" | "print" | "input")):
            return True
        case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now" | "today" | "utcnow"):
            return True
        case _:
            return False


def test_the_core_reads_no_clock_and_no_file() -> None:
    nodes = [(path, node) for path in (ROOT / "core").glob("*.py") for node in ast.walk(ast.parse(path.read_bytes()))]
    assert [relative(path) for path, node in nodes if reaches_out(node)] == []
