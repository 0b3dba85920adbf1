"""What is read for a page, however it was packed."""

import gzip

from core.run_kit import after, started
from server.archive_kit import stored
from untildone.core import events as ev
from untildone.core.event import Record
from untildone.core.wire import Order
from untildone.server.archive.port import StoredEvent
from untildone.server.pages.gathering import notes_text, said_of


def test_notes_are_unpacked_and_made_safe() -> None:
    assert notes_text(gzip.compress(b"# Notes\n\x1b[31mred\x07")) == "# Notes\nred␇"


def test_a_bomb_is_opened_no_further_than_a_page() -> None:
    assert len(notes_text(gzip.compress(b"x" * 50_000_000))) <= 64 * 1024


def test_what_is_no_parcel_is_nothing() -> None:
    assert notes_text(b"not gzip") == ""
    assert notes_text(b"") == ""


def test_secrets_in_notes_are_not_shown() -> None:
    key = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6"
    assert key not in notes_text(gzip.compress(f"token {key}".encode()))


def received(seq: int, order: int | None = None) -> StoredEvent:
    [one] = stored([Record(seq=seq, at=1.0, event=ev.MessageReceived(by="ada", content=f"no {seq}", order=order))])
    return one


def test_a_message_newer_than_the_state_has_been_seen_by_nobody() -> None:
    state = after(started(1), ev.MessageReceived(by="ada", content="first"), started(2, messages_shown=1))
    new, old = said_of([received(4), received(9)], [], state)
    assert (new.text, new.seen, new.said) == ("no 9", False, "waits for the next iteration")
    assert (old.text, old.seen) == ("no 4", True)


def test_a_message_is_on_its_way_only_until_it_has_arrived() -> None:
    orders = [Order(number=n, kind="message", by="ada", at=1.0, data={"content": f"order {n}"}) for n in (1, 2)]
    assert [one.text for one in said_of([received(9, order=1)], orders, after())] == ["order 2", "no 9"]
