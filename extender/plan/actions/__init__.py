"""The actions: what a cycle does, one after the other, in the order the policy names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.plan.actions.allocate import allocate
from extender.plan.actions.backfill import backfill
from extender.plan.actions.enqueue import enqueue
from extender.plan.actions.preempt import preempt
from extender.plan.actions.reclaim import reclaim
from extender.plan.session import Session

BY_NAME: Mapping[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "reclaim": reclaim,
    "preempt": preempt,
}
