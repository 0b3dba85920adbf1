"""Any value of any event: strategies built from the field types themselves."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

# Text JSON can carry as it is; what it cannot is mended, and tested below.
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | INTS | FLOATS | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    float: FLOATS,
    int: INTS,
    bool: st.booleans(),
    NoneType: st.none(),
    Mapping[str, Any]: st.dictionaries(TEXT, JSON, max_size=3),
    dict[str, Any]: st.dictionaries(TEXT, JSON, max_size=3),
    Mapping[str, float | int | None]: st.dictionaries(TEXT, st.none() | INTS | FLOATS, max_size=3),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field type; fails for a kind of type no event has used so far."""
    if hint in PLAIN:
        return PLAIN[hint]
    if get_origin(hint) in {Union, UnionType}:
        return st.one_of([values_of(arm) for arm in get_args(hint)])
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,):
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    assert is_dataclass(hint), f"{hint} is new here: give it a strategy"
    hints = get_type_hints(hint)
    return st.builds(hint, **{field.name: values_of(hints[field.name]) for field in fields(hint)})
