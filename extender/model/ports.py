"""Host ports that are taken: counted by port, so that asking for one compares it with no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from extender.model.pod import HostPort

#: Kubernetes' word for every address of a node.
ANY = "0.0.0.0"  # noqa: S104 (nothing listens here)
#: Stands for the single addresses together, whichever they are.
_SINGLE = None

#: Protocol, port, address.
PortKey = tuple[str, int, str | None]


class Ports:
    """The host ports taken in one place, as often as they are; never changes."""

    __slots__ = ("_counts",)

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._counts: Mapping[PortKey, int] = _counted({}, ports, 1)

    @classmethod
    def counted(cls, counts: Mapping[PortKey, int]) -> Ports:
        """Give the ports that are taken so often."""
        return _holding(dict(counts))

    @property
    def counts(self) -> Mapping[PortKey, int]:
        """Say how often each key is taken."""
        return self._counts

    def plus(self, ports: Iterable[HostPort]) -> Ports:
        """Give these and *ports*."""
        return _holding(_counted(self._counts, ports, 1))

    def minus(self, ports: Iterable[HostPort]) -> Ports:
        """Give these without *ports*."""
        return _holding(_counted(self._counts, ports, -1))

    def clash(self, ports: Iterable[HostPort]) -> bool:
        """Ask whether one of *ports* cannot be where these are."""
        counts = self._counts
        return any(key in counts for key in in_the_way_of(ports))

    def __iter__(self) -> Iterator[PortKey]:
        """Give the keys under which these are in the way of others."""
        return iter(self._counts)

    def __bool__(self) -> bool:
        """Ask whether any is taken."""
        return bool(self._counts)

    def __eq__(self, other: object) -> bool:
        """Compare what is taken, and how often."""
        return isinstance(other, Ports) and self._counts == other._counts

    def __repr__(self) -> str:
        """Show the counts."""
        return f"Ports({dict(self._counts)})"


def keys_of(port: HostPort) -> tuple[PortKey, ...]:
    """Give the keys under which a port that is taken is noted."""
    own = (port.protocol, port.port, port.ip)
    return (own,) if port.ip == ANY else (own, (port.protocol, port.port, _SINGLE))


def in_the_way_of(ports: Iterable[HostPort]) -> Iterator[PortKey]:
    """Give the keys of what would be in the way of *ports*.

    That is, for each: the same port on every address, and on its own or, if it wants every
    address, on any.
    """
    for port in ports:
        yield port.protocol, port.port, ANY
        yield port.protocol, port.port, _SINGLE if port.ip == ANY else port.ip


def _counted(
    before: Mapping[PortKey, int], ports: Iterable[HostPort], step: int
) -> dict[PortKey, int]:
    counts = dict(before)
    for port in ports:
        for key in keys_of(port):
            count = counts.get(key, 0) + step
            if count > 0:
                counts[key] = count
            else:
                counts.pop(key, None)
    return counts


def _holding(counts: Mapping[PortKey, int]) -> Ports:
    made = Ports()
    made._counts = counts
    return made
