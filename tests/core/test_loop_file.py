"""The state file: read as people write it, changed without touching what was not meant."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untildone.core.loop_file import DEFAULT_MAX_ITERATIONS, LoopFile, changed, deadline_after, new_file, parse

OLDER = """\
---
iteration_count: 1
max_iterations: 15
completion_promise: "✅ All tests passing"
active: true
---

Goal: Fix failing tests in test_auth.py
- Run pytest
"""
line_text = st.text(alphabet=st.characters(blacklist_characters="\n"), max_size=40)
promises = st.lists(st.text(max_size=30).map(str.strip).filter(bool), max_size=3).map(tuple)
several = st.lists(st.text(max_size=30).filter(lambda item: bool(item.strip())), max_size=3).map(tuple)
# Most texts are near misses of a state file: settings of all kinds, or anything between the two lines.
setting = st.sampled_from(
    ["iteration_count: 3", "max_iterations: 7 # seven", "active: FALSE", "# a word", "", "checks:", "  - pytest", "- x",
     "completion_promise: [a, 'b']", 'completion_promise: "a|b"', "session_id: s", "deadline: 07:00", "other: {a: 1}",
     "next: [one", "iteration_count: 4", "deadline: 2027-01-01"]
)  # fmt: skip
state_texts = st.builds(
    lambda lines, body, end, bom: f"{bom}---{end}" + "".join(line + end for line in lines) + f"---{end}" + body,
    st.lists(st.one_of(setting, line_text), max_size=8),
    st.text(max_size=200),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "\ufeff"]),
)


def read(settings: str, body: str = "\nThe goal\n") -> LoopFile:
    found = parse(f"---\n{settings}---\n{body}")
    assert found is not None
    return found


def body_of(text: str) -> str:
    found = parse(text)
    assert found is not None
    return found.body


# --- reading ---------------------------------------------------------------------------------------------------


def test_a_file_of_the_older_layout_is_read() -> None:
    found = parse(OLDER, "stravinsky")
    assert found is not None
    assert (found.iteration, found.max_iterations, found.promises) == (1, 15, ("✅ All tests passing",))
    assert (found.active, found.layout) == (True, "stravinsky")
    assert found.body == "\nGoal: Fix failing tests in test_auth.py\n- Run pytest\n"


@pytest.mark.parametrize("ending", ["---", "---\n", "---  \n", "---\r\n"])
def test_nothing_has_to_follow_the_last_line(ending: str) -> None:
    found = parse(f"---\nactive: true\n{ending}")
    assert found is not None
    assert found.body == ""


@pytest.mark.parametrize("lead", ["", "\ufeff"])
def test_windows_line_ends_and_a_byte_order_mark(lead: str) -> None:
    found = parse(f"{lead}---\r\nmax_iterations: 3\r\ncompletion_promise: done: really\r\n---\r\nbody\r\n")
    assert found is not None
    assert (found.max_iterations, found.promises, found.body) == (3, ("done: really",), "body\r\n")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("All tests passing", ("All tests passing",)),
        ('"All tests passing"', ("All tests passing",)),
        ("'it''s done'", ("it's done",)),
        (r'"say \"yes\" \\ 🎉"', ('say "yes" \\ 🎉',)),
        ('Say "yes": now', ('Say "yes": now',)),
        ('"yes" and "no"', ('"yes" and "no"',)),
        ('"never closed', ('"never closed',)),
        ("a # a comment", ("a",)),
        ("issue#12", ("issue#12",)),
        ('"a # b" # a comment', ("a # b",)),
        ('"A|B | C"', ("A", "B", "C")),
        ("A|B", ("A", "B")),
        ("[A, 'B, C', \"D|E\"]", ("A", "B, C", "D|E")),
        ("[x] all boxes", ("[x] all boxes",)),
        ("[x", ("[x",)),
        ("[]", ()),
        ('""', ()),
        ("", ()),
        ("|", ()),
    ],
)
def test_promises_as_people_write_them(written: str, meant: tuple[str, ...]) -> None:
    assert read(f"completion_promise: {written}\n").promises == meant


def test_a_list_may_stand_below_its_name() -> None:
    found = read(
        'completion_promise:\n  - A|B # both\n  - "C"\nchecks:\n- pytest -q\n# a comment\n- make "a b"\nactive: true\n'
    )
    assert found.promises == ("A|B", "C")
    assert found.checks == ("pytest -q", 'make "a b"')


def test_what_is_missing_has_a_value() -> None:
    found = read("")
    assert (found.iteration, found.max_iterations, found.promises) == (0, DEFAULT_MAX_ITERATIONS, ())
    assert (found.active, found.session, found.deadline, found.checks, found.next) == (True, "", None, (), ())


def test_the_older_layout_is_only_active_when_it_says_so() -> None:
    found = parse("---\nmax_iterations: 3\n---\n", "stravinsky")
    assert found is not None
    assert not found.active


@pytest.mark.parametrize("word", ["true", "True", "TRUE", '"true"'])
def test_true_in_any_case(word: str) -> None:
    assert read(f"active: {word}\n").active


@pytest.mark.parametrize(
    "text",
    [
        "", "no settings", "---\n", "---\nactive: true\n", " ---\n---\n", "--- x\n---\n", "# t\n---\nactive: x\n---\n",
        "---\niteration_count: many\n---\n", "---\nmax_iterations: -1\n---\n", "---\nmax_iterations: 1.5\n---\n",
        "---\nmax_iterations: 99999999999999999999\n---\n", "---\nmax_iterations: [1]\n---\n", "---\nactive: so\n---\n",
        "---\nactive:\n---\n", "---\ndeadline: soon\n---\n", "---\ndeadline: 25:00\n---\n", "---\njust words\n---\n",
        "---\n- a\n---\n", "---\nsession_id: [a]\n---\n", "---\ndeadline: 99999-01-01\n---\n",
        "---\nmax_iterations: \u0661\n---\n",
    ],
)  # fmt: skip
def test_what_is_no_state_file(text: str) -> None:
    assert parse(text) is None


# --- deadlines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("1794805200", 1794805200.0),
        ("1794805200.5", 1794805200.5),
        ("2026-11-16T05:00:00Z", 1794805200.0),
        ("2026-11-16 06:00+01:00", 1794805200.0),
        ("null", None),
    ],
)
def test_a_deadline_is_a_moment(written: str, moment: float | None) -> None:
    assert read(f"deadline: {written}\n").deadline == moment


def test_a_time_of_day_is_the_next_one() -> None:
    found = read("deadline: 7:30\n")
    assert (found.deadline, found.clock) == (None, "7:30")
    evening = time.mktime((2026, 11, 16, 22, 0, 0, 0, 0, -1))
    assert time.localtime(deadline_after("7:30", evening))[:5] == (2026, 11, 17, 7, 30)
    assert time.localtime(deadline_after("23:00", evening))[:5] == (2026, 11, 16, 23, 0)
    assert time.localtime(deadline_after("22:00", evening))[:5] == (2026, 11, 17, 22, 0)


def test_a_deadline_that_is_none_says_so() -> None:
    with pytest.raises(ValueError, match="tomorrow"):
        deadline_after("tomorrow", time.time())


# --- changing --------------------------------------------------------------------------------------------------


def test_only_the_line_in_question_changes() -> None:
    text = '---\r\n# mine\r\niteration_count:   1   # now\r\nother: [kept\r\nactive: "true"\r\n---\r\n\r\nG\x00\udc80'
    assert changed(text, iteration=2) == text.replace("iteration_count:   1   # now", "iteration_count: 2   # now")


def test_a_list_is_replaced_whole() -> None:
    text = "---\nchecks: # these\n  - a\n  - b\n\n# next comes the flag\nactive: true\n---\n"
    assert changed(text, checks=("c",)) == '---\nchecks:\n  - "c"\n\n# next comes the flag\nactive: true\n---\n'


def test_what_was_not_there_comes_last_and_what_is_taken_away_is_gone() -> None:
    text = changed("---\nactive: true\n---\nG", session="s", deadline=1794805200)
    found = parse(text)
    assert found is not None
    assert (found.session, found.deadline, found.body) == ("s", 1794805200.0, "G")
    assert changed(text, session=None, deadline=None) == "---\nactive: true\n---\nG"


def test_a_name_that_stands_twice_is_set_once() -> None:
    text = changed("---\niteration_count: 1\nactive: true\niteration_count: 5\n---\n", iteration=6)
    assert text == "---\nactive: true\niteration_count: 6\n---\n"


def test_what_is_no_state_file_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="not a state file"):
        changed("just a goal", iteration=2)


def test_a_new_file_can_be_read_back() -> None:
    found = parse(new_file("Do it", promises=("DONE",), max_iterations=3, checks=("pytest -q",), next=("a: b",)))
    assert found is not None
    assert (found.iteration, found.max_iterations, found.active) == (1, 3, True)
    assert (found.promises, found.checks, found.next, found.body.strip()) == (
        ("DONE",),
        ("pytest -q",),
        ("a: b",),
        "Do it",
    )


@settings(max_examples=40)
@given(text=state_texts, iteration=st.integers(0, 10**9 - 1))
def test_counting_keeps_every_other_byte(text: str, iteration: int) -> None:
    before = parse(text)
    if before is None:
        return
    after = changed(text, iteration=iteration)
    found = parse(after)
    assert found is not None
    assert (found.iteration, found.body) == (iteration, before.body)
    assert found.promises == before.promises
    assert after.endswith(before.body)
    assert changed(after, iteration=iteration) == after


@given(
    text=state_texts,
    fields=st.fixed_dictionaries(
        {
            "promises": promises,
            "checks": several,
            "next": several,
            "session": st.text(max_size=40),
            "active": st.booleans(),
            "max_iterations": st.integers(0, 10**6),
            "deadline": st.integers(0, 4 * 10**9),
        }
    ),
)
def test_what_is_set_is_read_back(text: str, fields: dict[str, object]) -> None:
    before = parse(text)
    if before is None:
        return
    found = parse(changed(text, **fields))
    assert found is not None
    assert {name: getattr(found, name) for name in fields} == fields
    assert (found.body, found.iteration, found.clock) == (before.body, before.iteration, "")


@given(text=st.one_of(st.text(), state_texts, st.text().map("---\n{}\n---\n".format)))
def test_any_text_is_a_state_file_or_none(text: str) -> None:
    found = parse(text)
    assert found is None or text.endswith(found.body)


@given(goal=st.text())
def test_any_goal_is_kept(goal: str) -> None:
    assert body_of(new_file(goal)) == f"\n{goal}\n"
