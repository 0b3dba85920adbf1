"""Python tests, read as Python: which of them a runner would collect, and which of those look at anything."""

import ast
import re
from collections.abc import Iterator, Sequence

_MOST = 400_000
"""Characters: what is longer is left to those who read lines."""
_ASSERTING = re.compile(r"assert|raises|warns|expect|check|verify|ensure|fail|should|match|approx", re.IGNORECASE)
_SWALLOWS = frozenset({"AssertionError", "Exception", "BaseException"})

_Def = ast.FunctionDef | ast.AsyncFunctionDef


def collected_tests(text: str | None) -> dict[str, int] | None:
    """The names of the tests that would be run, and how much each of them looks at; None: it cannot be read."""
    if text is None or len(text) > _MOST:
        return None
    try:
        module = ast.parse(text)
        found: dict[str, int] = {}
        for name, test in _in_block(module.body, in_class=False):
            # Whatever has the name last is what is run.
            if test is None:
                found.pop(name, None)
            else:
                found[name] = sum(1 for _ in _looks(test.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found


def _in_block(block: Sequence[ast.stmt], *, in_class: bool) -> Iterator[tuple[str, _Def | None]]:
    """Names that a block binds: to a test, or to something else."""
    for statement in block:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.name, statement if statement.name.startswith("test") else None
            case ast.ClassDef() if not in_class and _is_collected(statement):
                yield from _in_block(statement.body, in_class=True)
            case ast.If() if not _is_false(statement.test):
                yield from _in_block(statement.body, in_class=in_class)
                yield from _in_block(statement.orelse, in_class=in_class)
            case ast.If():
                yield from _in_block(statement.orelse, in_class=in_class)
            case ast.Try() | ast.With():
                yield from _in_block(statement.body, in_class=in_class)
            case ast.Assign():
                yield from ((name.id, None) for name in statement.targets if isinstance(name, ast.Name))
            case ast.Delete():
                yield from ((name.id, None) for name in statement.targets if isinstance(name, ast.Name))
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="_exit"))):
                return
            case _:
                pass


def _is_collected(defined: ast.ClassDef) -> bool:
    return defined.name.startswith("Test") or bool(defined.bases)


def _is_false(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and not test.value


def _is_true(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(map(_is_true, test.values))
    return isinstance(test, ast.Constant) and bool(test.value)


def _looks(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that can make a test fail on purpose, as far as they are reached."""
    for statement in block:
        match statement:
            case ast.Return():
                return
            case ast.Assert():
                yield from [] if _is_true(statement.test) else [statement]
            case ast.Try():
                yield from _tried(statement)
            case ast.If():
                yield from [] if _is_false(statement.test) else _looks(statement.body)
                yield from _looks(statement.orelse)
            case ast.For() | ast.AsyncFor() | ast.While():
                yield from _looks(statement.body)
            case ast.With() | ast.AsyncWith():
                yield from _held(statement)
            case ast.Raise() | ast.Expr(value=ast.Call() | ast.Await()):
                # It may be a function that looks: nobody can know.
                yield statement
            case ast.Assign() if _asserts(statement.value):
                yield statement
            case _:
                pass


def _held(statement: ast.With | ast.AsyncWith) -> Iterator[ast.stmt]:
    if any(_asserts(item.context_expr) for item in statement.items):
        yield statement
    yield from _looks(statement.body)


def _tried(statement: ast.Try) -> Iterator[ast.stmt]:
    if not any(map(_swallows, statement.handlers)):
        yield from _looks(statement.body)
    yield from _looks([*statement.orelse, *statement.finalbody])
    for handler in statement.handlers:
        yield from _looks(handler.body)


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Whether a failed assertion ends here without a word."""
    if any(isinstance(part, ast.Raise | ast.Assert | ast.Call) for line in handler.body for part in ast.walk(line)):
        return False
    caught = handler.type
    names = [caught] if not isinstance(caught, ast.Tuple) else caught.elts
    return caught is None or any(isinstance(name, ast.Name) and name.id in _SWALLOWS for name in names)


def _asserts(value: ast.expr) -> bool:
    called = value.value if isinstance(value, ast.Await) else value
    if not isinstance(called, ast.Call):
        return False
    name = called.func.attr if isinstance(called.func, ast.Attribute) else getattr(called.func, "id", "")
    return bool(_ASSERTING.search(name))
