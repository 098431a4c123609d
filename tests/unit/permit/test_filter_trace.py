"""I10: filter, prioritize and preempt leave only reservations that expire."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from extender.cache.reservation_table import Stage
from tests.builders import member_of, node, pod, pod_group, seen
from tests.strategies import examples
from tests.unit.reservations.world import OPEN, World

EXAMPLES = examples(100)
STEPS = 20
RESERVATION_S = 20.0

NODES = ("n1", "n2", "n3")
#: Two gangs of which the second lacks a member, and pods of no gang.
MEMBERS = [(f"{gang}-{index}", gang) for gang in ("left", "right") for index in range(3)]
OFFERS = [list(NODES), ["n1"], ["n2", "n3"], []]


class FilterMachine(RuleBasedStateMachine):
    """kube-scheduler calls hooks in any order, and never binds."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            *(node(name, cpu=2) for name in NODES),
            pod_group("left", 3),
            pod_group("right", 4),
            *(seen(name, gang) for name, gang in MEMBERS),
            seen("alone", ""),
            nodes=[],
            plan=OPEN,
        )
        self.cluster, self.gate = self.world.cluster, self.world.gate
        self.at_first = self.what_is_known()

    @rule(call=st.sampled_from(list(product(MEMBERS, OFFERS))))
    def filter_member(self, call):
        (name, gang), offered = call
        answer = self.gate.filter(pod(name), member_of(gang), offered)

        assert set(answer.nodes) <= set(offered)

    @rule(offered=st.sampled_from(OFFERS))
    def filter_lone(self, offered):
        alone = seen("alone", "")
        self.gate.filter(alone.pod, alone.membership, offered)

    @rule(who=st.sampled_from(MEMBERS))
    def ask_the_rest(self, who):
        name, gang = who
        before = list(self.cluster.reservations.of_gang(member_of(gang).key))
        self.gate.prioritize(pod(name), NODES)
        self.gate.preempt(pod(name), member_of(gang), {"n1": ["a-left-0"]})

        assert list(self.cluster.reservations.of_gang(member_of(gang).key)) == before

    @rule(seconds=st.sampled_from((0.5, 6.0)))
    def time_passes(self, seconds):
        self.world.wait(seconds)
        self.world.arrivals.settle()

    @invariant()
    def only_reservations_were_made(self):
        assert self.what_is_known() == self.at_first
        for name, gang in MEMBERS:
            for each in self.cluster.reservations.of_gang(member_of(gang).key):
                assert each.stage <= Stage.FILTERED, name

    @invariant()
    def reservations_fit_their_nodes(self):
        for name in NODES:
            assert self.cluster.reservations.reserved_on(name).fits_in(
                self.cluster.node(name).allocatable
            )

    def teardown(self):
        for _ in range(2):
            self.time_passes(RESERVATION_S + 1)
        assert len(self.cluster.reservations) == 0, "a reservation outlived its deadline"

    def what_is_known(self):
        return [
            [(each.uid, each.status, each.node) for each in self.cluster.pods_of(key)]
            for key in (member_of("left").key, member_of("right").key)
        ]


def play(stories: int) -> None:
    run_state_machine_as_test(
        FilterMachine,
        settings=settings(
            max_examples=stories,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_filter_prioritize_and_preempt_leave_only_reservations_that_expire():
    play(EXAMPLES)
