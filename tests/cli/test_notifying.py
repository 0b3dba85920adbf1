"""`untildone notify test`: whether a message really arrives."""

from pathlib import Path

import pytest

from cli.cli_kit import Say
from notify.ear import listening
from untildone.notify import webhook


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook.Webhook.__init__, "__kwdefaults__", {"patience": 5.0, "pauses": ()})


def test_it_arrives(say: Say) -> None:
    with listening() as ear:
        said = say("notify", "test", ear.url)
    assert said == (0, f"http://127.0.0.1:{ear.port}/…: ok\n", "")
    assert [heard["facts"] for heard in ear.heard] == [{"event": "test"}]


def test_one_that_does_not_arrive_is_named_and_the_others_are_told(say: Say) -> None:
    with listening(answers=[404]) as deaf, listening() as ear:
        said = say("notify", "test", deaf.url, ear.url)
    assert said.code == 1
    assert said.out.splitlines() == [
        f"http://127.0.0.1:{deaf.port}/…: it answered 404: check the address",
        f"http://127.0.0.1:{ear.port}/…: ok",
    ]
    assert "s3cret" not in said.out + said.err


def test_without_an_address_the_settings_are_asked(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert say("notify", "test").code == 2
    with listening() as ear:
        monkeypatch.setenv("UNTILDONE_NOTIFY", ear.url)
        said = say("notify", "test")
    assert (said.code, len(ear.heard)) == (0, 1)


def test_an_address_that_is_none_is_refused_in_one_line(say: Say) -> None:
    said = say("notify", "test", "s3cret-and-no-address")
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "s3cret" not in said.err


def test_an_agent_may_not_ring_the_human(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNTILDONE_RUN", "run1")
    with listening() as ear:
        said = say("notify", "test", ear.url)
    assert (said.code, ear.heard) == (5, [])
