"""What a measurement gives back, as plain values: figures with their gates, and curves to be drawn."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number. Ratios are of things measured side by side in the same run."""

    name: str
    value: float
    unit: str = "x"
    at_most: float | None = None
    """The gate; None: for information."""
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the gate holds; a figure without one always does."""
        return self.at_most is None or self.value <= self.at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How something grows: named lines of (x, y), drawn with both axes logarithmic."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: dict[str, list[tuple[float, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that one bench found out."""

    title: str
    figures: tuple[Figure, ...]
    curves: tuple[Curve, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every gate holds."""
        return all(figure.passed for figure in self.figures)

    def as_json(self) -> dict[str, Any]:
        """The result for programs, with what follows from it."""
        figures = [{**asdict(figure), "passed": figure.passed} for figure in self.figures]
        return {**asdict(self), "figures": figures, "passed": self.passed}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of pairs: each pair was measured back to back, so both felt the same neighbours."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))
