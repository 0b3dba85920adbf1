"""Parts of a run's page over HTTP: only what the run would take is offered, and only trouble is called so."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from core.run_kit import completed, failed, opening, records, started
from server.archive_kit import WORKER, stored
from server.door_kit import Served, served
from server.events_kit import told as event_told
from untildone.core import events as ev
from untildone.core.claims import Claim, Report
from untildone.core.event import Event
from untildone.core.policy import SESSION
from untildone.core.questions import answered
from untildone.server.archive.port import Sender


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server")) as one:
        yield one


def told(server: Served, run_id: str, events: Sequence[Event]) -> None:
    server.run(server.archive.events.receive(WORKER, run_id, stored(records([*events])), now=time.time()))
    server.run(server.context.projector.settled(run_id))


def html(server: Served, path: str) -> str:
    answer = server.ask("GET", path)
    assert answer.status == 200
    return answer.body.decode()


def test_what_people_asked_for_is_no_trouble(server: Served) -> None:
    told(server, "asked", [*opening(), started(1), failed(1, "paused"), started(1), failed(1, "crash")])
    trouble = html(server, "/runs/asked/parts/trouble")
    assert "crash" in trouble
    assert "paused" not in trouble


def test_a_loop_in_a_session_is_not_offered_what_it_cannot_take(server: Served) -> None:
    begin, *rest = opening()
    assert isinstance(begin, ev.ContinuousStarted)
    options = replace(begin.spec.options, agent=SESSION)
    told(server, "inside", [replace(begin, spec=replace(begin.spec, options=options)), *rest, started(1)])
    page = html(server, "/runs/inside")
    assert 'data-states="session"' in page
    assert "<code>untildone loop stop inside</code> ends it" in page
    assert "data-when" in page
    assert not any("session" in when.split('"')[0].split() for when in page.split('data-when="')[1:])


def test_a_published_program_is_offered_messages_only(server: Served) -> None:
    body = {"event_type": "agent.started", "event_data": {}, "source": "agent"}
    assert server.ask("POST", "/api/v1/sandboxes/plain/events", json_body=body).status == 200
    server.run(server.context.projector.settled("published-plain"))
    page = html(server, "/runs/published-plain")
    assert 'data-states="published"' in page
    offered = [when.split('"')[0].split() for when in page.split('data-when="')[1:]]
    assert sum("published" in states for states in offered) == 1
    assert "What is sent waits until the program asks for it" in page


def test_a_silent_program_is_called_the_same_everywhere(server: Served) -> None:
    quiet = Sender(sandbox_id="quiet", origin="published")
    begun = [event_told(1, name="iteration.started", data='{"iteration_num": 1}')]
    server.run(server.archive.events.receive(quiet, "published-quiet", begun, now=time.time() - 600))
    server.run(server.context.projector.settled("published-quiet"))
    assert json.loads(html(server, "/api/v1/runs/published-quiet"))["status"] == "interrupted"
    page = html(server, "/runs/published-quiet")
    head, steps = page.split('id="steering"')[0], page.split('id="steps"')[1].split("</ol>")[0]
    assert "<span>interrupted</span>" in head
    assert "Nothing was heard of it for 10m" in head
    assert "<span>cut off</span>" in steps


def test_a_question_stays_until_it_is_answered(server: Served) -> None:
    asks = completed(1, claim=Claim(report=Report(questions=("May I delete legacy/?", "Which port?"))))
    events = [*opening(), started(1), asks, started(2), completed(2, claim=Claim(report=Report())), started(3)]
    told(server, "curious", events)
    talk = html(server, "/runs/curious/parts/talk")
    assert "May I delete legacy/?" in talk
    assert "Which port?" in talk
    told(server, "curious", [*events, ev.MessageReceived(by="ada", content=answered("Which port?", "8080"))])
    questions, messages = html(server, "/runs/curious/parts/talk").split('<ul class="messages">')
    assert "May I delete legacy/?" in questions
    assert "Which port?" not in questions
    assert "8080" in messages


def test_nobody_can_be_interrupted_in_a_run_that_has_stopped(server: Served) -> None:
    told(server, "works", [*opening(), started(1)])
    assert '<label class="check" data-when="running waiting paused">' in html(server, "/runs/works")
    told(server, "rests", [*opening(), ev.ContinuousSuspended(stop_reason="stop_requested")])
    assert '<label class="check" data-when="running waiting paused" hidden>' in html(server, "/runs/rests")


def test_a_filter_that_no_run_passes_shows_none(server: Served) -> None:
    told(server, "there", [*opening(), started(1)])
    assert 'href="/runs/there"' in html(server, "/")
    page = html(server, "/?status=bogus")
    assert 'href="/runs/there"' not in page
    assert "No run is like that" in page


def test_sums_are_told_without_what_adding_leaves(server: Served) -> None:
    told(server, "summed", [*opening(), *(one for n in (1, 2, 3) for one in (started(n), completed(n)))])
    assert json.loads(html(server, "/api/v1/runs/summed"))["cost_usd"] == 0.3


def test_the_fields_of_the_limits_hold_what_holds(server: Served) -> None:
    told(server, "bounded", [*opening(), started(1)])
    assert 'name="was_max_runs"' in html(server, "/runs/bounded/limits")
    assert server.ask("GET", "/runs/nowhere/limits").status == 404


@pytest.mark.parametrize("names", [(), ("runs.example.org",)])
def test_the_first_page_advises_a_token_where_one_is_needed(tmp_path: Path, names: tuple[str, ...]) -> None:
    with served(tmp_path, names=names) as one:
        answer = one.ask("GET", "/", token=one.token("viewer")[1])
    page = answer.body.decode()
    assert answer.status == 200
    assert "--server http" in page
    for said in ("CALLBACK_TOKEN=$TOKEN", "--sandbox-id box-1", "untildone token create --scope worker"):
        assert (said in page) == bool(names)
