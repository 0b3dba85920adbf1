import http.client
import json
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from rehearsal.rehearsal_client import ask, body
from untildone.errors import ConfigError
from untildone.rehearsal.ledger import LedgerLine
from untildone.rehearsal.model import ScriptedModel, main
from untildone.rehearsal.scenario import Reply, Scenario, ToolCall
from untildone.rehearsal.script import Turn


def script(*replies: Reply, **more: Any) -> Scenario:
    return Scenario(name="test", replies=replies, **more)


def talk(request: dict[str, Any]) -> bytes:
    """A request as raw bytes, for clients that do not behave."""
    data = json.dumps(request).encode()
    return b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def test_a_plain_answer() -> None:
    reply = Reply(text="hello", input_tokens=5, output_tokens=6, cache_read_tokens=7, cache_write_tokens=8)
    with ScriptedModel(script(reply)) as model:
        answer = ask(model, body("hi", model="claude-x"))
        assert answer.status == 200
        assert answer.text == "hello"
        assert answer.json["model"] == "claude-x"
        (line,) = model.ledger.lines
    assert (line.n, line.model, line.message_id) == (1, "claude-x", answer.json["id"])
    assert (line.input_tokens, line.output_tokens, line.cache_read_tokens, line.cache_write_tokens) == (5, 6, 7, 8)
    assert (line.complete, line.status) == (True, 200)


def test_the_stream_has_the_form_of_the_api() -> None:
    text = "word " * 50
    reply = Reply(
        text=text, thinking="hm", tools=(ToolCall("Bash", {"command": "x" * 200}),), input_tokens=9, output_tokens=4
    )
    with ScriptedModel(script(reply)) as model:
        answer = ask(model, body("hi", stream=True))
        whole = ask(model, body("hi")).json
    events = answer.events
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert [event["type"] for event in events if event["type"] != "content_block_delta"] == [
        "message_start", "ping",
        "content_block_start", "content_block_stop",
        "content_block_start", "content_block_stop",
        "content_block_start", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    begun = events[0]["message"]["usage"]
    assert (begun["input_tokens"], begun["output_tokens"]) == (9, 1)
    assert events[-2]["usage"] == {"output_tokens": 4}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert _assembled(events) == [_without_id(block) for block in whole["content"]]


def _without_id(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "id"}


def _assembled(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a client makes of the deltas."""
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "raw": ""})
            assert event["index"] == len(blocks) - 1
        if event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            match delta["type"]:
                case "input_json_delta":
                    block["raw"] += delta["partial_json"]
                case "text_delta" | "thinking_delta" | "signature_delta":
                    key = delta["type"].removesuffix("_delta")
                    block[key] += delta[key]
    for block in blocks:
        raw = block.pop("raw")
        if block["type"] == "tool_use":
            block["input"] = json.loads(raw)
    return [_without_id(block) for block in blocks]


def test_errors_come_with_status_and_headers() -> None:
    limit = Reply(status=429, message="slow down", headers=(("retry-after", "2"),))
    with ScriptedModel(script(limit, Reply(text="fine"))) as model:
        refused = ask(model, body("hi", stream=True))
        assert refused.status == 429
        assert refused.headers["retry-after"] == "2"
        assert refused.json["error"] == {"type": "rate_limit_error", "message": "slow down"}
        assert ask(model, body("hi")).text == "fine"
        error, fine = model.ledger.lines
        assert (error.status, error.complete, error.input_tokens, error.output_tokens) == (429, False, 0, 0)
        assert model.ledger.served() == (fine,)
        assert model.ledger.cut() == ()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_cut_reply_breaks_off_and_is_marked(share: float, stream: bool) -> None:
    with ScriptedModel(script(Reply(text="x" * 3000, cut_after=share, output_tokens=1000))) as model:
        with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected)):
            ask(model, body("hi", stream=stream))
        (line,) = model.ledger.lines
        assert model.ledger.cut() == (line,)
        assert model.ledger.served() == ()
    assert line.input_tokens == 1000
    assert line.output_tokens == pytest.approx(1000 * share, abs=2)


def test_a_client_that_leaves_in_mid_stream_is_noticed() -> None:
    slow = Reply(text="x" * 6000, chunk_delay=5.0, output_tokens=1000)
    with ScriptedModel(script(slow)) as model:
        with socket.create_connection(("127.0.0.1", model.port)) as client:
            client.sendall(talk(body("hi", stream=True)))
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
        (line,) = model.ledger.wait_for(1)
        assert model.ledger.cut() == (line,)
        assert 0 <= line.output_tokens < 500


def test_a_client_that_leaves_before_the_first_byte_is_noticed() -> None:
    with ScriptedModel(script(Reply(text="x", latency=600))) as model:
        with socket.create_connection(("127.0.0.1", model.port)) as client:
            client.sendall(talk(body("hi", stream=True)))
            model.wait_for_request(1)
        (line,) = model.ledger.wait_for(1)
        assert (line.complete, line.status, line.output_tokens) == (False, 200, 0)


def test_closing_drops_what_is_under_way_and_books_it() -> None:
    model = ScriptedModel(script(Reply(text="x", latency=600))).start()
    failures: list[Exception] = []

    def client() -> None:
        try:
            ask(model, body("hi"))
        except (http.client.HTTPException, OSError) as failure:
            failures.append(failure)

    waiting = threading.Thread(target=client)
    waiting.start()
    model.wait_for_request(1)
    model.close()
    waiting.join(timeout=240)
    assert not waiting.is_alive()
    (failure,) = failures
    assert isinstance(failure, ConnectionResetError)
    assert [line.complete for line in model.ledger.lines] == [False]
    model.close()


def test_one_connection_serves_many_requests() -> None:
    with ScriptedModel(script(Reply(text="{n}"), Reply(status=500), Reply(text="{n}"))) as model:
        connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=240)
        said = []
        for _ in range(3):
            connection.request("POST", "/v1/messages", json.dumps(body("hi")))
            response = connection.getresponse()
            said.append((response.status, json.loads(response.read()).get("content", [{}])[0].get("text")))
        connection.close()
    assert said == [(200, "1"), (500, None), (200, "3")]


class ModelInCompany(ScriptedModel):
    """Answers no request before so many are under way."""

    def __init__(self, scenario: Scenario, count: int) -> None:
        super().__init__(scenario)
        self._company = threading.Barrier(count)

    def answer_to(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[Turn, str]:
        self._company.wait(PATIENCE)
        return super().answer_to(path, headers, body)


def test_requests_at_the_same_time_do_not_wait_for_each_other() -> None:
    count = 12
    with ModelInCompany(script(Reply(text="{n}")), count) as model:
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(lambda _: ask(model, body("hi")), range(count)))
        assert sorted(int(answer.text) for answer in answers) == list(range(1, count + 1))
        assert len({line.message_id for line in model.ledger.served()}) == count


def test_requests_are_recorded_with_their_headers_and_only_the_newest_are_kept() -> None:
    with ScriptedModel(script(Reply(text="a"))) as model:
        ask(model, body("title", tools=[]))
        ask(model, body("hi", stream=True), session="s1")
        (request,) = model.requests
        assert (request.n, request.path, request.headers["x-claude-code-session-id"]) == (1, "/v1/messages", "s1")
        assert request.body["messages"][0]["content"] == "hi"
        assert [line.kind for line in model.ledger.lines] == ["side", "main"]
        for _ in range(250):
            model.answer_to("/v1/messages", {}, body("hi"))
        assert [request.n for request in model.requests] == list(range(52, 252))
        with pytest.raises(TimeoutError, match="request 1 did not come"):
            model.wait_for_request(1, timeout=0.01)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 3}', b"[" * 100_000, b'{"a": ' * 100_000]
)
def test_bad_bodies_are_refused_and_change_nothing(data: bytes) -> None:
    with ScriptedModel(script(Reply(text="first"), Reply(text="second"))) as model:
        refused = ask(model, data)
        assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")
        assert ask(model, body("hi")).text == "first"


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n",
    ],
)
def test_a_request_without_an_honest_length_is_refused(raw: bytes) -> None:
    with ScriptedModel(script(Reply(text="a"))) as model:
        with socket.create_connection(("127.0.0.1", model.port), timeout=240) as client:
            client.sendall(raw)
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
        assert ask(model, body("hi")).text == "a"


def test_probes_and_token_counts_are_answered_by_themselves() -> None:
    with ScriptedModel(script(Reply(text="a"), after="error")) as model:
        assert ask(model, b"", path="/", method="HEAD").status == 200
        assert ask(model, b"", path="/v1/models?limit=5", method="GET").json["data"] == []
        assert ask(model, b"", path="/elsewhere", method="GET").status == 404
        assert ask(model, body("hi"), path="/elsewhere").status == 404
        count = ask(model, body("hi"), path="/v1/messages/count_tokens?beta=true").json
        assert count["input_tokens"] > 0
        assert model.ledger.lines == ()
        assert ask(model, body("hi"), path="/v1/messages?beta=true").text == "a"


def test_who_answers_can_be_scripted() -> None:
    replies = (Reply(text="a"), Reply(text="b", model="special"))
    with ScriptedModel(script(*replies, model="scripted")) as model:
        names = [ask(model, body("hi", tools=tools)).json["model"] for tools in ([{}], [{}], [])]
    assert names == ["scripted", "special", "m"]


def test_only_this_machine_can_reach_it() -> None:
    with ScriptedModel(script(Reply(text="a"))) as model:
        assert model.url == f"http://127.0.0.1:{model.port}"
        with pytest.raises(ConfigError, match=f"port {model.port} on 127.0.0.1 cannot be used"):
            ScriptedModel(script(Reply(text="a")), model.port)
    with pytest.raises(ConfigError, match="port 70000 "):
        ScriptedModel(script(Reply(text="a")), 70000)


def test_the_ledger_as_json() -> None:
    with ScriptedModel(script(Reply(text="a"))) as model:
        with pytest.raises(TimeoutError, match="0 of 1 ledger lines came"):
            model.ledger.wait_for(1, timeout=0.01)
        ask(model, body("hi"))
        (entry,) = json.loads(model.ledger.to_json())
    assert set(entry) == set(LedgerLine.__dataclass_fields__)


def test_as_a_program_of_its_own_it_writes_its_ledger_line_by_line(tmp_path: Path) -> None:
    scenario, ledger = tmp_path / "s.toml", tmp_path / "ledger.jsonl"
    scenario.write_text("[[reply]]\ntext = 'hello'\n", encoding="utf-8")
    command = [sys.executable, "-m", "untildone.rehearsal.model"]
    server = subprocess.Popen(
        [*command, "--scenario", str(scenario), "--ledger", str(ledger)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
            connection.request("POST", "/v1/messages", json.dumps(body("hi")))
            connection.getresponse().read()
            connection.close()
    finally:
        server.kill()
        server.communicate(timeout=240)
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    assert [(line["n"], line["complete"]) for line in lines] == [(1, True), (2, True)]


def test_the_program_says_in_one_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "s.toml"
    good.write_text("[[reply]]\n", encoding="utf-8")
    assert main(["--scenario", str(tmp_path / "missing.toml")]) == 2
    assert "missing.toml: cannot read this scenario" in capsys.readouterr().err
    assert main(["--scenario", str(good), "--ledger", str(tmp_path)]) == 2
    assert "cannot write a ledger there" in capsys.readouterr().err
