"""Nobody is let in before the next plan in place of pods that are still ending."""

from __future__ import annotations

from extender.model.gang import GangKey, Membership
from extender.model.pod import Status
from extender.model.queue import Namespace, Queue
from tests.builders import amounts, pod, seen

from .world import NODES, World

HOME = (Namespace(name="a", queue="home"), Queue(name="home", capability=amounts(cpu=1)))


def test_an_ordinary_pod_waits_until_the_one_it_follows_is_gone() -> None:
    world = World(*HOME, seen("old", "", on=NODES[0], status=Status.RELEASING))
    world.turn()
    member = Membership(key=GangKey("a/pod:new"))

    refused = world.gate.filter(pod("new"), member, NODES)
    world.lose_pod("old")
    world.turn()

    assert not refused.nodes
    assert world.gate.filter(pod("new"), member, NODES).nodes
