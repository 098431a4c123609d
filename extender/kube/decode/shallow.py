"""Objects nested deeper than any decoder goes: what is too deep is cut out of their JSON.

The API server takes ten thousand levels where a CRD keeps what it does not know, and whoever may
write such an object would stop the mirror of its kind: a decoder calls itself once for each level
and gives up. Nothing we read is deep, so what is cut is only ever asked whether it is there.
"""

from __future__ import annotations

import re

#: Kubernetes' own kinds end far above this.
DEEPEST = 64

#: A string is one piece, so that the brackets in it count for nothing.
_PIECE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_OPENS = frozenset(b"[{")
_CLOSES = frozenset(b"]}")


def shallow(data: bytes, deepest: int = DEEPEST) -> bytes | None:
    """Write `null` for whatever is deeper than *deepest*; None when nothing is.

    What is no JSON stays none.
    """
    kept: list[bytes] = []
    depth = begun = done = 0
    for piece in _PIECE.finditer(data):
        mark = data[piece.start()]
        if mark in _OPENS:
            depth += 1
            if depth == deepest + 1:
                begun = piece.start()
        elif mark in _CLOSES:
            depth -= 1
            if depth == deepest:
                kept += (data[done:begun], b"null")
                done = piece.end()
    if not kept and depth <= deepest:
        return None
    kept.append(data[done : begun if depth > deepest else len(data)])
    return b"".join(kept)
