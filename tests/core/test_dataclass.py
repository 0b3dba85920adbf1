"""Dataclasses whose methods are written when they are first used are the standard ones in everything else."""

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from dataclasses import dataclass as standard
from typing import Any, ClassVar

import msgspec
import pytest

from untildone.core.dataclass import dataclass

Decorator = Callable[..., Callable[[type], Any]]
WRITTEN = ("__init__", "__repr__", "__eq__", "__hash__")


def point_of(decorator: Decorator, **how: bool) -> Any:
    class Point:
        """A place."""

        KIND: ClassVar[str] = "place"
        x: int
        y: float = 0.5
        names: tuple[str, ...] = ()
        known: list[int] = field(default_factory=list, compare=False)
        secret: str = field(default="", repr=False)

    return decorator(**how)(Point)


HOW = [
    pytest.param({"frozen": True, "slots": True, "kw_only": True}, id="frozen, by name"),
    pytest.param({"frozen": True, "slots": True}, id="frozen"),
    pytest.param({"frozen": True}, id="frozen, with a dict"),
    pytest.param({"slots": True}, id="changeable"),
    pytest.param({"slots": True, "kw_only": True}, id="changeable, by name"),
]


def told(call: Callable[[], object]) -> str:
    """What comes of something: its answer or its complaint."""
    try:
        return repr(call())
    except (TypeError, AttributeError, ValueError) as refused:
        return f"{type(refused).__name__}: {refused}"


ASKED: dict[str, Callable[[Any], object]] = {
    "made by name": lambda cls: cls(x=1),
    "made in order": lambda cls: cls(1, 2.0),
    "made of nothing": lambda cls: cls(),
    "made with too much": lambda cls: cls(x=1, z=2),
    "equal": lambda cls: cls(x=1, secret="s") == cls(x=1, secret="t"),
    "equal where it counts": lambda cls: cls(x=1, known=[1]) == cls(x=1, known=[2]),
    "unlike others": lambda cls: cls(x=1) == object(),
    "hashed": lambda cls: hash(cls(x=1)) == hash(cls(x=1, known=[3])),
    "a key": lambda cls: {cls(x=1): 1}[cls(x=1)],
    "set": lambda cls: setattr(cls(x=1), "x", 2),
    "deleted": lambda cls: delattr(cls(x=1), "x"),
    "copied": lambda cls: copy.copy(cls(x=1, names=("a",))),
    "copied deeply": lambda cls: copy.deepcopy(cls(x=1, known=[1, [2]])),
    "replaced": lambda cls: replace(cls(x=1), y=3.5),
    "as a dict": lambda cls: asdict(cls(x=1)),
    "its fields": lambda cls: [(one.name, one.type, one.kw_only) for one in fields(cls)],
    "is one": is_dataclass,
    "its signature": inspect.signature,
    "its words": lambda cls: (cls.__doc__, cls.__qualname__, cls.__init__.__qualname__, cls.__match_args__),
    "has a dict": lambda cls: hasattr(cls(x=1), "__dict__"),
    "encoded": lambda cls: msgspec.json.encode(cls(x=1)),
    "decoded": lambda cls: msgspec.json.decode(b'{"x": 3, "names": ["a"]}', type=cls),
    "refused": lambda cls: msgspec.json.decode(b'{"x": "3"}', type=cls),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_it_answers_as_the_standard_one(how: dict[str, bool], ask: Callable[[Any], object]) -> None:
    assert told(lambda: ask(point_of(dataclass, **how))) == told(lambda: ask(point_of(standard, **how)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What others are made from."""

    a: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Base):
    """One more field, and a word of its own about what it was given."""

    b: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("below nothing")


def test_a_class_made_from_another_has_methods_of_its_own() -> None:
    assert repr(Base(a=3)) == "Base(a=3)"  # the methods of the base are there by now
    assert repr(Derived(a=3, b=[1])) == "Derived(a=3, b=[1])"
    assert (Derived(a=1) == Base(a=1), Derived(b=[1]) == Derived(b=[1])) == (False, True)
    with pytest.raises(ValueError, match="below nothing"):
        Derived(a=-1)


def test_what_a_class_writes_itself_stays() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:
        """Says what it is."""

        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Own(1)), Own(1) == 5, hash(Own(1))) == ("own", True, 7)


def test_a_method_of_the_base_can_be_called_from_one_that_replaces_it() -> None:
    class Louder(Derived):
        def __init__(self, a: int) -> None:
            super().__init__(a=a * 2)

    assert Louder(4).a == 8


def test_without_any_wish_it_is_the_plain_one() -> None:
    @dataclass
    class Plain:
        """Can be changed."""

        x: int = 1

    one = Plain()
    one.x = 2
    assert (repr(one).rpartition(".")[2], one == Plain(2), vars(one)) == ("Plain(x=2)", True, {"x": 2})


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Derived(a=2, b=[3]))) == Derived(a=2, b=[3])


def test_nothing_is_written_before_somebody_asks_for_it() -> None:
    cls = point_of(dataclass, frozen=True, slots=True, kw_only=True)
    assert [name for name in WRITTEN if inspect.isfunction(vars(cls)[name])] == []
    one = msgspec.json.decode(b'{"x": 3}', type=cls)
    assert [name for name in WRITTEN if inspect.isfunction(vars(cls)[name])] == []
    assert one == one.__class__(x=3)
    assert [name for name in WRITTEN if inspect.isfunction(vars(cls)[name])] == ["__init__", "__eq__"]
    with pytest.raises(FrozenInstanceError):
        one.x = 4
