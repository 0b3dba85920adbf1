"""A form becomes an order, or one line that says why it is none."""

import re

import pytest

from untildone.core.policy import Policy
from untildone.errors import UsageError
from untildone.server.pages.steering import order_of

HELD = Policy(max_runs=20, max_cost_usd=5.0, max_tokens=100)


def test_a_message() -> None:
    form = {"kind": "message", "content": " go\r\non ", "urgent": "yes"}
    wanted = {"content": "go\non", "message_type": "user_message", "urgent": True}
    assert order_of(form, HELD) == ("message", wanted)


def test_stops_pauses_and_patterns() -> None:
    assert order_of({"kind": "stop", "after_iteration": "yes"}, HELD) == ("stop", {"after_iteration": True})
    assert order_of({"kind": "stop", "after_iteration": ""}, HELD) == ("stop", {"after_iteration": False})
    assert order_of({"kind": "pause"}, HELD) == ("pause", {})
    assert order_of({"kind": "waive", "patterns": "tests/a.py\n\n docs/* "}, HELD)[1] == {
        "patterns": ["tests/a.py", "docs/*"]
    }


def test_only_limits_that_differ_from_what_was_shown() -> None:
    form = {
        "kind": "limits", "max_runs": "20", "was_max_runs": "20", "max_cost_usd": "$1200.50", "was_max_cost_usd": "5",
        "max_tokens": "", "was_max_tokens": "100", "max_duration": "1h30m", "deadline": "2026-01-31T07:30Z",
    }  # fmt: skip
    assert order_of(form, HELD)[1] == {
        "max_cost_usd": 1200.5, "max_tokens": None, "max_duration": 5400.0, "deadline": 1769844600.0,
    }  # fmt: skip


def test_limits_are_compared_with_those_that_hold() -> None:
    back = {"kind": "limits", "max_runs": "20", "was_max_runs": "25"}
    assert order_of(back, Policy(max_runs=25))[1] == {"max_runs": 20}
    with pytest.raises(UsageError, match="no limit was changed"):
        order_of(back, Policy(max_runs=20))
    # Left as it was shown: what another has set meanwhile is not taken back, and not kept secret either.
    left = {"kind": "limits", "max_runs": "20", "was_max_runs": "20"}
    with pytest.raises(UsageError, match="meanwhile runs became 25: look again"):
        order_of(left, Policy(max_runs=25))
    both = left | {"max_cost_usd": "9", "was_max_cost_usd": "5"}
    assert order_of(both, Policy(max_runs=25, max_cost_usd=5.0))[1] == {"max_cost_usd": 9.0}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("max_runs", "0", "runs must be more than zero: leave the field empty for no limit"),
        ("max_cost_usd", "0.00", "budget must be more than zero: leave the field empty for no limit"),
        ("max_cost_usd", "7,50", "'7,50' is not a value for budget: write 7.50"),
        ("max_cost_usd", "$7,5", "write 7.5"),
        ("max_cost_usd", "1,200", "write it like 12.50, without commas"),
        ("max_cost_usd", "1,200.50", "write it like 12.50, without commas"),
        ("max_cost_usd", "1.200,50", "write it like 12.50, without commas"),
        ("max_cost_usd", "1e3", "write it like 12.50"),
        ("max_cost_usd", "1_0", "write it like 12.50"),
        ("max_cost_usd", "nan", "write it like 12.50"),
        ("max_cost_usd", "-3", "write it like 12.50"),
        ("max_cost_usd", "\u0667", "write it like 12.50"),
        ("max_cost_usd", "5 $", "write it like 12.50"),
        ("max_runs", "1,000", "write it like 20, without commas"),
        ("max_runs", "1_000", "write it like 20"),
        ("max_runs", "7.5", "write it like 20"),
        ("max_tokens", "\u0662\u0660", "write it like 20"),
    ],
)
def test_what_is_not_plainly_a_number_is_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said) + "$"):
        order_of({"kind": "limits", name: text}, HELD)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({}, "no such order"),
        ({"kind": "__class__"}, "no such order"),
        ({"kind": "limits", "max_runs": "3", "was_max_runs": "3"}, "no limit was changed"),
        ({"kind": "limits", "max_runs": "many"}, "'many' is not a value for runs: write it like 20"),
        ({"kind": "limits", "max_runs": "9" * 5000}, "is not a value for runs"),
        ({"kind": "limits", "max_duration": "soon"}, "write it like 1h30m"),
        ({"kind": "limits", "deadline": "tomorrow"}, "write it like 2026-01-31T07:30Z"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(form: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        order_of(form, Policy(max_runs=3))
    assert "\n" not in str(refused.value)
