"""A terminating namespace, in which no event can be created."""

from __future__ import annotations

from tests import objects

from .control_plane import ControlPlane
from .waiting import wait_for

SCHEDULER = "terminating-scheduler"


def test_refused_events_are_counted_and_not_logged_as_warnings(
    plane: ControlPlane, namespace: str
) -> None:
    plane.api.create(objects.pod_group("train", namespace, 2))
    huge = {"gang": "train", "cpu": "999999", "scheduler": SCHEDULER}
    plane.api.create(*objects.pods(2, "train", namespace, **huge))
    name = f"--scheduler-name={SCHEDULER}"
    with (
        plane.extender(name, "--log-level=debug") as extender,
        plane.scheduler(plane.scheduler_config(extender, name)),
    ):

        def counted(outcome: str) -> float:
            labels = {"kind": "Event", "outcome": outcome}
            return extender.metric("gang_extender_status_writes_total", **labels)

        wait_for(lambda: counted("written"), 60, "an event says that it waits")
        # Without kube-controller-manager a namespace stays terminating.
        plane.api.delete("namespaces", namespace)
        plane.api.delete("pods", "train-1", namespace, grace_seconds=0)
        wait_for(lambda: counted("gone"), 60, "the next event is refused")
        log = extender.log_since_start()

    assert warnings(log) == 0
    assert "because it is being terminated" in log


def warnings(log: str) -> int:
    return sum("not written" in line and '"level": "warning"' in line for line in log.splitlines())
