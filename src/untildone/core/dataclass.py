"""`dataclass`, for a program that starts often: the methods of a class are written when they are first used.

The standard decorator compiles six methods of each class while its file is imported, and one command imports two
hundred such classes: half of its start, for methods that it mostly never calls. These are the same dataclasses with
the same methods, made by the standard decorator; only the moment is another one.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import FrozenInstanceError, fields, make_dataclass
from dataclasses import dataclass as standard
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T", bound=type)

_WRITTEN = ("__init__", "__repr__", "__eq__", "__hash__")
"""What differs from class to class."""


def _made(cls: type, name: str) -> Any:
    """A method as the standard decorator writes it for these fields."""
    # For a class without a text the decorator writes one, which takes longer than all the rest.
    namespace = {"__doc__": cls.__doc__ or cls.__name__}
    if hasattr(cls, "__post_init__"):
        namespace["__post_init__"] = cls.__post_init__
    like_it = make_dataclass(
        cls.__name__,
        [(field.name, field.type, copy(field)) for field in fields(cls)],
        namespace=namespace,
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name in {"__eq__", "__hash__"},
        frozen=name == "__hash__" or (name == "__init__" and vars(cls).get("__setattr__") is _refuse_to_set),
    )
    method = vars(like_it)[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


class _Later:
    """Stands for a method until somebody asks for it, then puts the method in its own place."""

    __slots__ = ("home", "name")

    def __init__(self, home: type, name: str) -> None:
        self.home = home
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        method = _made(self.home, self.name)
        setattr(self.home, self.name, method)
        return method.__get__(instance, owner)


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in fields(self)]


def _take_state(self: Any, state: list[object]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _take_state,
}
"""What is the same for every class that may not be changed: copies and pickles would otherwise go by `setattr`."""


if TYPE_CHECKING:
    # A type checker knows what the standard one does; this one does the same.
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 -- the name this file is for
else:

    def dataclass(
        cls: T | None = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False
    ) -> T | Callable[[T], T]:
        """The standard decorator, at a tenth of its price."""

        def decorated(plain: T) -> T:
            made = standard(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(plain)
            later = {name: _Later(made, name) for name in _WRITTEN}
            later |= _FROZEN if frozen else {"__hash__": None}
            # Python itself puts `__hash__ = None` beside an `__eq__` that a class writes.
            own = {name for name, value in vars(plain).items() if (name, value) != ("__hash__", None)}
            for name in later.keys() - own:
                setattr(made, name, later[name])
            return made

        return decorated if cls is None else decorated(cls)
