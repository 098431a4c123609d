"""Which of two lines about one object is the newer one: the only place that compares versions.

A watch tells what happened in the order in which it did. What is between us and the API server may
not: a line that comes late, or twice, would bring back a pod that is gone, and its room would be
taken for ever. Versions of one resource can be compared as whole numbers (Kubernetes says so since
1.35, KEP-5504, and it has always been so); what is no number is taken as it comes.
"""

from __future__ import annotations

#: Objects that are gone and still remembered, with the version at which they went.
MOST_GONE = 4096
#: Digits; etcd counts to 2**63.
_LONGEST = 20


def number(version: str) -> int | None:
    """Read a version; None for one that cannot be compared."""
    is_number = len(version) <= _LONGEST and version.isascii() and version.isdigit()
    return int(version) if is_number else None


class Order:
    """The newest version heard of every object that has changed since the last list.

    A list is believed whatever it says: it is read from the majority of etcd, and where a backup
    was restored its versions are lower than those we know.
    """

    def __init__(self) -> None:
        #: Whatever happened up to here was in the list.
        self._listed = -1
        self._known: dict[str, int] = {}
        #: The same of those that are gone, the oldest first.
        self._gone: dict[str, int] = {}

    def listed(self, version: str) -> None:
        """Hear that a list is complete, and of which version it is."""
        at = number(version)
        self._listed = -1 if at is None else at
        self._known.clear()
        self._gone.clear()

    def is_news(self, key: str, version: str, *, is_gone: bool) -> bool:
        """Ask whether a line is newer than all we know of an object, and remember it if so."""
        at = number(version)
        if at is None:
            return True
        known = self._known.get(key, -1) if key in self._known else self._gone.get(key, -1)
        if at <= self._listed or at < known or (at == known and not is_gone):
            return False
        if is_gone:
            self._known.pop(key, None)
            self._gone.pop(key, None)
            self._gone[key] = at
            if len(self._gone) > MOST_GONE:
                del self._gone[next(iter(self._gone))]
        else:
            self._gone.pop(key, None)
            self._known[key] = at
        return True
