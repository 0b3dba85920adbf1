"""What passes the door is written down, and read back by another loop."""

import os
from dataclasses import replace
from pathlib import Path

from untildone.agents.wire_notes import WireNotes
from untildone.core.wire_book import WireReply

USAGE = {
    "input_tokens": 1000, "output_tokens": 20, "cache_creation_input_tokens": 100,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 100},
}  # fmt: skip
BEGUN = WireReply(status=200, message_id="msg_1", model="claude-sonnet-4-5", usage={"input_tokens": 1000})
WHOLE = WireReply(status=200, message_id="msg_1", model="claude-sonnet-4-5", usage=USAGE, is_whole=True)
PRICE = (1000 * 3 + 20 * 15 + 100 * 6) / 1e6


def test_another_loop_finds_what_was_noted_up_to_the_kill(tmp_path: Path) -> None:
    place = tmp_path / "last-words" / "run.wire"
    first = WireNotes(place)
    assert (first.passed(), place.exists()) == (None, False), "nothing was watched"
    served, cut, _ = first.request(), first.request(), first.request()
    for reply in (BEGUN, WHOLE):
        served(reply)
    cut(WireReply(status=200, message_id="msg_2", model="claude-sonnet-4-5", usage={"input_tokens": 10}))
    with place.open("ab") as file:
        file.write(b'{"request":"9-9","reply":{"stat')  # killed in the middle of it
    second = WireNotes(place)
    found = second.passed()
    assert found is not None
    assert [(reply.message_id, reply.by_wire, reply.usage.output_tokens) for reply in found.replies] == [
        ("msg_1", True, 20)
    ]
    assert abs((found.replies[0].cost_usd or 0) - PRICE) < 1e-12, "an hour's cache costs more"
    assert [(reply.message_id, reply.cost_usd) for reply in found.under_way] == [("msg_2", 30e-6)]
    assert found.unanswered == 1
    second.forget_all()
    assert (second.passed(), place.exists()) == (None, False)


def known(notes: WireNotes) -> tuple[list[str], list[str], list[str]]:
    """Ids of replies that are whole, cut off, and under way."""
    found = notes.passed()
    assert found is not None
    whole, cut, under_way = found.replies, found.begun, found.under_way
    return tuple([reply.message_id for reply in replies] for replies in (whole, cut, under_way))  # type: ignore[return-value, attr-defined]


def test_what_was_shown_is_forgotten_and_what_is_under_way_stays(tmp_path: Path) -> None:
    notes = WireNotes(tmp_path / "run.wire")
    served, lasting = notes.request(), notes.request()
    lasting(BEGUN)
    served(replace(WHOLE, message_id="msg_0"))
    notes.forget()
    assert known(notes) == (["msg_0"], [], ["msg_1"]), "nothing of it had been shown"
    notes.forget()
    served(replace(WHOLE, message_id="msg_0", is_over=True))
    assert known(notes) == ([], [], ["msg_1"]), "it was booked before the connection was closed"
    lasting(WHOLE)
    assert known(notes) == (["msg_1"], [], [])


def test_a_reply_that_broke_off_is_told_from_one_under_way(tmp_path: Path) -> None:
    notes = WireNotes(tmp_path / "run.wire")
    notes.request()(replace(BEGUN, is_over=True))
    assert known(notes) == ([], ["msg_1"], [])
    notes.forget()
    assert notes.passed() is None


def test_an_error_is_known_until_a_reply_comes(tmp_path: Path) -> None:
    notes = WireNotes(tmp_path / "run.wire")
    notes.request()(WireReply(status=429, retry_after=9.0, is_over=True))
    found = notes.passed()
    assert found is not None
    assert (found.refused, found.retry_after, found.unanswered) == (429, 9.0, 0)
    notes.request()(WHOLE)
    assert (found := notes.passed()) is not None
    assert (found.refused, found.retry_after) == (0, None)


def test_a_place_that_cannot_be_written_disturbs_nothing(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "run.wire").symlink_to(tmp_path / "elsewhere")
    for place in (tmp_path / "run.wire", Path(os.devnull) / "run.wire"):
        WireNotes(place).request()(WHOLE)
    assert (tmp_path / "elsewhere").read_text() == "kept"


def test_a_request_whose_client_left_before_the_reply_began_may_have_been_served(tmp_path: Path) -> None:
    notes = WireNotes(tmp_path / "run.wire")
    for reply in (WireReply(status=200, is_over=True), WireReply(status=502, is_over=True), WireReply(status=200)):
        notes.request()(reply)
    found = notes.passed()
    assert found is not None
    assert (found.unseen, found.unanswered) == (1, 1)
