"""A namespace that is being deleted: nothing can be made in it, and that is nobody's fault."""

from __future__ import annotations

from tests import objects

from .control_plane import ControlPlane
from .waiting import wait_for

SCHEDULER = "leaver"


def test_what_cannot_be_said_in_it_is_counted_and_no_warning(
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

        wait_for(lambda: counted("written"), 60, "that it waits is told")
        # Without a kube-controller-manager a namespace is never done with being deleted.
        plane.api.delete("namespaces", namespace)
        plane.api.delete("pods", "train-1", namespace, grace_seconds=0)
        wait_for(lambda: counted("gone"), 60, "that it lacks a member cannot be told")
        said = extender.log_since_start()

    assert counted_warnings(said) == 0
    assert "because it is being terminated" in said


def counted_warnings(said: str) -> int:
    return sum("not written" in line and '"level": "warning"' in line for line in said.splitlines())
