"""Growth as a picture: lines on two logarithmic axes, written as plain SVG."""

import math
from html import escape

from result import Curve

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 86, 190, 52, 60
COLOURS = ("#0b62a4", "#c2571a", "#2b8a3e", "#7048a8", "#a61e4d")
_TEXT = 'font-family="sans-serif" fill="#222"'


def draw(curve: Curve) -> str:
    """The picture of a curve."""
    points = [point for line in curve.lines.values() for point in line]
    across = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    upward = Axis([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _label(LEFT, 28, curve.title, 'font-size="17" font-weight="bold"'),
        _label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, curve.x_label, 'font-size="13" text-anchor="middle"'),
        _label(18, TOP - 8, curve.y_label, 'font-size="13"'),
        *(_vertical(across.place(tick), _number(tick)) for tick in across.ticks),
        *(_horizontal(upward.place(tick), _number(tick)) for tick in upward.ticks),
    ]
    for (name, line), colour in zip(curve.lines.items(), COLOURS, strict=False):
        parts += _line([(across.place(x), upward.place(y)) for x, y in line], name, colour)
    return "\n".join([*parts, "</svg>\n"])


class Axis:
    """Whole decades around the values, laid out between two pixels."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)
        self._start = start
        self._scale = (end - start) / (self._high - self._low)

    @property
    def ticks(self) -> list[float]:
        """The powers of ten."""
        return [10.0**power for power in range(self._low, self._high + 1)]

    def place(self, value: float) -> float:
        """The pixel of a value."""
        return self._start + (math.log10(value) - self._low) * self._scale


def _line(pixels: list[tuple[float, float]], name: str, colour: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in pixels]
    x, y = pixels[-1]
    named = _label(x + 10, y + 4, name, f'font-size="13" style="fill:{colour}"')
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>', *dots, named]


def _vertical(x: float, text: str) -> str:
    line = f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>'
    return line + _label(x, HEIGHT - BOTTOM + 20, text, 'font-size="12" text-anchor="middle"')


def _horizontal(y: float, text: str) -> str:
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
    return line + _label(LEFT - 8, y + 4, text, 'font-size="12" text-anchor="end"')


def _label(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_TEXT} {style}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.10f}".rstrip("0")
