"""Filter and bind run in the event loop, the watch in its own thread: any interleaving is safe.

Every test delivers a watch event between any two steps of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, takewhile
from random import Random

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.freshness import Freshness
from extender.cache.reservation_table import ANY_NODE, Stage
from extender.model.gang import GangKey
from extender.model.memo import Memo
from extender.model.pod import HostPort, Status
from extender.permit.checks import BindNow, Entry, judge
from extender.permit.facts import CacheFacts
from extender.ports import BindOrder
from extender.reservations.wakeups import FilterResults
from tests.builders import GANG, member_of, node, pod, pod_group, seen, shape, uid
from tests.strategies import PROFILE
from tests.unit.cache.interleaving import between_steps

from .world import OPEN, World

PORTED = shape(cpu=1, host_ports=(HostPort(8080, "TCP", "0.0.0.0"),))


def come_and_go(come: Callable[[str], object], go: Callable[[str], object]) -> Callable[[], None]:
    """Add and remove three objects in turns."""
    chance = Random(17)

    def act() -> None:
        for name in ("x", "y", "z"):
            chance.choice((come, go))(name)

    return act


def test_filter_answers_while_the_watch_ends_reservations() -> None:
    world = World(pod_group(), plan=OPEN)
    world.promise("w-0", on="n2")
    world.see(seen("me", ""), seen("other", ""), seen("another", ""))
    world.ask_single("other")
    world.ask_single("another")

    def come(name: str) -> None:
        gang = GangKey(f"a/pod:{name}")
        world.table.reserve(pod(name), gang, ANY_NODE, 0.0, stage=Stage.FILTERED)

    with between_steps(come_and_go(come, lambda name: world.table.pod_scheduled(uid(name)))):
        answer = world.ask_single("me")

    assert answer.nodes


def test_filter_answers_while_the_watch_ends_reservations_of_host_ports() -> None:
    world = World(pod_group(), plan=OPEN)
    world.promise("w-0", on="n2", shape=PORTED)
    world.promise("w-1", on="n2", shape=PORTED)

    def come(name: str) -> None:
        world.table.reserve(pod(name, shape=PORTED), GANG, "n2", 0.0)

    with between_steps(come_and_go(come, lambda name: world.table.pod_scheduled(uid(name)))):
        answer = world.ask_single("me", shape=PORTED, offered=["n2"])

    assert not answer.nodes


def test_filter_results_are_forgotten_while_the_watch_forgets_others() -> None:
    answers = FilterResults(remembered=5)
    for number in range(6):
        answers.passed(pod(f"p{number}"), member_of())

    def come(name: str) -> None:
        answers.passed(pod(name), member_of())

    with between_steps(come_and_go(come, lambda name: answers.seen(uid(name), None))):
        for number in range(6, 66):
            answers.passed(pod(f"p{number}"), member_of())
            answers.refused(uid(f"p{number}"))

    assert len(answers) <= 5 + 3


def test_two_threads_keep_a_memo_small() -> None:
    memo = Memo()
    memo.most = 8

    with between_steps(
        come_and_go(lambda name: memo.keep(name, 0), lambda name: memo.pop(name, None))
    ):
        for number in range(60):
            memo.keep(number, "answer")

    assert len(memo) <= 8 + 3


def test_sources_are_read_while_others_are_still_expected() -> None:
    freshness, numbers = Freshness(), count()
    freshness.expect("first", 0.0)

    with between_steps(lambda: freshness.expect(f"source-{next(numbers)}", 0.0)):
        assert "first" in freshness.silence(1.0)


def test_a_node_that_shrinks_during_filter_is_not_taken_for_large() -> None:
    world = World(pod_group(), plan=OPEN)
    world.see(node("n1", cpu=3))
    world.clock.advance(31.0)
    world.see(node("n1", cpu=4))
    sizes = iter((2,))
    steps = count()

    def shrink() -> None:
        # Late enough that filter has read the clock by then.
        if next(steps) >= 30 and (cpu := next(sizes, None)) is not None:
            world.see(node("n1", cpu=cpu))

    with between_steps(shrink):
        for _ in range(3):
            world.cluster.recently_shrunk()

    assert "n1" in world.cluster.recently_shrunk()


#: A landing checks every third of the points of a nightly run.
STEP = 2 if PROFILE == "nightly" else 6
STEPS = ["the pod is being deleted", "kube-scheduler found no node", "the pod left its gang"]


@pytest.mark.parametrize("step", STEPS)
def test_a_binding_that_is_sent_during_a_watch_event_keeps_its_capacity(step: str) -> None:
    """The watch reads a reservation and ends it. The binding may be sent at any moment."""
    change = {
        STEPS[0]: seen("w-0", status=Status.RELEASING),
        STEPS[1]: seen("w-0", refusal="0/2 nodes are available"),
        STEPS[2]: seen("w-0", gang="another"),
    }[step]
    outcomes = list(takewhile(bool, (send_after(turns, change) for turns in count(step=STEP))))

    assert [True] in outcomes, "never sent"


def send_after(turns: int, change: SeenPod) -> list[bool]:
    """Try to send the binding after so many steps of the watch, unless it ended before."""
    world = World(pod_group(), seen("w-0"), plan=OPEN)
    world.promise("w-0", on="n1")
    world.table.advance(uid("w-0"), Stage.FILTERED)
    left, was_sent = iter(range(turns)), list[bool]()

    def send() -> None:
        if next(left, None) is None and not was_sent:
            known = world.table.of(uid("w-0"))
            is_passed = known is not None and known.stage is Stage.FILTERED
            was_sent.append(is_passed and world.table.advance(uid("w-0"), Stage.BINDING, "n1"))

    with between_steps(send, within="reservation_table"):
        world.cluster.apply(Upsert(change))

    known = world.table.of(uid("w-0"))
    if was_sent == [True]:
        assert known is not None
        assert known.stage is Stage.BINDING
    return was_sent


def test_a_gang_is_admitted_while_the_watch_adds_and_removes_its_members() -> None:
    world = World(pod_group(min_member=4), plan=OPEN)

    with between_steps(come_and_go(lambda name: world.see(seen(name)), world.lose_pod)):
        world.ask("x")
        world.arrivals.settle()
        world.ledger.check_due()

    held = [*world.table.on_node(ANY_NODE), *world.table.on_node("n1"), *world.table.on_node("n2")]
    assert len(held) == len({each.uid for each in held})


def test_a_reservation_is_made_while_the_watch_removes_and_adds_its_node() -> None:
    world = World(pod_group(), seen("w-0"), seen("w-1"))
    snapshot = world.cluster.snapshot(world.clock.now())
    plan = world.make_plan(snapshot)

    with between_steps(
        come_and_go(
            lambda name: world.see(node("n1")),
            lambda name: world.cluster.apply(Delete(Kind.NODE, "n1")),
        )
    ):
        world.applier.propose(snapshot, plan)

    assert len(world.table.of_gang(GANG)) in (0, 2)


def test_a_bind_of_an_ordinary_pod_is_judged_alike_at_each_step_of_its_watch_event() -> None:
    world = World(plan=OPEN)
    preemption = world.preemption
    facts = CacheFacts(
        world.cluster,
        world.ledger,
        may_lose=preemption.may_lose,
        may_lose_all=preemption.may_lose_all,
    )
    order = BindOrder(uid=uid("me"), namespace="a", name="me", node="n1")
    assert world.ask_single("me").nodes
    judged: list[Entry] = []

    with between_steps(lambda: judged.append(judge(order, facts)), within="cache"):
        world.see(seen("me", ""))

    assert [each for each in judged if each != BindNow()] == []
