"""The lease audit finds writes of a replica that does not lead."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.candidates import behind_a_service
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gang_stream import GangStream
from tests.cluster.replicas import Replica
from tests.cluster.train_gang import Pool
from tests.cluster.waiting import wait_for


class NeverEndingTerm(Replica):
    """An extender whose term never ends."""

    def command(self) -> list[str | Path]:
        fault = (
            "from extender.leader.fencing import Term;"
            "Term.current = lambda self: self._number;"
            "Term.holds = lambda self, number: bool(number);"
            "from extender.cli.main import main; main()"
        )
        _, _, _, *words = super().command()
        return [sys.executable, "-c", fault, *words]


def test_writes_without_the_lease_are_found(
    plane: ControlPlane, namespace: str, nodes: Callable[..., Pool]
) -> None:
    pool = nodes(2, cpu="1000", memory="1Ti", pods=1000)
    with behind_a_service(plane, "lawless", kind=NeverEndingTerm) as candidates:
        leader = candidates.leader()
        with GangStream(plane, namespace, pool.selector, candidates.scheduler_name) as gangs:
            gangs.observer.wait_for(6, 60)
            since = datetime.now(UTC)
            leader.send_signal(signal.SIGSTOP)
            try:
                wait_for(lambda: candidates.other(leader).leads, 60, "the other leads")
            finally:
                leader.send_signal(signal.SIGCONT)
            wait_for(
                lambda: candidates.audit.writes_without_lease(since),
                60,
                "it writes without leading",
            )
