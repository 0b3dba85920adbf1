import pytest

from rehearsal.rehearsal_client import body
from untildone.rehearsal.scenario import After, Reply, Scenario
from untildone.rehearsal.script import Script, heard_text


def says(*texts: str) -> tuple[Reply, ...]:
    return tuple(Reply(text=text) for text in texts)


def flat(*replies: Reply, after: After = "repeat_last") -> Script:
    return Script(Scenario(name="s", replies=replies, after=after), "x")


def grouped(*groups: tuple[Reply, ...], after: After = "repeat_last") -> Script:
    return Script(Scenario(name="s", iterations=groups, after=after), "x")


def test_replies_come_in_order_and_the_last_repeats() -> None:
    script = flat(*says("a", "b"))
    assert [script.next(body("hi")).reply.text for _ in range(4)] == ["a", "b", "b", "b"]


def test_a_reply_is_repeated_as_often_as_it_says() -> None:
    script = flat(Reply(text="a", repeat=2), Reply(text="b"))
    assert [script.next(body("hi")).reply.text for _ in range(3)] == ["a", "a", "b"]


def test_a_used_up_script_can_fail_or_end_politely() -> None:
    failing = flat(*says("a"), after="error")
    polite = flat(*says("a"), after="say")
    assert [failing.next(body("hi")).reply.status for _ in range(2)] == [None, 400]
    assert [polite.next(body("hi")).reply.text for _ in range(2)] == ["a", "The script is over."]


def test_each_fresh_conversation_gets_the_next_group() -> None:
    script = grouped(says("1a", "1b"), says("2a"))
    said = [
        script.next(body("hi")),
        script.next(body("hi", "1a", "go")),
        script.next(body("hi", "1a", "go", "1b", "go")),
        script.next(body("hi")),
        script.next(body("hi", "2a", "go")),
        script.next(body("hi")),
    ]
    assert [turn.reply.text for turn in said] == ["1a", "1b", "1b", "2a", "2a", "2a"]
    assert [turn.i for turn in said] == [1, 1, 1, 2, 2, 3]
    assert [turn.n for turn in said] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("after", "text"), [("error", ""), ("say", "The script is over.")])
def test_used_up_groups_end_as_the_scenario_says(after: After, text: str) -> None:
    script = grouped(says("1a"), after=after)
    assert script.next(body("hi"), "s1").reply.text == "1a"
    assert script.next(body("hi", "1a", "go"), "s1").reply.text == text
    assert script.next(body("hi"), "s2").reply.text == text


@pytest.mark.parametrize("failure", [Reply(status=429), Reply(text="long", cut_after=0.5)])
def test_a_repeated_request_stays_in_its_group(failure: Reply) -> None:
    script = grouped((failure, *says("1a")), says("2a"))
    assert script.next(body("hi")).reply is failure
    assert script.next(body("hi")).reply.text == "1a"
    assert script.next(body("hi")).reply.text == "2a"


def test_a_session_tells_a_fresh_start_from_a_repetition() -> None:
    script = grouped((Reply(status=500), *says("1a")), says("2a"))
    assert script.next(body("hi"), "s1").reply.status == 500
    assert script.next(body("hi"), "s2").reply.text == "2a"
    assert script.next(body("hi"), "s1").reply.text == "1a"


def test_sessions_at_the_same_time_keep_their_places() -> None:
    script = grouped(says("1a", "1b"), says("2a", "2b"))
    first = [script.next(body("hi"), session).reply.text for session in ("s1", "s2")]
    later = [script.next(body("hi", "x", "go"), session).reply.text for session in ("s2", "s1")]
    assert (first, later) == (["1a", "2a"], ["2b", "1b"])


def test_a_session_that_goes_on_under_a_new_name_stays_in_its_group() -> None:
    script = grouped(says("1a", "1b"), says("2a"))
    script.next(body("hi"), "s1")
    assert script.next(body("hi", "1a", "go"), "fork").reply.text == "1b"


def test_a_condition_is_looked_for_in_the_last_user_message_and_the_system_prompt() -> None:
    script = flat(Reply(text="special", when="magic", repeat=3), *says("a", "b"))
    tool_result = [{"type": "tool_result", "content": [{"type": "text", "text": "magic"}]}]
    heard = [
        script.next(body("hi")),
        script.next(body("some magic")),
        script.next(body("magic", "a", "hi")),
        script.next({**body("hi"), "messages": [{"role": "user", "content": tool_result}]}),
        script.next(body("hi", system=[{"type": "text", "text": "you do magic"}])),
    ]
    assert [turn.reply.text for turn in heard] == ["a", "special", "b", "special", "special"]


def test_a_used_up_condition_is_only_repeated_where_it_fits() -> None:
    script = flat(*says("a"), Reply(text="special", when="magic"))
    assert [script.next(body("hi")).reply.text for _ in range(2)] == ["a", "a"]
    assert [script.next(body("magic")).reply.text for _ in range(2)] == ["special", "special"]


def test_messages_of_the_system_in_the_conversation_are_not_the_user() -> None:
    messages = [{"role": "user", "content": "task"}, {"role": "system", "content": "date"}]
    assert heard_text({"messages": messages}) == "task"


def test_side_requests_use_up_nothing() -> None:
    script = flat(*says("a"), after="error")
    side = script.next(body("title?", tools=[]))
    assert (side.reply.text, side.n, side.reply.input_tokens) == ("ok", 0, 0)
    assert script.next(body("hi")).reply.text == "a"


def test_a_side_request_can_be_scripted_by_a_condition() -> None:
    script = flat(Reply(text="yes", when="judge"), *says("a"))
    assert script.next(body("hi")).reply.text == "a"
    assert script.next(body("judge this", tools=[])).reply.text == "yes"


def test_message_ids_are_never_given_twice() -> None:
    one, two = flat(*says("a")), Script(Scenario(name="s", replies=says("a")), "y")
    ids = [script.next(body("hi", tools=tools)).message_id for script in (one, two) for tools in ([], [{}], [])]
    assert len(set(ids)) == 6


@pytest.mark.parametrize(
    "hostile",
    [
        {"messages": None, "tools": [1]},
        {"messages": [3, None, {"role": "user"}], "tools": [1]},
        {"messages": [{"role": "user", "content": [None, {"text": 5}, {"content": {"a": 1}}]}], "tools": "x"},
        {"messages": [], "system": {"a": 1}, "tools": {"a": 1}},
    ],
)
def test_strange_requests_get_an_answer_too(hostile: dict[str, object]) -> None:
    assert flat(Reply(text="m", when="nothing of the kind"), *says("a")).next(hostile).reply.text == "a"
