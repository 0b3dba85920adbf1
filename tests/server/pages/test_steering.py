"""A form becomes an order, or one line that says why it is none."""

import pytest

from untildone.errors import UsageError
from untildone.server.pages.steering import order_of


def test_a_message() -> None:
    form = {"kind": "message", "content": " go\r\non ", "urgent": "yes"}
    wanted = {"content": "go\non", "message_type": "user_message", "urgent": True}
    assert order_of(form) == ("message", wanted)


def test_stops_pauses_and_patterns() -> None:
    assert order_of({"kind": "stop", "after_iteration": "yes"}) == ("stop", {"after_iteration": True})
    assert order_of({"kind": "stop", "after_iteration": ""}) == ("stop", {"after_iteration": False})
    assert order_of({"kind": "pause"}) == ("pause", {})
    assert order_of({"kind": "waive", "patterns": "tests/a.py\n\n docs/* "})[1] == {
        "patterns": ["tests/a.py", "docs/*"]
    }


def test_only_limits_that_differ_from_what_was_shown() -> None:
    form = {
        "kind": "limits", "max_runs": "20", "was_max_runs": "20", "max_cost_usd": "$1,200.50", "was_max_cost_usd": "5",
        "max_tokens": "", "was_max_tokens": "100", "max_duration": "1h30m", "deadline": "2026-01-31 07:30",
    }  # fmt: skip
    assert order_of(form)[1] == {
        "max_cost_usd": 1200.5, "max_tokens": None, "max_duration": 5400.0, "deadline": 1769844600.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "no such order"),
        ({"kind": "__class__"}, "no such order"),
        ({"kind": "limits", "max_runs": "3", "was_max_runs": "3"}, "no limit was changed"),
        ({"kind": "limits", "max_runs": "many"}, "'many' is not a value for max runs: write it like 20"),
        ({"kind": "limits", "max_runs": "9" * 5000}, "is not a value for max runs"),
        ({"kind": "limits", "max_duration": "soon"}, "write it like 1h30m"),
        ({"kind": "limits", "deadline": "tomorrow"}, "write it like 2026-01-31 07:30"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(form: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        order_of(form)
    assert "\n" not in str(refused.value)
