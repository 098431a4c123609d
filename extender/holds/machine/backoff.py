"""How long a gang that did not assemble must wait: longer each time, never in step with others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from extender.holds.machine.limits import Limits
from extender.model.gang import GangKey

_JITTER = 0.25
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Record:
    aborts: int = 0
    until: float = 0.0


class Backoff:
    """Aborts of gangs that have not started since; *chance* gives numbers from 0 to 1."""

    def __init__(self, limits: Limits, chance: Callable[[], float]) -> None:
        self._limits = limits
        self._chance = chance
        self._records: OrderedDict[GangKey, _Record] = OrderedDict()

    def aborted(self, gang: GangKey, now: float) -> float:
        """Count an abort and give the seconds the gang must wait."""
        record = self._records.setdefault(gang, _Record())
        self._records.move_to_end(gang)
        if len(self._records) > _REMEMBERED:
            self._records.popitem(last=False)
        span = self._span(record, now)
        record.aborts += 1
        record.until = now + span
        return span

    def lasts(self, gang: GangKey, now: float) -> bool:
        """Ask whether the gang must still wait."""
        record = self._records.get(gang)
        return record is not None and now < record.until

    def started(self, gang: GangKey) -> None:
        """Forget the aborts of a gang that has started, or is another one by now."""
        self._records.pop(gang, None)

    def _span(self, record: _Record, now: float) -> float:
        limits = self._limits
        # A gang that stayed away for long is a new attempt, not a stubborn one.
        if record.aborts and now - record.until > 2 * limits.max_backoff_s:
            record.aborts = 0
        span = min(limits.backoff_s * 2.0 ** min(record.aborts, 32), limits.max_backoff_s)
        return span * (1 + _JITTER * self._chance())
