"""Reads what is written under the fields of a dataclass, so that help and docs say what the code says."""

import ast
import inspect
import re
from functools import cache
from itertools import pairwise

from untildone.core.settings import HOMES, Setting


@cache
def field_docs(of: type) -> dict[str, str]:
    """The text under each field of a class and of its bases."""
    found: dict[str, str] = {}
    for cls in reversed(of.__mro__[:-1]):
        body = _class_body(cls)
        for statement, following in pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[statement.target.id] = _text(following)
    return found


def meaning(setting: Setting) -> str:
    """What a setting does, in a sentence or two."""
    if setting.help:
        return setting.help
    # The fields speak to programmers; who types a duration has units, and who gives nothing gets the default.
    said = field_docs(HOMES[setting.home])[setting.field].replace("None: ", "Default: ")
    return re.sub(r"^Seconds ", "How long ", said) if setting.kind == "DURATION" else said


def _class_body(cls: type) -> list[ast.stmt]:
    # A trailing `pass` gives the last field something to be followed by.
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls)))
    definition = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    return [*definition.body, ast.Pass()]


def _text(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""
