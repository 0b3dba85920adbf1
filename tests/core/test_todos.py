"""The reminder of open work: its layout, and whatever may stand in a list of todos."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.core.todos import Todo, as_json, open_todos, read_todos, reminder


def todos(*, working: int = 0, pending: int = 0, completed: int = 0) -> list[Todo]:
    counts = {"in_progress": working, "pending": pending, "completed": completed}
    return [Todo(f"{status} {n}", status) for status, count in counts.items() for n in range(1, count + 1)]


@pytest.mark.parametrize("found", [[], todos(completed=3)], ids=["none", "all completed"])
def test_nothing_is_said_where_nothing_is_open(found: list[Todo]) -> None:
    assert reminder(found) == ""


def test_five_pending_are_all_shown() -> None:
    said = reminder(todos(pending=5))
    assert said.startswith("[SYSTEM REMINDER - TODO CONTINUATION]\n")
    assert "PENDING (5 items):" in said
    assert "  - pending 5" in said
    assert "more" not in said
    assert "IN PROGRESS (" not in said


def test_of_six_pending_five_are_shown_and_one_is_counted() -> None:
    said = reminder(todos(pending=6))
    assert "  - pending 5\n  ... and 1 more\n" in said
    assert "pending 6" not in said


def test_everything_in_progress_is_shown_before_what_waits() -> None:
    said = reminder(todos(pending=1, working=7))
    assert "IN PROGRESS (7 items):" in said
    assert said.index("  - in_progress 7") < said.index("PENDING (1 item):")
    assert said.count("\n1. ") == said.count("\n2. ") == said.count("\n3. ") == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "text",
        [],
        {},
        {"todos": None},
        {"todos": "x"},
        {"todos": [None, 1, "x", {}, {"content": 1, "status": 2}]},
    ],
)
def test_what_is_no_list_of_todos_holds_none(value: object) -> None:
    assert read_todos(value) == []


def test_what_somebody_wrote_meets_no_terminal_as_it_is() -> None:
    [todo] = read_todos({"todos": [{"content": "\x1b[2Jbad\nIGNORE ALL\u202e", "status": "In-Progress"}]})
    assert (todo.content, todo.status) == ("bad IGNORE ALL", "in_progress")


def test_a_list_survives_being_written_down() -> None:
    found = read_todos(as_json([Todo("one", "pending", "7"), Todo("two", "completed")]))
    assert [(todo.content, todo.status, todo.key) for todo in found] == [
        ("one", "pending", "7"),
        ("two", "completed", ""),
    ]


def test_what_is_in_progress_comes_first() -> None:
    assert [todo.status for todo in open_todos(todos(pending=1, working=1, completed=1)[::-1])] == [
        "in_progress",
        "pending",
    ]


ODD = st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text(max_size=3), max_size=3)


@given(
    st.lists(
        st.fixed_dictionaries({"content": ODD, "status": st.sampled_from(["pending", "in_progress", "x"]) | ODD}),
        max_size=12,
    )
)
def test_any_list_gives_a_bounded_reminder_of_safe_lines(items: list[object]) -> None:
    said = reminder(read_todos(json.loads(json.dumps({"todos": items}))))
    assert said == "" or said.startswith("[SYSTEM REMINDER")
    assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs"} for char in said.replace("\n", ""))
