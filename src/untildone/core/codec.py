"""Events to bytes and back. The only file of the core that knows the encoding (JSON, by msgspec).

Whatever an agent wrote must be storable, and whatever was stored must be readable by any later version:
encoding mends text that JSON cannot carry, decoding keeps what it does not understand as `Unknown`.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, TypeVar, cast

import msgspec

from untildone.core import events, landing_events, session_events, trace, witness_events
from untildone.core.events import Event, Kind, Record, Unknown
from untildone.errors import StoreError

T = TypeVar("T")

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def _with_contract(payload: dict[str, Any]) -> dict[str, Any]:
    """Checks were plain commands once, run in the tree, and whether to commit was a switch."""
    spec = dict(payload["spec"])
    checks = [{"name": command, "command": command} for command in spec.pop("checks", ())]
    contract = {"checks": checks, "room": "tree", "guard": "off"}
    if (timeout := spec.pop("check_timeout", None)) is not None:
        contract["timeout"] = timeout
    landing = {} if spec.pop("commit", True) else {"land": "none"}
    return {**payload, "spec": {**spec, "contract": contract, "landing": landing}}


UPGRADES: dict[tuple[str, int], Upgrade] = {
    ("continuous.started", 1): _with_contract,
    ("continuous.settings_changed", 1): _with_contract,
}
"""From (type, version) to a function that turns such a payload into one of the next version."""

NUL = b"\\u0000"
REPLACEMENT = "\ufffd"
DEPTH_CAP = 64
"""Deepest nesting kept of a value that is too deep to be encoded as it is."""


def _declared(module: ModuleType) -> list[type[Event]]:
    """The concrete events of a module, in the order they are written there."""
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Event)]
    return [cls for cls in found if cls.__module__ == module.__name__ and "TYPE" in vars(cls)]


_MODULES = (events, witness_events, landing_events, session_events, trace)
REGISTRY: Mapping[str, type[Event]] = {
    cls.TYPE: cls for module in _MODULES for cls in _declared(module) if cls is not Unknown
}
"""Every event type this version knows."""


def event_type(event: Event) -> str:
    """The dotted name of an event, known or not."""
    return event.type if isinstance(event, Unknown) else event.TYPE


def event_version(event: Event) -> int:
    """The version of an event's payload, known or not."""
    return event.version if isinstance(event, Unknown) else event.VERSION


def event_kind(event: Event) -> Kind:
    """Whether an event decides or is for eyes only, known or not."""
    return event.kind if isinstance(event, Unknown) else event.KIND


def encode(event: Event) -> bytes:
    """The payload of an event as JSON; an unknown event gives back the bytes it came with."""
    return event.data if isinstance(event, Unknown) else encode_value(event)


def decode(
    type_name: str, version: int, kind: str, data: bytes, *, upgrades: Mapping[tuple[str, int], Upgrade] = UPGRADES
) -> Event:
    """The event of a payload. What does not fit what we know is kept whole, as `Unknown`."""
    cls = REGISTRY.get(type_name)
    if cls is not None and version <= cls.VERSION:
        try:
            if version == cls.VERSION:
                return cast("Event", _decoder(cls).decode(data))
            return msgspec.convert(_upgraded(type_name, version, cls.VERSION, data, upgrades), cls)
        except (ValueError, RecursionError, LookupError):
            pass  # msgspec raises ValueErrors; a missing upgrade, or one the payload does not suit, a LookupError
    return Unknown(type=type_name, version=version, kind="trace" if kind == "trace" else "control", data=data)


def _upgraded(
    type_name: str, version: int, wanted: int, data: bytes, upgrades: Mapping[tuple[str, int], Upgrade]
) -> dict[str, Any]:
    payload = msgspec.json.decode(data, type=dict[str, Any])
    for old in range(version, wanted):
        payload = upgrades[type_name, old](payload)
    return payload


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Built on first use: most commands meet few of the types."""
    if type_ not in _DECODERS:
        _DECODERS[type_] = msgspec.json.Decoder(type_)
    return _DECODERS[type_]


def stored_form(event: Event) -> tuple[bytes, Event]:
    """An event's payload, and the event exactly as it will be read back from that payload.

    A control event that could not be read back would silently change what the run decides: StoreError.
    """
    data = encode(event)
    back = decode(event_type(event), event_version(event), event_kind(event), data)
    if isinstance(back, Unknown) and not isinstance(event, Unknown) and event.KIND == "control":
        raise StoreError(f"a {event.TYPE} event holds values of the wrong type and was not recorded: {event!r:.300}")
    return data, back


def to_wire(record: Record, run_id: str) -> dict[str, Any]:
    """A record as it travels to servers and scripts."""
    data = encode(record.event)
    try:
        payload = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        payload = {"undecodable": data.decode("utf-8", "replace")}
    return {
        "event_type": event_type(record.event),
        "event_data": payload,
        "source": record.event.SOURCE,
        "seq": record.seq,
        "at": record.at,
        "run_id": run_id,
        "version": event_version(record.event),
    }


def encode_value(value: object) -> bytes:
    """Any value made of dataclasses and plain types as JSON."""
    try:
        data = msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return msgspec.json.encode(_mended(value))
    # NUL is legal JSON, but databases and terminals choke on it. A false alarm only costs the slow path.
    return msgspec.json.encode(_mended(value)) if NUL in data else data


def decode_value(data: bytes, type_: type[T]) -> T:
    """The value `encode_value` wrote. ValueError when it does not fit the type."""
    return cast("T", _decoder(type_).decode(data))


def _mended(value: Any, depth: int = 0) -> Any:
    """The same value without lone surrogates and NULs, and not endlessly deep."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", REPLACEMENT)
    if depth > DEPTH_CAP:
        return REPLACEMENT
    if is_dataclass(value):
        return {field.name: _mended(getattr(value, field.name), depth + 1) for field in fields(value)}
    if isinstance(value, Mapping):
        return {_mended(key): _mended(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_mended(item, depth + 1) for item in value]
    return value
