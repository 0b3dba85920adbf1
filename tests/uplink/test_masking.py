"""No secret leaves the process, in whatever spelling and wherever it stands; what is none arrives as it is."""

import json
import re
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from costs import costs_at_most
from untildone.core import trace as tr
from untildone.core.codec import REGISTRY, decode, encode
from untildone.core.events import Event, Record, Unknown
from untildone.core.wire import record as travelled
from untildone.uplink.dressing import Dressing
from untildone.uplink.known_secrets import KnownSecrets
from untildone.uplink.masking import Masking
from uplink.secret_corpus import (
    FROM_ENV_FILES,
    FROM_ENVIRONMENT,
    INNOCENT,
    PLACES,
    PRIVATE_KEY,
    RECOGNISED,
    SAID,
    SPELLINGS,
)

HARMLESS = {
    "DEBUG": "true", "PORT": "3000", "DB_USER": "postgres", "DB_PASSWORD": "postgres", "NODE_ENV": "production",
    "TOKEN_FILE": "/var/run/token", "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "4096", "KEY": "", "X_KEY": "abc",
    "HOME": "/home/me", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "en_US.UTF-8", "KEYBOARD_LAYOUT": "us",
    "APP_URL": "http://localhost:3000", "AUTH_URL": "https://login.acme.test/oauth/token", "VERSION": "1.22.333",
    "HOSTNAME": "3f9ac21e77d1", "GIT_AUTHOR_NAME": "Jane Doe-Smith", "TASK_ID": "tsk-9a8B7c6D5e4F",
    "PWD": "/home/me/shop",
    "GITHUB_SHA": "9f2c1e0b7d4a5c6e8f1029384756fedcba012345", "SSH_AUTH_SOCK": "/tmp/ssh-XX4f9aQz/agent.2041",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = []
    for number, (name, value) in enumerate(FROM_ENV_FILES.items()):
        quoted = f'"{value}"' if " " in value or number % 3 == 1 else f"'{value}'" if number % 3 == 2 else value
        lines.append(f"{'export ' if number % 2 else ''}{name}={quoted}")
    (tmp_path / ".env").write_text("# settings\n" + "\n".join(lines[:5]) + "\n", encoding="utf-8")
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / ".env.local").write_text("\n".join(lines[5:]) + "\n", encoding="utf-8")
    (tmp_path / ".env.example").write_text("GREETING_KEY=hello-world-hello\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def masking(folder: Path) -> Masking:
    return Masking(KnownSecrets(FROM_ENVIRONMENT | HARMLESS, str(folder), now=time.monotonic))


def sent(masking: Masking, event: Event) -> str:
    """All that goes over the wire of an event, and every text inside of it, however it is wrapped."""
    wire = Dressing(masking)(Record(seq=1, at=1.0, event=event))
    raw = msgspec.json.encode(wire).decode()
    texts: list[str] = []

    def walk(value: object) -> None:
        if isinstance(value, str):
            texts.append(value)
            if value[:1] in "{[":
                try:
                    walk(json.loads(value))
                except ValueError:
                    return
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(key)
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(json.loads(raw))
    return "\n".join([raw, *texts])


def hidden_part(name: str, value: str) -> str:
    """Of an address only the password is secret."""
    return value.partition("://")[2].partition("@")[0].rpartition(":")[2] if name.endswith("_URL") else value


KNOWN = {name: hidden_part(name, value) for name, value in (FROM_ENVIRONMENT | FROM_ENV_FILES).items()}


def test_the_corpus_is_large_enough() -> None:
    assert len({*RECOGNISED.values(), *KNOWN.values()}) >= 60
    assert len(set(INNOCENT)) >= 40
    assert len(PLACES) >= 10


@pytest.mark.parametrize("place", PLACES)
def test_what_looks_like_a_secret_does_not_leave(masking: Masking, place: str) -> None:
    leaked = [kind for kind, secret in RECOGNISED.items() if secret in sent(masking, PLACES[place](secret))]
    assert leaked == []


@pytest.mark.parametrize("place", PLACES)
def test_what_is_known_to_be_a_secret_does_not_leave(masking: Masking, place: str) -> None:
    leaked = [name for name, secret in KNOWN.items() if secret in sent(masking, PLACES[place](secret))]
    assert leaked == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_whatever_its_spelling(masking: Masking, spelling: str) -> None:
    """Short ones are not looked for inside base64: too little of them is left between its edges."""
    leaked = []
    for name, secret in KNOWN.items():
        spelled = SPELLINGS[spelling](secret)
        told = sent(masking, tr.AgentToolResult(iteration_num=1, tool_use_id="t", text=f"got {spelled} there"))
        if "basic" in spelling:
            if len(secret.encode()) >= 9 and f"[secret: {name}]" not in told:
                leaked.append(name)
        elif spelled in told or f"[secret: {name}]" not in told:
            leaked.append(name)
    assert leaked == []


@pytest.mark.parametrize("wrapped", range(4))
def test_no_line_of_a_private_key_leaves(masking: Masking, wrapped: int) -> None:
    text = PRIVATE_KEY
    for _ in range(wrapped):
        text = json.dumps({"key": text})
    told = sent(masking, tr.AgentMessage(iteration_num=1, text=f"see {text}"))
    assert [line for line in PRIVATE_KEY.splitlines()[1:-1] if line in told] == []


def test_the_names_say_what_was_there(masking: Masking) -> None:
    secret = FROM_ENVIRONMENT["MY_SERVICE_KEY"]
    assert masking.text(f"key {secret}!") == "key [secret: MY_SERVICE_KEY]!"


@pytest.mark.parametrize("text", INNOCENT, ids=range(len(INNOCENT)))
def test_what_is_no_secret_arrives_as_it_is(masking: Masking, text: str) -> None:
    event = tr.AgentToolResult(iteration_num=1, tool_use_id="t", text=text)
    assert masking.payload(encode(event)) == encode(event)
    assert masking.text(text) == text


def test_values_that_are_no_secrets_are_left_alone(masking: Masking) -> None:
    text = " ".join(HARMLESS.values()) + " hello-world-hello"
    assert masking.text(text) == text


@pytest.mark.parametrize("place", PLACES)
def test_a_masked_event_is_still_that_event(masking: Masking, place: str) -> None:
    """The server folds what it gets: a text may change, its shape may not."""
    event = PLACES[place](FROM_ENVIRONMENT["GITHUB_TOKEN"])
    back = travelled(Dressing(masking)(Record(seq=1, at=1.0, event=event))).event
    assert type(back) is type(event)


def test_a_secret_written_during_the_run_is_hidden_and_stays_so(folder: Path) -> None:
    now = [0.0]
    masking = Masking(KnownSecrets({}, str(folder), now=lambda: now[0]))
    assert masking.text("new-secret-41x") == "new-secret-41x"
    (folder / ".env.test").write_text("NEW_SECRET=new-secret-41x\n")
    now[0] = 10.0
    assert masking.text("say new-secret-41x") == "say [secret: NEW_SECRET]"
    (folder / ".env.test").unlink()
    now[0] = 20.0
    assert masking.text("say new-secret-41x") == "say [secret: NEW_SECRET]"


def test_a_pipe_called_env_holds_nobody_up(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / ".env")
    assert Masking(KnownSecrets({}, str(tmp_path), now=time.monotonic)).text("all is well") == "all is well"


def test_patterns_of_the_user_are_masked_too() -> None:
    masking = Masking({}, [r"ACME-\d{4}"])
    payload = encode(tr.AgentMessage(iteration_num=1, text="customer ACME-2041 called"))
    assert b"2041" not in masking.payload(payload)
    assert b"[secret]" in masking.payload(payload)


HOSTILE = (
    "\\",
    '\\"',
    "\\u",
    "%25",
    "&amp;",
    "a!",
    "aaaaaaa",
    "curl -u a",
    "token=",
    "-----BEGIN PRIVATE KEY-----\\",
    "--a-",
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_no_secret_and_no_text_can_make_it_take_forever(unit: str) -> None:
    """Four times as much takes about four times as long, whatever an agent writes into a file and then says."""
    masking = Masking({f"{unit * 300}!a1b2c3d4": "A", f"a1b2c3d4{unit * 300}": "B"})

    def mask(times: int) -> None:
        masking.text(f"{unit * times}x a1b2c3d4 {unit * times}")

    costs_at_most(16, partial(mask, 2_000), partial(mask, 500))


@pytest.mark.parametrize("count", [1, 6, 12, 40])
def test_backslashes_of_a_secret_are_hidden_however_many_are_shown(count: int) -> None:
    masking = Masking({"\\" * count + '!"a1b2c3d4': "KEY"})
    for shown in (count, 2 * count, 4 * count, 2 * count + 6):
        assert masking.text("x" + "\\" * shown + '!\\"a1b2c3d4 y') == "x[secret: KEY] y"


@pytest.mark.parametrize("said", SAID)
def test_what_is_said_on_the_command_line_and_over_the_line_is_hidden(said: str) -> None:
    secret = re.search("«(.+)»", said)
    assert secret is not None
    text = said.replace("«", "").replace("»", "")
    for spelled in (text, f"see {text} for more", json.dumps({"cmd": text})):
        told = Masking().text(spelled)
        assert secret[1] not in told
        assert "[secret: " in told
        assert Masking().text(told) == told


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": "\xff"}', b"[1,2]", b'"x"', b"[" * 5000])
def test_a_payload_that_is_no_object_is_no_reason_to_fail(masking: Masking, data: bytes) -> None:
    secret = FROM_ENVIRONMENT["MY_SERVICE_KEY"].encode()
    assert secret not in masking.payload(data + secret)
    event = decode("from.the.future", 9, "trace", data)
    assert isinstance(event, Unknown)
    assert Dressing(masking)(Record(seq=1, at=1.0, event=event)).event_type == "from.the.future"


def test_a_transcript_is_masked_line_by_line(masking: Masking) -> None:
    secret = FROM_ENVIRONMENT["SESSION_SECRET"]
    lines = [json.dumps({"n": n, "text": f"it is {secret}"}) for n in range(3)]
    cleaned = masking.lines("\n".join([*lines, ""]).encode())
    assert [json.loads(line)["text"] for line in cleaned.decode().splitlines()] == [
        "it is [secret: SESSION_SECRET]"
    ] * 3


def test_every_event_is_known() -> None:
    assert "agent.heartbeat" in REGISTRY


def test_where_there_is_nothing_to_hide_a_look_is_enough(masking: Masking) -> None:
    """Against the least that anybody has to do with a payload (to decode and encode it), and growing no faster."""

    def told(lines: int) -> bytes:
        payload = encode(tr.AgentToolResult(iteration_num=1, tool_use_id="t", text="line of output\n" * lines))
        assert masking.payload(payload) is payload
        return payload

    short, long = told(200), told(4_000)
    costs_at_most(60, partial(masking.payload, short), lambda: json.dumps(json.loads(short)))
    costs_at_most(10 * len(long) / len(short), partial(masking.payload, long), partial(masking.payload, short))
