"""Notes of what the model served through the door of a sandbox, written down before it is passed on.

They outlive the loop: what a killed loop had let through is booked by the next one, and nothing else is. The model's
own account of a reply is better than Claude Code's: a transcript may hold part of a reply that broke off, and does not
hold what other programs of the agent ask the model for.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from untildone.agents.prices import priced, usage_from
from untildone.core.trace import AgentReply, AgentReplyStarted
from untildone.core.wire_book import OK, WireReply
from untildone.ports import Passed


class _Note(msgspec.Struct):
    request: str
    reply: WireReply


_decode = msgspec.json.Decoder(_Note).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class WireNotes:
    """The notes of one run, in a file that is there from the first request on until all of them are booked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._count = 0
        self._shown: dict[str, WireReply] = {}
        """What is settled of what `passed` returned last."""
        self._forgotten: set[str] = set()
        """Requests whose reply was whole when it was forgotten, and whose connection is open still."""

    def request(self) -> Callable[[WireReply], None]:
        """Note that a request is passed on; returns what is to be told whenever more is known of its answer."""
        self._count += 1
        note = partial(self._write, f"{os.getpid()}-{self._count}")
        note(WireReply())
        return note

    def passed(self) -> Passed | None:
        """All that is noted; None if nothing is."""
        notes = self._read()
        self._shown = {request: reply for request, reply in notes.items() if reply.is_over or reply.is_whole}
        if not notes:
            return None
        answered = [reply for reply in notes.values() if reply.message_id]
        cut = [reply for reply in answered if not reply.is_whole]
        unknown = [reply for reply in notes.values() if reply.status in {0, OK} and not reply.message_id]
        last = next((reply for reply in reversed(notes.values()) if reply.status), WireReply())
        return Passed(
            replies=tuple(_whole(reply) for reply in answered if reply.is_whole),
            begun=tuple(_begun(reply) for reply in cut if reply.is_over),
            under_way=tuple(_begun(reply) for reply in cut if not reply.is_over),
            unseen=sum(reply.is_over for reply in unknown),
            unanswered=sum(not reply.is_over for reply in unknown),
            refused=last.status if last.status != OK else 0,
            retry_after=last.retry_after,
        )

    def forget(self) -> None:
        """Drop what was shown last: it is in the log. What is still being answered stays."""
        left = {request: reply for request, reply in self._read().items() if request not in self._shown}
        self._forgotten |= {request for request, reply in self._shown.items() if not reply.is_over}
        self._shown = {}
        self._close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        for request, reply in left.items():
            self._write(request, reply)

    def forget_all(self) -> None:
        """Drop everything: the loop that made these notes is dead, and what it let through is booked."""
        self._close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, request: str, reply: WireReply) -> None:
        """At once and in one piece. If it cannot be written, the reply is booked as Claude Code tells it."""
        if request in self._forgotten:
            if reply.is_over:
                self._forgotten.discard(request)
            return
        with suppress(OSError):
            if self._file < 0:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o600)
            os.write(self._file, _encode(_Note(request, reply)) + b"\n")

    def _read(self) -> dict[str, WireReply]:
        """The last that was noted of each request, in the order in which they were made."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return {}
        found: dict[str, WireReply] = {}
        for line in lines:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # the loop was killed while it wrote
                note = _decode(line)
                found[note.request] = note.reply
        return found


def _whole(reply: WireReply) -> AgentReply:
    cost_usd, estimated_usd = priced(reply.model, reply.usage)
    return AgentReply(
        iteration_num=0, message_id=reply.message_id, model=reply.model, usage=usage_from(reply.usage),
        cost_usd=cost_usd, estimated_usd=estimated_usd, by_wire=True,
    )  # fmt: skip


def _begun(reply: WireReply) -> AgentReplyStarted:
    cost_usd, estimated_usd = priced(reply.model, reply.usage)
    return AgentReplyStarted(
        iteration_num=0, message_id=reply.message_id, model=reply.model, usage=usage_from(reply.usage),
        cost_usd=cost_usd, estimated_usd=estimated_usd,
    )  # fmt: skip
