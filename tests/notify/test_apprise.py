"""Channels through apprise. It is an extra: a stand-in with its interface takes its place here."""

import sys
from types import ModuleType
from typing import Any

import pytest

from notify.ear import NOTE
from untildone.errors import ConfigError
from untildone.notify.apprise import AppriseChannel
from untildone.notify.opening import open_notifiers

pytestmark = pytest.mark.anyio


class StandIn:
    """What this room uses of `apprise.Apprise`."""

    answer: Any = True
    sent: list[dict[str, str]]

    def __init__(self) -> None:
        StandIn.sent = []

    def add(self, servers: str) -> bool:
        return servers.startswith("tgram://")

    def notify(self, body: str, title: str = "", notify_type: str = "info") -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        StandIn.sent.append({"title": title, "body": body, "notify_type": notify_type})
        return self.answer


@pytest.fixture
def apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("apprise")
    monkeypatch.setattr(module, "Apprise", StandIn, raising=False)
    monkeypatch.setitem(sys.modules, "apprise", module)


@pytest.mark.usefixtures("apprise")
async def test_a_note_goes_out_with_its_weight() -> None:
    channel = AppriseChannel("tgram://s3cret/chat")
    assert await channel.send(NOTE) == ""
    assert StandIn.sent == [{"title": NOTE.title, "body": NOTE.body, "notify_type": "failure"}]
    assert channel.name == "tgram://…"


@pytest.mark.usefixtures("apprise")
@pytest.mark.parametrize("answer", [False, None])
async def test_what_apprise_could_not_deliver_is_said(answer: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "answer", answer)
    assert "apprise could not deliver it" in await AppriseChannel("tgram://s3cret/chat").send(NOTE)


@pytest.mark.usefixtures("apprise")
async def test_an_address_apprise_does_not_know_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="no address that apprise understands") as refused:
        AppriseChannel("nonsense://s3cret")
    assert "s3cret" not in str(refused.value)


async def test_without_apprise_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"pip install 'untildone\[notify\]'") as refused:
        open_notifiers(["https://example.com/x", "tgram://s3cret/chat"])
    assert "s3cret" not in str(refused.value)
