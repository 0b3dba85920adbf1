"""Telling somebody far away about a loop: one POST of JSON, by a process of its own that nobody waits for.

The body is the one of every notification of untildone (docs/notifications.md). Only http(s) addresses can be told from
here: everything else needs packages that a hook does not have.
"""

import os
import sys

from untildone.core import loop_words
from untildone.hook import plain_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from untildone.hook.answering import Call
    from untildone.hook.register import Entry

EVENT = "Deliver"
_VERSION = 1
_PATIENCE = 10.0
_PAUSES = (0.0, 1.0, 3.0)
_SCHEMES = ("http://", "https://")
_MAY_PASS = (408, 425, 429)
_SERVER_ERRORS = 500
_NEEDS_YOU = ("blocked",)
_DONE = ("validation_passed", "completion_signal")


def send_aside(entry: "Entry", kind: str, now: float, iteration: int, detail: str) -> None:
    """Start the delivery and return at once."""
    addresses = [url for url in entry["notify"] if url.lower().startswith(_SCHEMES)]
    if not addresses:
        return
    note = body_of(entry, kind, now, iteration, detail)
    given = plain_json.render({"cwd": entry["project"], "addresses": addresses, "note": note})
    main = os.path.join(os.path.dirname(__file__), "main.py")
    reader, writer = os.pipe()
    try:
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, reader, 0), *quiet]
        argv = [sys.executable or "python3", "-I", "-S", main, EVENT]
        os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions, setpgroup=0)
        os.set_blocking(writer, False)
        os.write(writer, given.encode("ascii", "replace"))
    finally:
        os.close(reader)
        os.close(writer)


def body_of(entry: "Entry", kind: str, now: float, iteration: int, detail: str) -> dict[str, object]:
    """What is posted."""
    loop = entry["loop"]
    name = os.path.basename(entry["project"])
    milestone = kind == "milestone"
    said = f"turn {iteration} is over" if milestone else loop_words.end_line(kind, iteration, detail)
    title = " ".join(loop_words.safe(f"{name}: {said.removeprefix('untildone: ')}").split())[:200]
    text = loop_words.safe(f"The loop {loop} in {entry['project']}.\nSee `untildone status {loop}`.")
    facts = {"event": "milestone" if milestone else "released", "iteration": iteration, "folder": entry["project"]}
    if not milestone:
        facts |= {"reason": kind, "detail": loop_words.safe(detail)[:500]}
    sort = "done" if kind in _DONE else "needs_you" if kind in _NEEDS_YOU else "stopped"
    return {
        "untildone": _VERSION,
        "id": f"{loop}-{kind}-{iteration}",
        "kind": "milestone" if milestone else sort,
        "at": now,
        "run_id": loop,
        "name": name,
        "title": title,
        "body": text,
        "text": f"{title}\n{text}",
        "facts": facts,
    }


def on_deliver(call: "Call") -> None:
    """In the process of its own: post the note to each address, trying again where that may help."""
    import time

    data = plain_json.render(call.event["note"]).encode("ascii")
    for address in call.event["addresses"]:
        for pause in _PAUSES:
            time.sleep(pause)
            if not _may_pass_later(address, data):
                break


def _may_pass_later(address: str, data: bytes) -> bool:
    """One attempt; whether another one may end better."""
    from base64 import b64encode
    from urllib import error, parse, request

    class NoRedirects(request.HTTPRedirectHandler):
        """A note goes to the address that was given, or nowhere."""

        def redirect_request(self, *_: object) -> None:
            return None

    parts = parse.urlsplit(address.strip())
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "untildone"}
    if parts.username is not None:
        pair = f"{parse.unquote(parts.username)}:{parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + b64encode(pair.encode()).decode("ascii")
    plain = parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path or "/", parts.query, ""))
    asked = request.Request(plain, data=data, headers=headers, method="POST")  # noqa: S310 http(s) only
    try:
        with request.build_opener(NoRedirects).open(asked, timeout=_PATIENCE):
            return False
    except error.HTTPError as refused:
        refused.close()
        return refused.code in _MAY_PASS or refused.code >= _SERVER_ERRORS
    except OSError:
        return True
