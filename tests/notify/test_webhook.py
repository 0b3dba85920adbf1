"""A webhook against a real server: what arrives, and every way in which it can go wrong."""

import asyncio
import socket
from base64 import b64decode

import pytest

from notify.ear import NOTE, listening
from patience import PATIENCE, eventually
from untildone.errors import ConfigError
from untildone.notify.webhook import Webhook, masked, scheme_of

pytestmark = pytest.mark.anyio

SECRETS = ("s3cret", "t0ken", "p4ss")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def hasty(url: str, *, patience: float = PATIENCE) -> Webhook:
    return Webhook(url, patience=patience, pauses=(0.01, 0.01))


async def test_what_is_posted_is_what_is_documented() -> None:
    with listening() as ear:
        assert await hasty(ear.url).send(NOTE) == ""
    assert ear.heard == [
        {
            "untildone": 1,
            "id": "run1-7",
            "kind": "stopped",
            "at": 1_000_000.5,
            "run_id": "run1",
            "name": "it",
            "title": "it: stopped: reached the limit of cost",
            "body": "Go on, später.",
            "text": "it: stopped: reached the limit of cost\nGo on, später.",
            "facts": {"reason": "max_cost_reached", "exit_code": 3},
        }
    ]
    assert ear.headers[0]["Content-Type"] == "application/json; charset=utf-8"
    assert ear.headers[0]["User-Agent"].startswith("untildone/")
    assert ear.paths == ["/hook/s3cret?token=t0ken"]


async def test_a_name_and_password_become_a_header() -> None:
    with listening() as ear:
        address = f"http://me:p4ss%21@127.0.0.1:{ear.port}/x y"
        assert await hasty(address).send(NOTE) == ""
    scheme, _, pair = ear.headers[0]["Authorization"].partition(" ")
    assert (scheme, b64decode(pair)) == ("Basic", b"me:p4ss!")
    assert ear.paths == ["/x%20y"]


@pytest.mark.parametrize(
    ("answers", "trouble", "attempts"),
    [
        ([500], "", 2),
        ([503, 429], "", 3),
        ([500, 500, 502], "it answered 502", 3),
        ([404], "it answered 404: check the address", 1),
        ([401], "it answered 401: check the address", 1),
    ],
    ids=["once", "twice", "for good", "not found", "refused"],
)
async def test_only_what_may_pass_is_tried_again(answers: list[int], trouble: str, attempts: int) -> None:
    with listening(answers=answers) as ear:
        assert await hasty(ear.url).send(NOTE) == trouble
    assert len(ear.heard) == attempts
    assert len({heard["id"] for heard in ear.heard}) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("scheme", ["http", "file", "ftp"])
async def test_a_redirection_is_not_followed(code: int, scheme: str) -> None:
    with listening() as elsewhere, listening(answers=[code] * 3) as ear:
        ear.location = f"{scheme}://127.0.0.1:{elsewhere.port}/etc/passwd"
        trouble = await hasty(ear.url).send(NOTE)
    assert f"it answered {code}, a redirection" in trouble
    assert (len(ear.methods), elsewhere.methods) == (1, [])


async def test_a_server_that_is_down() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        trouble = await hasty(f"http://127.0.0.1:{taken.getsockname()[1]}/s3cret").send(NOTE)
    assert trouble == "it cannot be reached: Connection refused"


async def test_a_server_that_never_answers_is_given_up() -> None:
    with listening(silent=True) as ear:
        trouble = await hasty(ear.url, patience=1.0).send(NOTE)
        assert trouble == "no answer in time"
        eventually(lambda: len(ear.heard) == 3, "the third attempt")


async def test_a_server_that_speaks_another_language() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"SSH-2.0-OpenSSH\r\n" * 3)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        trouble = await hasty(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/s3cret").send(NOTE)
    assert trouble.startswith("it cannot be reached: ")


async def test_a_server_that_drips_its_answer_is_given_up_as_well() -> None:
    enough, gone = asyncio.Event(), asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not enough.is_set():
            writer.write(b"X-Drip: 1\r\n")
            await asyncio.sleep(0.05)
        writer.close()
        gone.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, asyncio.timeout(PATIENCE):
        assert await Webhook(url, patience=0.3, pauses=()).send(NOTE) == "no answer in time"
        enough.set()
        await gone.wait()


@pytest.mark.parametrize("trouble", [[500] * 3, [404], [302]], ids=str)
async def test_no_trouble_ever_names_a_secret(trouble: list[int]) -> None:
    with listening(answers=trouble, location="http://127.0.0.1:1/s3cret") as ear:
        channel = hasty(ear.url.replace("//", "//me:p4ss@"))
        said = await channel.send(NOTE) + channel.name
    assert said
    assert not any(secret in said for secret in SECRETS)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/s3cret", "https://hooks.example.com/…"),
        ("https://me:p4ss@example.com:8443/x?token=t0ken", "https://example.com:8443/…"),
        ("HTTP://EXAMPLE.com", "http://example.com/…"),
        ("tgram://s3cret/t0ken", "tgram://…"),
        ("https://[p4ss", "https://…"),
        ("https:///s3cret", "https://…"),
        ("https://p4ss:s3cret", "https://…"),
        ("s3cret", "an address"),
        ("", "an address"),
        ("a b://s3cret", "an address"),
    ],
)
async def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize("url", ["https://", "https:///path", "https://[p4ss", "http://host:p4ss/x"])
async def test_an_address_that_is_none_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="write the address like https://HOST/PATH") as refused:
        Webhook(url)
    assert "p4ss" not in str(refused.value)


async def test_schemes_are_read_as_people_write_them() -> None:
    assert [scheme_of(url) for url in ("HTTPS://x", "mailto://x", "x", "://x", "")] == ["https", "mailto", "", "", ""]
