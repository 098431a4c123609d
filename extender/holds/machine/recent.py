"""Which pods we bound a moment ago, so that a repeated call gets the same good answer."""

from __future__ import annotations

from extender.model.pod import PodUid

_MEMORY_S = 60.0
_REMEMBERED = 20_000


class Recent:
    """Pods whose bind succeeded, oldest first, until the mirror surely shows them."""

    def __init__(self) -> None:
        self._bound: dict[PodUid, tuple[str, float]] = {}

    def __len__(self) -> int:
        return len(self._bound)

    def remember(self, uid: PodUid, node: str, now: float) -> None:
        """Keep in mind that the API server has shown *uid* on *node*."""
        self._bound.pop(uid, None)
        self._bound[uid] = (node, now)
        self._forget(now)

    def node_of(self, uid: PodUid, now: float) -> str | None:
        """Give the node *uid* was bound to, None when that was not lately."""
        node, at = self._bound.get(uid, (None, now))
        return node if now - at <= _MEMORY_S else None

    def _forget(self, now: float) -> None:
        while self._bound:
            oldest = next(iter(self._bound))
            expired = now - self._bound[oldest][1] > _MEMORY_S
            if not expired and len(self._bound) <= _REMEMBERED:
                return
            del self._bound[oldest]
