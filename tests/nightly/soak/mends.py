"""Mends that can be taken out again, to see that somebody notices.

    python -m tests.nightly.soak.mends [how many stories]

prints, for every mend, which story fails without it, and after how many stories drawn at random
the machine stumbles over its absence by itself. A check that cannot fail checks nothing.

A mend is taken out by replacing the few lines it consists of in the running classes, for as long
as the context lasts; the rest of the system stays as it is. So a mend whose old place is gone
altogether (a promise made in five rooms) is taken out where its rule lives now.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import Phase, seed

from extender.cache import cluster as cluster_module, gangs
from extender.cache.cluster import Cluster
from extender.cache.gang_history import NOT_CHOSEN_S, RejectedNodes
from extender.cache.reservation_table import ReservationTable, Stage
from extender.model.resources import NOTHING
from extender.permit import checks
from extender.permit.facts import CacheFacts
from extender.planner.quota import QuotaNode
from extender.planning_loop import QUIET_S, PlanningLoop
from extender.reservations import apply_plan
from extender.reservations.apply_plan import PlanApplier
from extender.reservations.capacity import QueueAllowance
from extender.reservations.ledger import Ledger
from extender.reservations.wakeups import WakeUps
from tests.system import test_stories
from tests.system.machine import SystemMachine, Theme, play
from tests.system.referee import Breach
from tests.system.world import worlds
from tests.unit.reservations import test_ledger

#: The same stories every time; what one seed finds late another may find soon.
SEED = 12
STORIES = 1_000

TakenOut = Callable[[], AbstractContextManager[Any]]


class Mend(NamedTuple):
    """Something that was wrong once."""

    #: The probe that showed it first; empty for what the machine or a reader found later.
    probe: str
    #: What the system does again without the mend.
    without: str
    taken_out: TakenOut
    #: Fails without the mend: a story of the whole system, or of the ledger alone.
    story: Callable[..., None]
    #: What the story is told with, besides a maker of worlds.
    told_with: dict[str, Any] = {}
    #: What the machine's stories are about while it is looked for; empty for stories of all kinds.
    theme: Theme = Theme()
    #: Why the machine is not likely to find it by itself; empty where nothing speaks against it.
    unfound: str = ""

    def tell(self) -> None:
        """Tell the story; it raises what it finds."""
        if self.story.__module__ == test_stories.__name__:
            with worlds() as make_world:
                self.story(make_world, **self.told_with)
        else:
            self.story(**self.told_with)


def instead(owner: Any, name: str, new: Any) -> TakenOut:
    """Replace one attribute."""
    return lambda: patch.object(owner, name, new)


# ── waking and passes ─────────────────────────────────────────────────────────────────────────


def _look_without_waking(self: Ledger, promise: Any, now: float) -> None:
    if promise.stage >= Stage.WAITING:
        self._table.drop_unsettled(promise, now)
    elif now - promise.since_monotonic >= self._current_timeout_s:
        self._expire(promise)


def _heard_without_stepping_back(self: Ledger, uid: Any, pod: Any) -> None:
    self.filter_results.seen(uid, pod)


def _is_due_by_changes_alone(self: PlanningLoop) -> bool:
    moved = self._cluster.generation != self._published.plan.generation
    is_over = self._cluster.reservations.is_backoff_over()
    return is_over or moved or self._clock.monotonic() - self._cycled_at > QUIET_S


# ── offers ────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _an_offer_that_misses_costs_the_ticket() -> Iterator[None]:
    def missed(self: Ledger, pod: Any, promise: Any, offered: Any) -> None:
        self._cluster.rejected_nodes.note(promise.gang, promise.node, NOT_CHOSEN_S)
        self.expire_gang(promise.gang)

    with (
        patch.object(Ledger, "_other_node", lambda self, pod, promise, offered: ""),
        patch.object(Ledger, "_node_not_offered", missed),
    ):
        yield


# ── binding ───────────────────────────────────────────────────────────────────────────────────


def _commit_only_what_is_promised(self: Ledger, uid: Any, node: str) -> None:
    self._table.advance(uid, Stage.BINDING, node)


def _lapse_whoever_is_held(usual: Callable[..., None]) -> Callable[..., None]:
    def lapse(self: Ledger, promise: Any) -> None:
        members = self._table.of_gang(promise.gang)
        waiting = tuple(each for each in members if each.stage <= Stage.FILTERED)
        with patch.object(self._table, "of_gang", lambda key: waiting):
            usual(self, promise)

    return lapse


def _while_the_ticket_is_issued(usual: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Ledger, *given: Any) -> Any:
        opening, self.opening = self.opening, set()
        try:
            return usual(self, *given)
        finally:
            self.opening = opening

    return called


# ── queues ────────────────────────────────────────────────────────────────────────────────────


def _quota_without_guarantee(usual: Callable[..., None]) -> Callable[..., None]:
    def make(self: QuotaNode, name: str, most: Any, least: Any, *rest: Any) -> None:
        usual(self, name, most, NOTHING, *rest)

    return make


def _stands_whatever_the_queue_has(usual: Callable[..., bool]) -> Callable[..., bool]:
    def stands(self: PlanApplier, snapshot: Any, part: Any) -> bool:
        with patch.object(QueueAllowance, "check", lambda self, queue, namespace, needs: None):
            return usual(self, snapshot, part)

    return stands


def _may_start_while_nothing_is_used_up(usual: Callable[..., bool]) -> Callable[..., bool]:
    def may_start(self: QueueAllowance, queue: str, namespace: str, needs: Any) -> bool:
        left = self._direct_admission[queue].left if queue in self._direct_admission else None
        spent, quota = self._spent.get(queue, NOTHING), self._quotas.get(queue)
        if left is not None and any(left[name] <= spent.amount(name) for name in left):
            return False
        if quota is not None and any(quota.held.get(each, 0) >= quota.ceiling[each]
                                     for each in quota.ceiling):  # fmt: skip
            return False
        return usual(self, queue, namespace, needs)

    return may_start


# ── time ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _backoff_hangs_on_the_wall_clock() -> Iterator[None]:
    def make(self: Cluster, clock: Any, *rest: Any, **named: Any) -> None:
        usual_init(self, clock, *rest, **named)
        self.reservations.wall_clock = clock.now

    def by_wall_clock(usual: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: ReservationTable, *given: Any) -> Any:
            monotonic, self._monotonic = self._monotonic, self.wall_clock
            try:
                return usual(self, *given)
            finally:
                self._monotonic = monotonic

        return called

    usual_init = Cluster.__init__
    with ExitStack() as patches:
        patches.enter_context(patch.object(Cluster, "__init__", make))
        for name in ("back_off", "backs_off_for", "is_backoff_over", "drain"):
            patched = by_wall_clock(getattr(ReservationTable, name))
            patches.enter_context(patch.object(ReservationTable, name, patched))
        yield


# ── the plan ──────────────────────────────────────────────────────────────────────────────────


def _assemble_what_the_watch_has_shown(key: Any, written: Any, roster: Any, *rest: Any) -> Any:
    if written is None and roster is None:
        return None
    return gangs.assemble(key, written, roster, *rest)


def _is_parked_by_its_snapshot(self: PlanApplier, pod: Any) -> bool:
    was_refused = self._ledger.filter_results.refused_at(pod.uid) is not None
    return was_refused or bool(pod.refusal) or pod.created <= self._started


def _needs_no_ticket_whoever_waits(usual: Callable[..., bool]) -> Callable[..., bool]:
    def needs_no_ticket(self: PlanApplier, gang: Any, plan: Any) -> bool:
        open_queues = {
            name: each._replace(left=None) for name, each in plan.direct_admission.items()
        }
        return usual(self, gang, replace(plan, direct_admission=open_queues))

    return needs_no_ticket


@contextmanager
def _tickets_are_issued_whoever_left() -> Iterator[None]:
    with (
        patch.object(PlanApplier, "_is_same", lambda self, gang: True),
        patch.object(PlanApplier, "_still_waits", lambda self, pod: True),
    ):
        yield


# ── the table ─────────────────────────────────────────────────────────────────────────────────

MENDS = (
    Mend(
        "p03",
        "nobody is woken but who was parked when the ticket was issued",
        instead(Ledger, "_check", _look_without_waking),
        test_stories.test_a_member_whose_refusal_is_seen_after_its_reservation_was_made_is_woken,
    ),
    Mend(
        "p04",
        "a stale nomination costs the gang its ticket",
        _an_offer_that_misses_costs_the_ticket,
        test_stories.test_a_stale_nomination_ends_no_reservation_of_a_gang,
    ),
    Mend(
        "p20",
        "a sample without the promised node costs the gang its ticket",
        _an_offer_that_misses_costs_the_ticket,
        test_stories.test_offers_of_a_few_nodes_at_a_time_end_no_reservation_of_a_gang,
    ),
    Mend(
        "p05",
        "an ordinary pod is bound whatever was promised on the node since it passed",
        instead(Ledger, "may_bind", lambda self, uid, node: True),
        test_ledger.test_an_ordinary_pod_does_not_take_reserved_capacity_between_filter_and_bind,
    ),
    Mend(
        "p06",
        "asking for a pass brings none while nothing has changed",
        instead(PlanningLoop, "is_due", _is_due_by_changes_alone),
        test_stories.test_a_requested_cycle_runs,
        theme=Theme(("ask_for_a_pass",)),
    ),
    Mend(
        "p10",
        "a gang waits as long as the wall clock says",
        _backoff_hangs_on_the_wall_clock,
        test_stories.test_a_wall_clock_set_back_does_not_delay_a_gang_whose_reservation_expired,
        theme=Theme(("set_the_wall_clock",), "one"),
        unfound="kube-scheduler must be away for all of a ticket's life, and the clock be set back "
        "in the few seconds after",
    ),
    Mend(
        "p11",
        "a ticket lapses although members are held",
        instead(Ledger, "_expire", _lapse_whoever_is_held(Ledger._expire)),
        test_ledger.test_a_member_busy_with_its_volumes_keeps_its_reservation_while_other_binds_wait,
        theme=Theme(("slow_volumes",)),
    ),
    Mend(
        "p12",
        "taints are not looked at before the bindings go out",
        instead(checks, "_accepts", lambda node, pod: node is not None),
        test_stories.test_a_taint_is_noticed_before_the_bindings_are_sent,
        theme=Theme(("slow_volumes", "taint_a_node"), "one"),
    ),
    Mend(
        "p12",
        "a node that shrank is not looked at before the bindings go out",
        instead(CacheFacts, "fits", lambda self, node, pods: True),
        test_stories.test_a_node_that_shrank_is_noticed_before_the_bindings_are_sent,
    ),
    Mend(
        "p13",
        "quotas ignore guarantees, in the plan and in the ledger",
        instead(QuotaNode, "__init__", _quota_without_guarantee(QuotaNode.__init__)),
        test_stories.test_ordinary_pods_of_two_queues_leave_a_third_its_guarantee,
    ),
    Mend(
        "p16",
        "what is wrong with one gang bars its nodes to all pods of the shape",
        instead(gangs, "_with_own_shapes", lambda pods, roster, misfits: pods),
        test_stories.test_a_gang_with_bad_volumes_excludes_no_node_for_others_of_its_size,
        {"clears": True},
    ),
    Mend(
        "p18",
        "tickets are issued without asking what the queue has left",
        instead(PlanApplier, "_is_valid", _stands_whatever_the_queue_has(PlanApplier._is_valid)),
        test_stories.test_filter_and_plan_do_not_use_the_same_remainder_of_a_ceiling,
        {"only": "n2"},
    ),
    Mend(
        "p24",
        "a queue that has used up one resource is closed to all",
        instead(
            QueueAllowance,
            "may_start",
            _may_start_while_nothing_is_used_up(QueueAllowance.may_start),
        ),
        test_stories.test_ordinary_pods_are_admitted_in_a_queue_that_may_have_no_gpu,
    ),
    Mend(
        "",
        "a pass does not count pods that only filter has seen",
        instead(cluster_module, "assemble", _assemble_what_the_watch_has_shown),
        test_stories.test_a_cycle_counts_pods_known_only_from_filter,
    ),
    Mend(
        "",
        "the room of a binding without an answer is given back",
        instead(Ledger, "mark_unknown", lambda self, uid, node: self.release(uid)),
        test_stories.test_the_capacity_of_a_binding_without_an_answer_is_not_reserved_again,
    ),
    Mend(
        "",
        "ordinary pods get no ticket where somebody waits",
        instead(
            PlanApplier,
            "_needs_no_placement",
            _needs_no_ticket_whoever_waits(PlanApplier._needs_no_placement),
        ),
        test_stories.test_ordinary_pods_that_fit_the_plan_do_not_wait_for_the_periodic_cycle,
    ),
    Mend(
        "",
        "what kube-scheduler says of an ordinary pod is believed as the snapshot had it",
        instead(PlanApplier, "_is_unschedulable", _is_parked_by_its_snapshot),
        test_stories.test_an_ordinary_pod_that_fits_nowhere_does_not_block_its_queue,
    ),
    Mend(
        "",
        "where all nodes are full kube-scheduler is called like anywhere else",
        instead(Cluster, "any_node", lambda self: ""),
        test_stories.test_a_scheduler_without_calls_in_a_full_cluster_is_heard_when_it_is_probed,
        {"ways": test_stories.FULL},
    ),
    Mend(
        "",
        "a nomination outlives its ticket",
        instead(WakeUps, "clear_nominations", lambda self, promises: None),
        test_stories.test_a_gang_with_bad_volumes_excludes_no_node_for_others_of_its_size,
        {"clears": False},
    ),
    Mend(
        "",
        "somebody is traded to a node that shrank",
        instead(Ledger, "_is_valid", lambda self, promise: True),
        test_ledger.test_reservations_are_not_swapped_to_a_node_that_got_worse,
        {"worse": {"cpu": 1}},
    ),
    Mend(
        "",
        "room to which a binding is on its way is given to others",
        instead(ReservationTable, "committed_nodes", lambda self: {}.keys()),
        test_ledger.test_capacity_of_a_binding_in_flight_is_not_given_to_another_pod,
        theme=Theme(("restart_the_scheduler",)),
    ),
    Mend(
        "",
        "a node that shrank is believed to be as large as kube-scheduler thinks",
        instead(Cluster, "recently_shrunk", lambda self: {}.keys()),
        test_ledger.test_a_node_that_just_shrank_is_judged_by_the_extenders_count,
        theme=Theme(("shrink_a_node",)),
    ),
    Mend(
        "",
        "an ordinary pod is bound to the node it was promised, however small by now",
        instead(Ledger, "may_bind", lambda self, uid, node: True),
        test_ledger.test_an_ordinary_pod_is_not_bound_to_a_reserved_node_that_shrank_meanwhile,
    ),
    Mend(
        "",
        "a member that passed and was found no node is taken to be on its way",
        instead(Ledger, "pod_changed", _heard_without_stepping_back),
        test_stories.test_an_admitted_member_for_which_no_node_was_found_is_woken,
    ),
    Mend(
        "",
        "a bind after its promise lapsed is not judged by its queue",
        instead(Ledger, "_queue_allows", lambda self, pod, uid: True),
        test_ledger.test_a_pod_whose_volumes_take_long_is_checked_again_when_its_bind_comes,
    ),
    Mend(
        "",
        "a bind after its promise lapsed counts nowhere until it is seen",
        instead(Ledger, "mark_binding", _commit_only_what_is_promised),
        test_stories.test_a_bind_after_its_reservation_expired_counts_in_its_queue_at_once,
    ),
    Mend(
        "",
        "a ticket is issued to a gang that is gone",
        _tickets_are_issued_whoever_left,
        test_stories.test_a_gang_that_is_deleted_while_it_is_planned_gets_no_reservation,
    ),
    Mend(
        "",
        "a ticket is issued for a node that was tainted meanwhile",
        instead(apply_plan, "_is_unchanged", lambda node, seen: node is not None),
        test_ledger.test_no_reservation_is_made_on_a_node_that_was_tainted_meanwhile,
    ),
    Mend(
        "",
        "members of a large gang pass before all of it has a place",
        instead(Ledger, "assign_node", _while_the_ticket_is_issued(Ledger.assign_node)),
        test_ledger.test_no_member_of_a_large_gang_is_admitted_before_all_have_reservations,
        unfound="who passes too early is held at the barrier, which breaks no rule",
    ),
    Mend(
        "",
        "members of a large gang are woken before all of it has a place",
        instead(Ledger, "_check", _while_the_ticket_is_issued(Ledger._check)),
        test_ledger.test_no_member_of_a_large_gang_is_woken_before_all_have_reservations,
        unfound="who is woken too early is refused and woken once more, which breaks no rule",
    ),
    Mend(
        "",
        "a gang whose ticket never stands is planned for ever",
        instead(apply_plan, "MOST_REFUSALS", 10**9),
        test_ledger.test_a_gang_whose_placement_is_always_refused_backs_off,
        unfound="the watch always catches up there, and no rule forbids planning often",
    ),
    Mend(
        "p16",
        "what was wrong with a gang is remembered beyond its end",
        instead(RejectedNodes, "forget", lambda self, gang: None),
        test_ledger.test_the_rejected_nodes_of_one_gang_are_not_rejected_for_others,
        unfound="no name is used twice there, so nobody inherits what was remembered",
    ),
)


# ── the machine ───────────────────────────────────────────────────────────────────────────────


class Found(NamedTuple):
    """What the machine stumbled over, in which story."""

    story: int
    rule: str


def search(mend: Mend, stories: int, number: int = SEED) -> Found | None:
    """Play at random without a mend; None when nothing breaks in so many stories."""
    begun, found = 0, []

    @seed(number)
    class Counting(SystemMachine):
        theme = mend.theme

        def __init__(self) -> None:
            nonlocal begun
            super().__init__()
            begun += 1

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                if self.world.referee.has_found_something:
                    found.append(begun)

    with mend.taken_out():
        try:
            play(Counting, stories, phases=(Phase.generate,))
        except Breach as breach:
            return Found(found[0], breach.rule)
    return None


def is_noticed(mend: Mend) -> bool:
    """Ask whether the mend's story fails without it."""
    with mend.taken_out():
        try:
            mend.tell()
        except AssertionError:
            return True
    return False


def main(stories: int) -> None:
    for mend in MENDS:
        name = mend.story.__name__.removeprefix("test_").replace("_", " ")
        print(f"\n{mend.probe or 'later'}: {mend.without}")
        print(f"    {'fails' if is_noticed(mend) else 'DOES NOT FAIL'}: {name}")
        found = search(mend, stories)
        if found is not None:
            print(f"    the machine breaks the rule of {found.rule!r} in story {found.story:,}")
        else:
            why = f": {mend.unfound}" if mend.unfound else ""
            print(f"    not found in {stories:,} stories{why}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STORIES)
