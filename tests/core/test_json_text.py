import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
LAYOUTS = st.sampled_from([None, 2, 4, "\t"])


@given(OBJECTS, LAYOUTS, st.text(max_size=5), VALUES, st.sampled_from(["\n", "\r\n"]))
def test_an_added_member_is_there_and_the_rest_keeps_its_bytes(
    given_object: dict[str, Any], layout: Any, key: str, value: Any, line_end: str
) -> None:
    text = (json.dumps(given_object, indent=layout) + "\n").replace("\n", line_end)
    changed = json_text.added(text, json_text.root(text), value, key)
    assert json.loads(changed) == {**given_object, key: value}
    if given_object and key not in given_object:
        back = json_text.without(changed, json_text.root(changed), lambda name, _: name == key)
        assert back == text


@given(st.lists(VALUES, max_size=4), LAYOUTS, st.integers(0, 3))
def test_an_element_can_go(values: list[Any], layout: Any, number: int) -> None:
    text = json.dumps({"list": values}, indent=layout)
    at = json_text.member(text, json_text.root(text), "list")
    assert at is not None
    seen = iter(range(len(values) - 1, -1, -1))
    changed = json_text.without(text, at.value_start, lambda _key, _value: next(seen) == number)
    assert json.loads(changed) == {"list": [value for place, value in enumerate(values) if place != number]}


@given(OBJECTS.filter(bool), LAYOUTS, VALUES)
def test_a_value_is_replaced_in_its_place(given_object: dict[str, Any], layout: Any, value: Any) -> None:
    text = json.dumps(given_object, indent=layout)
    key = next(iter(given_object))
    item = json_text.member(text, json_text.root(text), key)
    assert item is not None
    changed = json_text.replaced(text, item, value)
    assert json.loads(changed) == {**given_object, key: value}
    assert list(json.loads(changed)) == list(given_object)


def test_of_two_members_with_one_name_the_last_one_counts() -> None:
    text = '{"a": 1, "a": 2}'
    item = json_text.member(text, 0, "a")
    assert item is not None
    assert json_text.value_of(text, item) == json.loads(text)["a"]


@pytest.mark.parametrize("text", ["{}", " { } ", "\ufeff{}", "[1]", "{\n}"])
def test_the_outermost_value_is_found(text: str) -> None:
    assert text[json_text.root(text)] in "{["
