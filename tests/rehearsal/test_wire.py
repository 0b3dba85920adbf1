from untildone.rehearsal import wire
from untildone.rehearsal.scenario import Reply, ToolCall
from untildone.rehearsal.script import Turn


def turn(reply: Reply) -> Turn:
    return Turn(reply, 7, 3, "msg_x_1")


def test_the_numbers_are_filled_in_at_any_depth() -> None:
    tool = ToolCall("Write", {"path": "{i}.txt", "list": ["{n}", 5, {"deep": "{{i}}-{i}-{other}"}]})
    message = wire.message(turn(Reply(text="{n} of {i}, {{n}}", tools=(tool,))), "m")
    assert message["content"] == [
        {"type": "text", "text": "7 of 3, {n}"},
        {
            "type": "tool_use",
            "id": "toolu_x_1_0",
            "name": "Write",
            "input": {"path": "3.txt", "list": ["7", 5, {"deep": "{i}-3-{other}"}]},
        },
    ]


def test_the_stop_reason_follows_from_the_content_unless_it_is_given() -> None:
    call = (ToolCall("Bash"),)
    replies = [Reply(text="x"), Reply(tools=call), Reply(text="x", tools=call, stop_reason="max_tokens")]
    reasons = [wire.message(turn(reply), "m")["stop_reason"] for reply in replies]
    assert reasons == ["end_turn", "tool_use", "max_tokens"]


def test_an_empty_reply_is_an_empty_text() -> None:
    assert wire.message(turn(Reply()), "m")["content"] == [{"type": "text", "text": ""}]


def test_both_kinds_of_cache_writes_are_told_apart() -> None:
    usage = wire.message(turn(Reply(cache_write_tokens=3, cache_write_1h_tokens=4)), "m")["usage"]
    assert usage["cache_creation_input_tokens"] == 7
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}


def test_errors_have_the_names_the_api_gives_them() -> None:
    bodies = [wire.error_body(Reply(status=status))["error"] for status in (401, 429, 503, 529)]
    assert [error["type"] for error in bodies] == [
        "authentication_error",
        "rate_limit_error",
        "api_error",
        "overloaded_error",
    ]
    own = wire.error_body(Reply(status=400, error_type="odd", message="why"))["error"]
    assert own == {"type": "odd", "message": "why"}
