"""Objects nested deeper than any decoder goes: what is too deep is cut out of their JSON.

The API server takes ten thousand levels where a CRD keeps what it does not know, and whoever may
write such an object would stop the mirror of its kind: a decoder calls itself once for each level
and gives up. Nothing we read is deep, so what is cut is only ever asked whether it is there.

Signs are counted in arrays, a block at a time: one by one a large object would take a second.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

#: Kubernetes' own kinds end far above this.
DEEPEST = 64

_BLOCK = 1 << 20
_QUOTE = ord('"')
#: What each sign does to the depth, outside of strings.
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[*b"[{"]] = 1
_STEPS[[*b"]}"]] = -1


def shallow(data: bytes, deepest: int = DEEPEST) -> bytes | None:
    """Write `null` for whatever is deeper than *deepest*; None when nothing is.

    What is no JSON stays none.
    """
    kept: list[bytes] = []
    done, is_deep = 0, False
    for at in _crossings(data, deepest):
        if is_deep:
            done = at + 1
        else:
            kept += (data[done:at], b"null")
        is_deep = not is_deep
    if not kept:
        return None
    return b"".join((*kept, b"" if is_deep else data[done:]))


def _crossings(data: bytes, deepest: int) -> Iterator[int]:
    """Give where brackets lead below *deepest* and back again, in turns."""
    # Only strings have backslashes. Without escaped ones every quote begins or ends a string.
    signs = np.frombuffer(data.replace(rb"\\", b"  ").replace(rb"\"", b"  "), dtype=np.uint8)
    depth, is_quoted = 0, False
    for begin in range(0, len(signs), _BLOCK):
        block = signs[begin : begin + _BLOCK]
        quoted = np.logical_xor.accumulate(block == _QUOTE) ^ is_quoted
        steps = np.where(quoted, 0, _STEPS[block])
        depths = np.cumsum(steps, dtype=np.int64) + depth
        yield from (np.flatnonzero(_is_crossing(steps, depths, deepest)) + begin).tolist()
        depth, is_quoted = int(depths[-1]), bool(quoted[-1])


def _is_crossing(
    steps: npt.NDArray[np.int8], depths: npt.NDArray[np.int64], deepest: int
) -> npt.NDArray[np.bool_]:
    down: npt.NDArray[np.bool_] = (steps == 1) & (depths == deepest + 1)
    up: npt.NDArray[np.bool_] = (steps == -1) & (depths == deepest)
    return np.logical_or(down, up)
