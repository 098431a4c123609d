"""Namespaces and priority classes: what administrators, not tenants, may say of gangs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A tenant's place, with the policy its administrators wrote on it."""

    name: str
    #: The queue of gangs that name none; empty when not said.
    queue: str = ""
    #: The queues its gangs may name; None when it may name any.
    allowed: frozenset[str] | None = None

    def allows(self, queue: str) -> bool:
        """Ask whether its gangs may name *queue*."""
        return self.allowed is None or queue in self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A name for a priority."""

    name: str
    value: int = 0
    #: The one for those who name none.
    is_default: bool = False
