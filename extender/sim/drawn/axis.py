"""Time from left to right: where its marks stand and what they say."""

from __future__ import annotations

from math import log10

from extender.sim.drawn.markup import Markup, element, together

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_STEPS_H = (1, 2, 3, 6, 12, 24, 48, 120, 240)
#: No more marks than a narrow screen has room for.
_MOST = 7
_WAITS = ((1, "1s"), (10, "10s"), (60, "1m"), (600, "10m"), (3600, "1h"), (36000, "10h"))


def marks(span_s: float) -> list[tuple[float, str]]:
    """Give marks of a span, each as a part of it, and what they say."""
    steps = (*_STEPS_S, *(hours * 3600 for hours in _STEPS_H))
    step = next((each for each in steps if span_s / each <= _MOST), steps[-1])
    return [
        (number * step / span_s, _said(number * step)) for number in range(int(span_s / step) + 1)
    ]


def _said(seconds: int) -> str:
    if not seconds:
        return "0"
    if seconds < 60:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if minutes:
        return f"{hours}h{minutes:02d}"
    return f"{hours // 24}d" if hours > 24 and hours % 24 == 0 else f"{hours}h"


def scale(span_s: float) -> Markup:
    """Draw what the marks say."""
    return _scale(marks(span_s))


def grid(span_s: float) -> Markup:
    """Draw the marks behind something."""
    return _grid(marks(span_s))


def wait_scale(longest_s: float) -> Markup:
    """Draw what marks of waits say."""
    return _scale([(along(seconds, longest_s), said) for seconds, said in _waits(longest_s)])


def wait_grid(longest_s: float) -> Markup:
    """Draw marks of waits behind something."""
    return _grid([(along(seconds, longest_s), said) for seconds, said in _waits(longest_s)])


def along(seconds: float, longest_s: float) -> float:
    """Say how far a wait reaches: by its logarithm, so that seconds and hours can be seen."""
    return log10(1 + max(0.0, seconds)) / log10(1 + max(1.0, longest_s))


def per_cent(part: float) -> str:
    """Write a part as a length."""
    return f"{round(100 * min(1.0, max(0.0, part)), 2):g}%"


def _waits(longest_s: float) -> list[tuple[float, str]]:
    return [(float(seconds), said) for seconds, said in _WAITS if seconds <= longest_s]


def _scale(told: list[tuple[float, str]]) -> Markup:
    def anchor(part: float) -> str:
        return "start" if part < 0.02 else "end" if part > 0.97 else "middle"

    words = (
        element("text", said, x=per_cent(part), y="12", text_anchor=anchor(part))
        for part, said in told
    )
    return element("svg", *words, class_="scale", aria_hidden="true")


def _grid(told: list[tuple[float, str]]) -> Markup:
    lines = (
        element("line", class_="grid", x1=per_cent(part), x2=per_cent(part), y1="0", y2="100%")
        for part, _ in told
    )
    return together(*lines)
