"""Properties of plans for any cluster, and of unused capacity once nothing changes any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from extender.model.gang import Gang
from extender.model.pod import Shape
from extender.model.queue import NamespaceShare, Queue, QueueState, share_name
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, NOTHING, Resources, total
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import HoldReason, Plan
from extender.planner.planner import make_plan
from extender.planner.session import Session
from tests import builders
from tests.builders import after, amounts, queue
from tests.strategies import examples, gangs, node_lists, settle

many = settings(max_examples=examples(150))

_CAPACITY = policy_parser.DEFAULT_TEXT.replace("name: proportion", "name: capacity")
_TREE = _CAPACITY.replace("name: capacity", "name: capacity\n    enableHierarchy: true")
POLICIES = {
    "default": policy_parser.DEFAULT,
    "allocate alone": policy_parser.parse(
        policy_parser.DEFAULT_TEXT.replace(
            "enqueue, allocate, backfill, reclaim, preempt", "allocate"
        )
    ),
    "reclaim first": policy_parser.parse(
        policy_parser.DEFAULT_TEXT.replace(
            "allocate, backfill, reclaim", "reclaim, allocate, backfill"
        )
    ),
    "capacity": policy_parser.parse(_CAPACITY),
    "capacity as a tree": policy_parser.parse(_TREE),
}

#: The first plans are checked one by one; the final state of the cluster is always checked.
PLANS = 4

VOLCANO = policy_parser.parse(f"{policy_parser.DEFAULT_TEXT}\ncompatibility: volcano\n")

#: Reasons that say that a ceiling or a guarantee would be broken.
LIMIT_REASONS = {Reason.QUEUE_AT_CAPABILITY, Reason.NAMESPACE_OVER_LIMIT}

#: A limit of zero.
NO_CPU = Resources({CPU: 0})

#: Reasons that have nothing to do with capacity.
NOT_STARTABLE = {
    Reason.NOT_ENOUGH_MEMBERS, Reason.NOT_ENOUGH_ROLES, Reason.GATED, Reason.BACKING_OFF,
    Reason.QUEUE_CLOSED, Reason.QUEUE_NOT_FOUND, Reason.QUEUE_NOT_ALLOWED,
    Reason.POD_GROUP_MISSING,
}  # fmt: skip


@st.composite
def queue_trees(draw: st.DrawFn) -> list[Queue]:
    """A few queues, some below a family; guarantees never add up to more than a small node has."""
    family = queue(
        "family",
        capability=draw(st.sampled_from([amounts(), amounts(cpu=4)])),
        guarantee=draw(st.sampled_from([amounts(), amounts(), amounts(cpu=2)])),
    )
    leaves = [
        queue(
            f"q{number}",
            weight=draw(st.sampled_from([0, 1, 1, 2, 4])),
            priority=draw(st.sampled_from([0, 0, 0, 1])),
            capability=draw(st.sampled_from([amounts(), amounts(), amounts(cpu=3)])),
            guarantee=draw(st.sampled_from([amounts(), amounts(), amounts(cpu=1)])),
            deserved=draw(st.sampled_from([amounts(), amounts(cpu=2), amounts(cpu=3, memory=4)])),
            lends_guarantee=draw(st.booleans()),
            reclaimable=draw(st.sampled_from([True, True, False])),
            parent=draw(st.sampled_from(["", "family"])),
            state=draw(st.sampled_from(["Open"] * 7 + ["Closed"])),
        )
        for number in range(1, draw(st.integers(1, 3)) + 1)
    ]
    return [family, *leaves]


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """A cluster with all kinds of gangs, some of which can never start."""
    members = draw(node_lists(3))
    queues = draw(queue_trees())
    names = [each.name for each in queues if each.name != "family"]
    found = [
        _perhaps_unstartable(draw, draw(gangs(f"g{number}", members, names)))
        for number in range(draw(st.integers(1, 7)))
    ]
    if draw(st.booleans()):
        return settle(members, found, queues, now=draw(st.sampled_from([10.0, 1_000.0])))
    found = [_in_namespace(one, draw(st.sampled_from("abc"))) for one in found]
    state = settle(members, found, queues, now=draw(st.sampled_from([10.0, 1_000.0])))
    shares = [draw(_shares(name, namespace)) for name in (*names, "default") for namespace in "ab"]
    kept = _feasible(shares, {each.name: each for each in queues})
    return replace(state, shares={each.name: each for each in kept if each.limit or each.guarantee})


@st.composite
def _shares(draw: st.DrawFn, name: str, namespace: str) -> NamespaceShare:
    most = st.sampled_from([amounts()] * 3 + [amounts(cpu=2), amounts(cpu=3, memory=4), NO_CPU])
    least = st.sampled_from([amounts()] * 4 + [amounts(cpu=1), amounts(cpu=2)])
    return NamespaceShare(queue=name, namespace=namespace, limit=draw(most), guarantee=draw(least))


def _feasible(shares: list[NamespaceShare], queues: Mapping[str, Queue]) -> list[NamespaceShare]:
    """Leave out guarantees that together would break a ceiling: those are findings, and are cut."""
    kept: list[NamespaceShare] = []

    def least(queue: str) -> int:
        return sum(each.guarantee.amount(CPU) for each in kept if each.queue == queue)

    def needs(queue: Queue) -> int:
        return max(least(queue.name), queue.guarantee.amount(CPU))

    for share in shares:
        kept.append(share)
        own = queues.get(share.queue)
        family = sum(needs(each) for each in queues.values() if each.parent == "family")
        ceilings = [(least(share.queue), own), (family, queues["family"])] if own else []
        if any(q and q.capability and sum_ > q.capability.amount(CPU) for sum_, q in ceilings):
            kept[-1] = replace(share, guarantee=NOTHING)
    return kept


def _in_namespace(one: Gang, namespace: str) -> Gang:
    """Move a gang to another namespace."""
    pods = tuple(replace(each, namespace=namespace) for each in one.pods)
    return replace(one, pods=pods, group=replace(one.group, namespace=namespace))


def _perhaps_unstartable(draw: st.DrawFn, one: Gang) -> Gang:
    """Change some gangs so that they cannot start."""
    if any(pod.node for pod in one.pods):
        return one
    kind = draw(
        st.sampled_from(["", "", "", "", "", "incomplete", "backing off", "nowhere", "bad"])
    )
    if kind == "incomplete":
        return replace(one, group=replace(one.group, min_member=len(one.pods) + 1))
    if kind == "backing off":
        return replace(one, backing_off_until=1e9)
    if kind == "nowhere":
        return replace(one, queue="nowhere")
    if kind == "bad":
        return replace(one, problem=Problem(Reason.POD_GROUP_MISSING, "cannot be read"))
    return one


#: Found by chance: `a` starts a gang in free capacity, and loses another one to that of `b`.
COMPENSATED = builders.snapshot(
    [builders.node("n1", cpu=4, pods=2)],
    [
        builders.gang("a/coming", cpu=2, priority=5),
        builders.gang("a/going", on=["n1"], cpu=2, each={"preemptable": True}),
        builders.gang("b/pushing", cpu=0.5, priority=5),
    ],
    shares=[builders.share("default/a", at_least=amounts(cpu=1))],
)


@pytest.mark.parametrize("policy", POLICIES)
@example(before=COMPENSATED)
@given(before=clusters())
@many
def test_limits_and_guarantees_hold_and_no_capacity_is_unused_without_a_reason(
    policy: str, before: Snapshot
) -> None:
    state = before
    for number in range(60):
        plan = make_plan(state, POLICIES[policy])
        if number < PLANS:
            check_no_namespace_exceeds_its_limit(state, plan)
            check_no_namespace_loses_its_guarantee(state, plan)
        if not plan.evictions and not any(t.placements for t in plan.placements.values()):
            break
        state = after(state, plan)
    else:
        raise AssertionError("still moving after 60 plans")
    check_no_waiting_gang_fits_into_unused_capacity_without_a_named_reason(state, plan)
    check_no_queue_and_no_ancestor_exceeds_its_ceiling(before, state)
    check_no_guarantee_is_used_by_others(before, state, plan)


@example(before=COMPENSATED)
@given(before=clusters())
@many
def test_limits_and_guarantees_of_namespaces_hold_with_the_rules_of_volcano(
    before: Snapshot,
) -> None:
    state = before
    for _ in range(PLANS):
        plan = make_plan(state, VOLCANO)
        check_no_namespace_exceeds_its_limit(state, plan)
        check_no_namespace_loses_its_guarantee(state, plan)
        state = after(state, plan)


def check_no_waiting_gang_fits_into_unused_capacity_without_a_named_reason(
    state: Snapshot, plan: Plan
) -> None:
    for key, gang in state.gangs.items():
        reason = plan.verdicts[key].reason
        if not gang.waiting or reason in NOT_STARTABLE or key in plan.placements:
            continue
        if not _is_open(state, gang.queue):
            continue  # a gang that runs in a closed queue does not grow
        wanted = _smallest_start(gang)
        if not _fits(state, plan, wanted):
            continue
        broken = _breaks(state, gang, wanted)
        assert broken, f"{key} ({plan.verdicts[key].message}) fits, and no limit is broken"
        has_reservation = any(
            each.reason is HoldReason.STARVING and each.beneficiary == key for each in plan.held
        )
        if gang.ready < gang.group.min_member and not has_reservation:
            assert reason in LIMIT_REASONS, plan.verdicts[key].message


def check_no_queue_and_no_ancestor_exceeds_its_ceiling(before: Snapshot, state: Snapshot) -> None:
    for name, each in state.queues.items():
        for resource, limit in each.capability.items():
            was, now = _held(before, name).amount(resource), _held(state, name).amount(resource)
            assert now <= max(limit, was)


def check_no_guarantee_is_used_by_others(before: Snapshot, state: Snapshot, plan: Plan) -> None:
    whole = plan.total.amount(CPU)
    assert _needed(state, _uses(state)) <= max(whole, _needed(before, _uses(before)))


def check_no_namespace_exceeds_its_limit(state: Snapshot, plan: Plan) -> None:
    planned = _with_placements(state, plan)
    for name, each in state.shares.items():
        was = _used(state, name)
        for resource, limit in each.limit.items():
            now = planned.get(name, NOTHING).amount(resource)
            assert now <= max(limit, was.amount(resource))


def check_no_namespace_loses_its_guarantee(state: Snapshot, plan: Plan) -> None:
    gone, given = _taken_by_others(state, plan), _placed_now(state, plan)
    for name, each in state.shares.items():
        # What the same plan places for it makes up for what others take.
        has = _used(state, name) + given.get(name, NOTHING)
        for resource, least in each.guarantee.at_most(each.limit).items():
            lost = gone.get(name, NOTHING).amount(resource)
            assert not lost or has.amount(resource) - lost >= least


@given(before=clusters())
@many
def test_deserved_shares_add_up_to_what_there_is_to_divide(before: Snapshot) -> None:
    session = Session(before, policy_parser.DEFAULT)
    requested, whole = session.startable, session.total.amount(CPU)
    shares = session.startable_by_share
    kept = _needed(before, {**requested, **shares}) - total(requested.values()).amount(CPU)

    least = most = 0
    for name, request in requested.items():
        each = before.queues.get(name, queue(name))
        bound = min(request.amount(CPU), session.ceilings[name][CPU])
        floor = min(bound, _guaranteed(before, each, shares))
        least += floor
        most += bound if each.weight else floor
    deserved = sum(each.deserved.amount(CPU) for each in make_plan(before).queues.values())
    assert deserved == max(least, min(most, whole - kept))


# ------------------------------------------------------------ an independent view of the cluster


def _smallest_start(gang: Gang) -> Counter[Shape]:
    """What must fit before any member of the gang starts; its members are all alike."""
    lacking = max(1, gang.group.min_member - gang.ready)
    return Counter({gang.waiting[0].shape: lacking})


def _fits(state: Snapshot, plan: Plan, wanted: Mapping[Shape, int]) -> bool:
    table = state.nodes
    free = table.allocatable - table.used
    for name, kept in plan.held_on_nodes.items():
        free[table.facts.index[name]] -= [kept.amount(each) for each in table.dimensions]
    for shape, count in wanted.items():
        need = np.array([shape.requests.amount(name) for name in table.dimensions])
        asked = need > 0
        slots = 0
        for row, node in enumerate(table.nodes):
            if node.ready and not node.unschedulable and not node.taints:
                slots += max(0, int((free[row][asked] // need[asked]).min()))
        if slots < count:
            return False
    return True


def _breaks(state: Snapshot, gang: Gang, wanted: Mapping[Shape, int]) -> bool:
    """Return whether *wanted* for a gang would break a ceiling or a guarantee."""
    more, name = total(shape.requests * count for shape, count in wanted.items()), gang.queue
    share = share_name(name, gang.group.namespace)
    if share in state.shares:
        after = _used(state, share) + more
        most = state.shares[share].limit
        if any(more.amount(n) > 0 and after.amount(n) > a for n, a in most.items()):
            return True
        more_above = after.at_least(_least(state, share)) - _need_of_share(state, share)
    else:
        more_above = more
    each: Queue | None = state.queues.get(name)
    while each is not None:
        after = _held(state, each.name) + more_above
        if any(
            more_above.amount(n) > 0 and after.amount(n) > a for n, a in each.capability.items()
        ):
            return True
        each = state.queues.get(each.parent)
    cpus = sum(node.allocatable.amount(CPU) for node in state.nodes.nodes if node.ready)
    uses = _uses(state)
    grown = {each: uses.get(each, NOTHING) + more for each in {name, share} & {name, *uses}}
    after_cpus = _needed(state, {**uses, **grown})
    return after_cpus > cpus and after_cpus > _needed(state, uses)


def _is_open(state: Snapshot, name: str) -> bool:
    return name not in state.queues or state.queues[name].state is QueueState.OPEN


def _uses(state: Snapshot) -> dict[str, Resources]:
    return {name: _used(state, name) for name in ("default", *state.queues, *state.shares)}


def _used(state: Snapshot, name: str) -> Resources:
    """What a queue uses, or a namespace in it."""
    return total(gang.allocated for gang in state.gangs.values() if name in _places(gang))


def _places(gang: Gang) -> tuple[str, str]:
    return gang.queue, share_name(gang.queue, gang.group.namespace)


def _with_placements(state: Snapshot, plan: Plan) -> dict[str, Resources]:
    """What namespaces have of queues with all placements and evictions of *plan*."""
    gone = {each.uid for each in plan.evictions}
    uses: dict[str, Resources] = {}
    for key, gang in state.gangs.items():
        placement, name = plan.placements.get(key), _places(gang)[1]
        coming = {*placement.placements, *placement.pipelined} if placement else set()
        has = total(
            p.requests for p in gang.pods if p.uid in coming or (p.node and p.uid not in gone)
        )
        uses[name] = uses.get(name, NOTHING) + has
    return uses


def _placed_now(state: Snapshot, plan: Plan) -> dict[str, Resources]:
    """What gangs of a namespace and queue get of free capacity, without waiting for evictions."""
    given: dict[str, Resources] = {}
    for key, placement in plan.placements.items():
        name = _places(state.gangs[key])[1]
        capacity = total(p.requests for p in state.gangs[key].pods if p.uid in placement.placements)
        given[name] = given.get(name, NOTHING) + capacity
    return given


def _taken_by_others(state: Snapshot, plan: Plan) -> dict[str, Resources]:
    """What is evicted for gangs of another namespace or queue."""
    gone: dict[str, Resources] = {}
    pods = {pod.uid: (gang, pod) for gang in state.gangs.values() for pod in gang.pods}
    for each in plan.evictions:
        gang, pod = pods[each.uid]
        name = _places(gang)[1]
        if _places(state.gangs[each.beneficiary])[1] != name:
            gone[name] = gone.get(name, NOTHING) + pod.requests
    return gone


def _held(state: Snapshot, name: str) -> Resources:
    """What a queue and the queues below it use, or must be able to use."""
    shares = [each.name for each in state.shares.values() if each.queue == name]
    return total(
        [
            _used(state, name) - total(_used(state, each) for each in shares),
            *(_need_of_share(state, each) for each in shares),
            *(_need(state, q) for q in state.queues.values() if q.parent == name),
        ]
    )


def _need_of_share(state: Snapshot, name: str) -> Resources:
    return _used(state, name).at_least(_least(state, name))


def _least(state: Snapshot, name: str) -> Resources:
    return state.shares[name].guarantee.at_most(state.shares[name].limit)


def _guaranteed(state: Snapshot, each: Queue, requested: Mapping[str, Resources]) -> int:
    """What is guaranteed to a queue or its namespaces, of the latter only what they request."""
    least = {s.name: _least(state, s.name) for s in state.shares.values() if s.queue == each.name}
    own = max(each.guarantee.amount(CPU), total(least.values()).amount(CPU))
    unused = (max(0, a.amount(CPU) - requested[name].amount(CPU)) for name, a in least.items())
    return own - sum(unused)


def _need(state: Snapshot, each: Queue) -> Resources:
    return _held(state, each.name).at_least(_kept(each))


def _kept(each: Queue) -> Resources:
    return NOTHING if each.lends_guarantee else each.guarantee.at_most(each.capability)


def _needed(state: Snapshot, uses: Mapping[str, Resources]) -> int:
    """Add up the cpus that all families use or are guaranteed."""

    def of(name: str) -> int:
        shares = [each for each in state.shares.values() if each.queue == name]
        used = [uses.get(share.name, NOTHING).amount(CPU) for share in shares]
        least = [_least(state, share.name).amount(CPU) for share in shares]
        own = uses.get(name, NOTHING).amount(CPU) - sum(used)
        return own + sum(map(max, used, least))

    def need(each: Queue) -> int:
        below = sum(need(q) for q in state.queues.values() if q.parent == each.name)
        return max(of(each.name) + below, _kept(each).amount(CPU))

    tops = [each for each in state.queues.values() if each.parent not in state.queues]
    return of("default") + sum(map(need, tops))
