"""What is wrong with a request, in words."""

from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from untildone.server.invalid import what_is_wrong
from untildone.server.orders_api import OrderIn
from untildone.server.starts_api import StartIn

Orders = TypeAdapter(Annotated[OrderIn, Field(discriminator="kind")])
Starts = TypeAdapter(StartIn)
LIBRARY = ("Input", "input", "Field", "valid", "tag", "string", "pydantic")


@pytest.mark.parametrize(
    ("adapter", "given", "said"),
    [
        (Orders, {"kind": "dance"}, "kind: must be one of 'message', "),
        (Orders, {"content": "x"}, "'kind' is missing"),
        (Orders, "x", "must be an object"),
        (Orders, {"kind": "message"}, "content: is missing"),
        (Orders, {"kind": "message", "content": 7}, "content: must be a text"),
        (Orders, {"kind": "message", "content": ""}, "content: must not be empty"),
        (Orders, {"kind": "message", "content": "a\0b"}, "has a character that must not be there"),
        (Orders, {"kind": "message", "content": "x", "urgent": "yes"}, "urgent: must be true or false"),
        (
            Orders,
            {"kind": "message", "content": "x", "message_type": "shout"},
            "message_type: must be 'user_message', ",
        ),
        (Orders, {"kind": "limits", "max_runs": "3"}, "max_runs: must be a whole number"),
        (Orders, {"kind": "limits", "max_runs": -1}, "max_runs: must be more than 0"),
        (Orders, {"kind": "limits", "max_runs": 0}, "max_runs: must be more than 0"),
        (Orders, {"kind": "limits", "max_cost_usd": "7,50"}, "max_cost_usd: must be a number"),
        (Orders, {"kind": "waive", "patterns": []}, "patterns: must have at least 1"),
        (Orders, {"kind": "waive", "patterns": "x"}, "patterns: must be a list"),
        (Orders, {"kind": "stop", "now": True}, "now: there is no such field here"),
        (Starts, {"goal": "x", "folder": "/x"}, "limits: is missing"),
    ],
)
def test_refusals_speak_of_the_request_not_of_a_library(adapter: TypeAdapter[Any], given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python(given)
    told = what_is_wrong(refused.value.errors())
    assert said in told
    assert not any(word in told for word in LIBRARY)


def test_what_nobody_has_words_for_is_told_all_the_same() -> None:
    assert what_is_wrong([{"type": "of_tomorrow", "loc": ("body", "x"), "msg": "odd"}]) == "x: is not as it should be"
