"""What is read for a page, however it was packed."""

import gzip

from untildone.server.pages.gathering import notes_text


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
