"""How long and how much the barrier may wait.

kube-scheduler gives a bind call one timeout for everything. It is split into holding,
verifying, committing and a margin; the first call of a gang starts the clock for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Spans in seconds; together they make up httpTimeout of kube-scheduler's bind entry."""

    hold_s: float = 30.0
    verify_s: float = 2.0
    commit_s: float = 10.0
    margin_s: float = 3.0
    #: How fast a slow API server takes our bindings; a gang that is larger needs more time.
    binds_per_s: float = 250.0
    #: How long a gang may look hopeless before it is sent back.
    grace_s: float = 2.0
    #: Pause before the PodGroup is read again after a failed read.
    reread_s: float = 0.5
    #: How long a gang that was bound only in part is completed without holding its members.
    broken_s: float = 600.0
    #: After so long without the rest, what was bound is taken back instead; None: never.
    take_back_s: float | None = None
    max_holds: int = 10_000
    backoff_s: float = 10.0
    max_backoff_s: float = 120.0

    @classmethod
    def within(
        cls,
        hold_s: float,
        bind_timeout_s: float,
        max_holds: int = 10_000,
        take_back_s: float | None = None,
    ) -> Limits:
        """Split what *bind_timeout_s* leaves after *hold_s*: 15 s give 2 + 10 + 3."""
        rest = bind_timeout_s - hold_s
        return cls(
            hold_s=hold_s,
            verify_s=rest * 2 / 15,
            commit_s=rest * 10 / 15,
            margin_s=rest * 3 / 15,
            max_holds=max_holds,
            take_back_s=take_back_s,
        )

    @property
    def bind_timeout_s(self) -> float:
        """The httpTimeout these limits are made for."""
        return self.hold_s + self.verify_s + self.commit_s + self.margin_s

    def commit_needs_s(self, binds: int) -> float:
        """Give the time that binding *binds* pods may take; the binder gives up after commit_s."""
        return binds / self.binds_per_s

    def for_timeout(self, bind_timeout_s: float) -> Limits:
        """Shrink every span in proportion, for a caller that gives up after *bind_timeout_s*."""
        share = min(1.0, bind_timeout_s / self.bind_timeout_s)
        return replace(
            self,
            hold_s=self.hold_s * share,
            verify_s=self.verify_s * share,
            commit_s=self.commit_s * share,
            margin_s=self.margin_s * share,
        )
