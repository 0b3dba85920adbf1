"""Rules about the shape of the source: small functions, documented public names, a pure core."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import untildone

ROOT = Path(untildone.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FUNCTION_LINES = 30


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in nodes(path):
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
    for node in tree(path).body:
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
    core = [path for path in FILES if path.parent == ROOT / "core"]
    assert core
    assert [relative(path) for path in core for node in nodes(path) if reaches_out(node)] == []
