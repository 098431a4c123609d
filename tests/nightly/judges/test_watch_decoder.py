"""The conversion of watch events into moments."""

from __future__ import annotations

from typing import Any

from tests import objects
from tests.nightly.faults import record as seen
from tests.nightly.faults.watch_decoder import Object, WatchDecoder


class Watched:
    """Decodes events with increasing versions."""

    def __init__(self) -> None:
        self.decoder = WatchDecoder("gang-scheduler")
        self._version = 0

    def see(self, resource: str, thing: Object, kind: str = "MODIFIED") -> list[seen.Change]:
        return self.decoder.see(resource, kind, self.stored(thing), 1.0)

    def see_all(self, resource: str, *things: Object) -> list[seen.Change]:
        items = [self.stored(thing) for thing in things]
        self._version += 1
        listed = {"metadata": {"resourceVersion": str(self._version)}, "items": items}
        return self.decoder.see_all(resource, listed, 1.0)

    def stored(self, thing: Object) -> Object:
        self._version += 1
        about = {"uid": thing["metadata"]["name"], **thing["metadata"]}
        return {**thing, "metadata": {**about, "resourceVersion": str(self._version)}}


def pod(**spec: Any) -> Object:
    return objects.pod("p", "a", gang="train", cpu="500m", **spec)


def names(changes: list[seen.Change]) -> list[str]:
    return [type(change).__name__ for change in changes]


def leaving(thing: Object, reason: str = "") -> Object:
    about = {**thing["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {**thing, "metadata": about, "status": {"conditions": [condition] if reason else []}}


def pod_of_now() -> Object:
    """Return metadata without a deletion timestamp."""
    return {"metadata": pod()["metadata"]}


def test_each_change_of_a_pod_is_one_moment() -> None:
    watched = Watched()

    (made,) = watched.see("pods", pod(), "ADDED")
    assert isinstance(made, seen.PodCreated)
    assert (made.gang, made.namespace, made.ours) == ("a/train", "a", True)
    assert made.request == {"pods": 1000, "cpu": 500, "memory": 64 * 2**20 * 1000}
    assert watched.see("pods", pod()) == []
    (bound,) = watched.see("pods", pod(nodeName="n1"))
    assert isinstance(bound, seen.PodBound)
    assert bound.version > made.version
    assert watched.see("pods", pod(nodeName="n1")) == []
    assert names(watched.see("pods", leaving(pod(nodeName="n1")))) == ["PodLeaving"]
    assert names(watched.see("pods", leaving(pod(nodeName="n1")), "DELETED")) == ["PodEnded"]


def test_pod_first_seen_when_deleted_has_all_moments() -> None:
    gone = leaving(pod(nodeName="n1"), "PreemptionByScheduler")

    made = Watched().see("pods", gone, "DELETED")
    assert names(made) == ["PodCreated", "PodBound", "PodLeaving", "PodEnded"]
    assert isinstance(made[2], seen.PodLeaving)
    assert made[2].by_scheduler


def test_preempted_pod_is_ended_by_the_scheduler_after_an_overwritten_reason() -> None:
    watched = Watched()
    marked = {**leaving(pod(nodeName="n1"), "PreemptionByScheduler"), **pod_of_now()}

    watched.see("pods", marked)
    gone = watched.see("pods", leaving(pod(nodeName="n1"), "EvictionByEvictionAPI"))
    assert [each.by_scheduler for each in gone if isinstance(each, seen.PodLeaving)] == [True]


def test_pod_with_a_withdrawn_preemption_is_ended_by_others() -> None:
    watched = Watched()
    watched.see("pods", {**leaving(pod(nodeName="n1"), "PreemptionByScheduler"), **pod_of_now()})
    watched.see("pods", pod(nodeName="n1"))

    gone = watched.see("pods", leaving(pod(nodeName="n1"), "EvictionByEvictionAPI"))
    assert [each.by_scheduler for each in gone if isinstance(each, seen.PodLeaving)] == [False]


def test_pod_on_two_nodes_has_two_moments() -> None:
    watched = Watched()
    watched.see("pods", pod(nodeName="n1"))

    assert names(watched.see("pods", pod(nodeName="n2"))) == ["PodBound"]


def test_succeeded_pod_ends_before_it_is_deleted() -> None:
    watched = Watched()
    done = {**pod(nodeName="n1"), "status": {"phase": "Succeeded"}}

    assert names(watched.see("pods", done)) == ["PodCreated", "PodBound", "PodEnded"]
    assert watched.see("pods", done) == []
    (gone,) = watched.see("pods", done, "DELETED")
    assert isinstance(gone, seen.PodEnded)
    assert gone.how == "gone"


def test_objects_missing_in_a_list_are_deleted() -> None:
    watched = Watched()
    watched.see("pods", pod(nodeName="n1"))
    watched.see("nodes", objects.node("n1"))
    watched.see("podgroups", objects.pod_group("train", "a", 3))
    watched.see("queues", objects.queue("q"))

    assert names(watched.see_all("pods")) == ["PodEnded"]
    assert names(watched.see_all("nodes")) == ["NodeGone"]
    assert names(watched.see_all("podgroups")) == ["GroupGone"]
    assert names(watched.see_all("queues")) == ["QueueGone"]
    assert watched.see_all("pods") + watched.see_all("nodes") + watched.see_all("queues") == []
    assert names(watched.see_all("nodes", objects.node("n1"))) == ["NodeSet"]


def test_node_has_a_moment_only_for_capacity_and_schedulability() -> None:
    watched = Watched()
    node = objects.node("n1", cpu="4")

    (first,) = watched.see("nodes", node)
    assert isinstance(first, seen.NodeSet)
    assert (first.room["cpu"], first.closed) == (4000, False)
    assert watched.see("nodes", {**node, "status": {**node["status"], "phase": "Running"}}) == []
    for spec in ({"unschedulable": True}, {"taints": [{"key": "k", "effect": "NoExecute"}]}):
        (closed,) = watched.see("nodes", {**node, "spec": spec})
        assert isinstance(closed, seen.NodeSet)
        assert closed.closed
        watched.see("nodes", node)


def test_queue_has_its_capability_and_state() -> None:
    watched = Watched()
    queue = objects.queue("q", capability={"cpu": "3"})

    (first,) = watched.see("queues", queue)
    assert isinstance(first, seen.QueueSet)
    assert (first.ceiling, first.open) == ({"cpu": 3000}, True)
    (closed,) = watched.see("queues", {**queue, "status": {"state": "Closed"}})
    assert isinstance(closed, seen.QueueSet)
    assert not closed.open


def test_recreated_group_has_its_new_uid() -> None:
    watched = Watched()
    group = objects.pod_group("train", "a", 3, queue="q")
    again = {**group, "metadata": {**group["metadata"], "uid": "other"}}

    (first,) = watched.see("podgroups", group)
    assert isinstance(first, seen.GroupSet)
    assert (first.gang, first.minimum, first.queue) == ("a/train", 3, "q")
    assert names(watched.see("podgroups", again)) == ["GroupSet"]
    assert names(watched.see("podgroups", again, "DELETED")) == ["GroupGone"]
