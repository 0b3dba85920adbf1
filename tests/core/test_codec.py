"""Whatever an agent wrote can be stored; whatever was stored can be read, by this version and the next."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import untildone.core
from core.event_kit import values_of
from untildone.core import codec
from untildone.core.claims import Report
from untildone.core.codec import REGISTRY, decode, decode_value, encode, encode_value, stored_form, to_wire
from untildone.core.events import (
    ContinuousWarning,
    Event,
    IterationCompleted,
    IterationValidation,
    LimitsChanged,
    MessageReceived,
    Record,
    StopRequested,
    Unknown,
)
from untildone.core.outcome import Usage
from untildone.core.trace import AgentMessage, AgentReply, AgentSystem


def _there_and_back(event: Event) -> Event:
    return decode(codec.event_type(event), codec.event_version(event), codec.event_kind(event), encode(event))


def _subclasses(cls: type[Event]) -> Iterator[type[Event]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def test_no_event_of_the_core_is_missing_from_the_registry() -> None:
    for module in pkgutil.iter_modules(untildone.core.__path__, "untildone.core."):
        importlib.import_module(module.name)
    ours = [cls for cls in _subclasses(Event) if cls.__module__.startswith("untildone.")]
    assert {cls.TYPE for cls in ours if "TYPE" in vars(cls)} - {Unknown.TYPE} == set(REGISTRY)


def test_every_type_name_belongs_to_one_class() -> None:
    declared = [cls for module in codec._MODULES for cls in codec._declared(module)]
    assert len({cls.TYPE for cls in declared}) == len(declared)
    assert len(declared) == len(REGISTRY)


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=REGISTRY.keys())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_event_survives_the_round_trip(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(values_of(cls))
    assert _there_and_back(event) == event
    assert type(_there_and_back(event)) is cls


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(codec=None), max_size=30), key=st.text(st.characters(codec=None), max_size=5))
def test_no_text_makes_encoding_fail(text: str, key: str) -> None:
    back = _there_and_back(AgentSystem(iteration_num=1, subtype=text, data={key: [text]}))
    assert isinstance(back, AgentSystem)
    assert "\0" not in back.subtype
    assert len(back.subtype) <= len(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("a\0b", "a\ufffdb"),
        ("\\u0000 as typed", "\\u0000 as typed"),
        ("\ud83d\ude00", "\U0001f600"),
        ("plain \u00fc \U0001f600", "plain \u00fc \U0001f600"),
    ],
)
def test_text_that_json_cannot_carry_is_mended(text: str, kept: str) -> None:
    assert _there_and_back(AgentMessage(iteration_num=1, text=text)) == AgentMessage(iteration_num=1, text=kept)


def test_a_value_too_deep_to_encode_is_cut() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"a": deep}
    back = _there_and_back(AgentSystem(iteration_num=1, subtype="x", data=deep))
    assert isinstance(back, AgentSystem)
    assert "a" in back.data


def test_an_unknown_type_is_kept_byte_for_byte() -> None:
    data = b'{"b": 1,  "a": [2]}\xff'
    event = decode("landing.moonwalk", 3, "trace", data)
    assert event == Unknown(type="landing.moonwalk", version=3, kind="trace", data=data)
    assert encode(event) == data
    assert (codec.event_type(event), codec.event_version(event), codec.event_kind(event)) == (
        "landing.moonwalk",
        3,
        "trace",
    )


def test_a_newer_version_of_a_known_type_is_kept_as_unknown() -> None:
    event = decode("continuous.warning", ContinuousWarning.VERSION + 1, "trace", b'{"message":"hi"}')
    assert isinstance(event, Unknown)


def test_the_type_called_unknown_is_just_another_unknown_type() -> None:
    assert decode("unknown", 1, "control", b"{}") == Unknown(type="unknown", version=1, kind="control", data=b"{}")


@pytest.mark.parametrize(
    "data", [b"", b"not json", b"[]", b"{}", b'{"message":3}', b'{"message":"\xff"}', b'{"message":' * 50_000]
)
def test_a_payload_that_does_not_fit_is_kept_as_unknown(data: bytes) -> None:
    event = decode("continuous.warning", 1, "trace", data)
    assert isinstance(event, Unknown)
    assert encode(event) == data


def test_fields_we_do_not_know_are_ignored_and_missing_ones_get_their_default() -> None:
    data = b'{"by":"me","from_the_future":[1,2]}'
    assert decode("continuous.stop_requested", 1, "control", data) == StopRequested(by="me")


def test_an_old_payload_is_upgraded_step_by_step() -> None:
    upgrades = {
        ("continuous.warning", -1): lambda old: {"txt": old["t"]},
        ("continuous.warning", 0): lambda old: {"message": old["txt"]},
    }
    event = decode("continuous.warning", -1, "trace", b'{"t":"hi"}', upgrades=upgrades)
    assert event == ContinuousWarning(message="hi")


@pytest.mark.parametrize(("version", "data"), [(-1, b'{"t":"hi"}'), (0, b'{"other":1}'), (0, b"[]")])
def test_an_old_payload_without_a_fitting_upgrade_is_kept_as_unknown(version: int, data: bytes) -> None:
    upgrades = {("continuous.warning", 0): lambda old: {"message": old["txt"]}}
    event = decode("continuous.warning", version, "trace", data, upgrades=upgrades)
    assert event == Unknown(type="continuous.warning", version=version, kind="trace", data=data)


def test_every_upgrade_leads_to_the_next_version_of_a_known_type() -> None:
    assert [key for key in codec.UPGRADES if key[0] not in REGISTRY or key[1] >= REGISTRY[key[0]].VERSION] == []


def test_the_stored_form_is_what_is_read_back() -> None:
    data, back = stored_form(MessageReceived(by="me", content="a\0b"))
    assert back == MessageReceived(by="me", content="a\ufffdb")
    assert decode("agent.message_injected", 1, "control", data) == back


def test_a_control_event_that_cannot_be_read_back_is_refused() -> None:
    broken = IterationCompleted(iteration_num=1, cost_usd=1.0, total_cost_usd=float("nan"))
    with pytest.raises(codec.StoreError, match=r"iteration\.completed"):
        stored_form(broken)


def test_a_trace_event_that_cannot_be_read_back_is_kept_as_it_is() -> None:
    data, back = stored_form(AgentMessage(iteration_num=1, text=3))  # type: ignore[arg-type]
    assert isinstance(back, Unknown)
    assert back.data == data


def test_a_cost_that_is_no_number_is_unknown_not_zero() -> None:
    event = AgentReply(iteration_num=1, message_id="m", model="x", usage=Usage(1, 2), cost_usd=float("nan"))
    back = _there_and_back(event)
    assert isinstance(back, AgentReply)
    assert back.cost_usd is None


def test_the_wire_form() -> None:
    record = Record(seq=7, at=1.5, event=LimitsChanged(by="me", changes={"max_runs": 3, "max_cost_usd": None}))
    assert to_wire(record, "r1") == {
        "event_type": "continuous.limits_changed",
        "event_data": {"by": "me", "order": None, "changes": {"max_runs": 3, "max_cost_usd": None}},
        "source": "system",
        "seq": 7,
        "at": 1.5,
        "run_id": "r1",
        "version": 1,
    }


def test_the_wire_form_of_an_unknown_event_carries_its_own_name_and_payload() -> None:
    wire = to_wire(Record(seq=1, at=0.0, event=Unknown(type="x.y", version=9, kind="trace", data=b'{"a":1}')), "r")
    assert (wire["event_type"], wire["version"], wire["event_data"]) == ("x.y", 9, {"a": 1})
    wire = to_wire(Record(seq=1, at=0.0, event=Unknown(type="x.y", version=9, kind="trace", data=b"\xff{")), "r")
    assert msgspec.json.encode(wire)


def test_values_round_trip_and_a_misfit_is_a_value_error() -> None:
    report = Report(status="COMPLETE", questions=("why?\0",))
    assert decode_value(encode_value(report), Report) == Report(status="COMPLETE", questions=("why?\ufffd",))
    with pytest.raises(ValueError, match="str"):
        decode_value(b'{"status":1}', Report)


def test_nested_values_come_back_as_their_own_types() -> None:
    event = IterationValidation(iteration_num=1, passed=True, git_status={"dirty": ["a"]}, errors=("x",))
    back = _there_and_back(event)
    assert isinstance(back, IterationValidation)
    assert asdict(back) == asdict(event)
    assert isinstance(back.errors, tuple)
