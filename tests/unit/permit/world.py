"""A cluster in a few dictionaries, and a driver that sends a test's events to the state machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node, Taint
from extender.model.pod import SCHEDULED_SET, Pod, PodUid, Shape, Status
from extender.model.resources import NOTHING, PODS, Resources
from extender.permit.machine import StateMachine
from extender.permit.messages import (
    Answer,
    Arrived,
    BackOff,
    Bind,
    CallId,
    Cause,
    Event,
    Instruction,
    KeepReserved,
    MarkBound,
    MarkUnknown,
    MarkWaiting,
    PeerGone,
    PodChanged,
    Release,
    Settled,
    Tick,
    Verified,
    Verify,
)
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder, BindOutcome, BindResult

from . import soundness

Found = TypeVar("Found")

SHAPE = Shape(requests=Resources({PODS: 1}))
GANG = GangKey("team/train")
BOUND = BindOutcome(BindResult.BOUND)
FAILED = BindOutcome(BindResult.FAILED, "the API server refused the binding")
LOST = BindOutcome(BindResult.LOST, "the pod is gone")
UNKNOWN = BindOutcome(BindResult.UNKNOWN, "the API server does not answer")


class World:
    """The cache (`Facts`) and the reservations, as a test sets them."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, Pod] = {}
        #: Pods that only filter was shown.
        self.unshown: dict[PodUid, Pod] = {}
        self.gangs: dict[PodUid, GangKey] = {}
        self.groups: dict[GangKey, PodGroup] = {}
        self.nodes: dict[str, Node] = {}
        #: Pods with a reservation: uid -> (stage, node).
        self.flight: dict[PodUid, tuple[str, str]] = {}
        #: Pods that filter never admitted.
        self.not_filtered: set[PodUid] = set()
        #: Binds whose capacity was reserved for other pods meanwhile.
        self.reserved_for_others: set[tuple[PodUid, str]] = set()
        #: Pods that kube-scheduler may evict.
        self.may_be_evicted: set[PodUid] = set()
        self.backoffs: list[tuple[GangKey, float]] = []

    # Building

    def add_node(
        self,
        name: str,
        *,
        max_pods: int | None = None,
        taints: tuple[Taint, ...] = (),
        **facts: bool,
    ) -> None:
        """Add or change a node. Without *max_pods* it takes any number of pods."""
        allocatable = NOTHING if max_pods is None else Resources({PODS: max_pods})
        self.nodes[name] = Node(name=name, allocatable=allocatable, taints=taints, **facts)

    def add_group(
        self,
        min_member: int,
        gang: GangKey = GANG,
        uid: str = "g-1",
        roles: Mapping[str, int] | None = None,
    ) -> PodGroup:
        namespace, name = gang.split("/")
        self.groups[gang] = PodGroup(
            namespace=namespace,
            name=name,
            min_member=min_member,
            uid=uid,
            min_by_role=roles or {},
            dialect="volcano",
        )
        return self.groups[gang]

    def add_pod(
        self,
        uid: str,
        gang: GangKey | None = GANG,
        *,
        node: str = "",
        role: str = "",
        reserved: bool = True,
        is_shown: bool = True,
    ) -> PodUid:
        key = PodUid(uid)
        status = Status.RUNNING if node else Status.PENDING
        (self.pods if is_shown else self.unshown)[key] = Pod(
            uid=key, namespace="team", name=uid, shape=SHAPE, status=status, node=node, role=role
        )
        if gang is not None:
            self.gangs[key] = gang
        if reserved and not node:
            self.flight[key] = ("filtered", "")
        return key

    def change_pod(self, uid: str, **facts: object) -> PodUid:
        key = PodUid(uid)
        self.pods[key] = replace(self.pods[key], **facts)  # type: ignore[arg-type]
        return key

    def refuse_pod(self, uid: str, words: str = "0/3 nodes: 3 Insufficient cpu") -> PodUid:
        return self.change_pod(uid, refusal=words)

    def show_pod(self, uid: str) -> PodUid:
        """Let the watch show a pod that only filter knew."""
        key = PodUid(uid)
        self.pods[key] = self.unshown.pop(key)
        return key

    def remove_pod(self, uid: str) -> PodUid:
        key = PodUid(uid)
        self.pods.pop(key, None)
        self.unshown.pop(key, None)
        self.gangs.pop(key, None)
        return key

    # Facts

    def pod(self, uid: PodUid) -> Pod | None:
        return self.pods.get(uid)

    def pod_or_filtered(self, uid: PodUid) -> Pod | None:
        return self.pods.get(uid) or self.unshown.get(uid)

    def gang_of(self, uid: PodUid) -> GangKey | None:
        return self.gangs.get(uid)

    def group(self, key: GangKey) -> PodGroup | None:
        return self.groups.get(key)

    def pods_of(self, key: GangKey) -> Iterable[Pod]:
        return [pod for uid, pod in self.pods.items() if self.gangs.get(uid) == key]

    def scheduled(self, key: GangKey) -> int:
        return len(self.scheduled_pods(key))

    def scheduled_in_role(self, key: GangKey, role: str) -> int:
        return sum(pod.role == role for pod in self.scheduled_pods(key))

    def scheduled_pods(self, key: GangKey) -> list[Pod]:
        """Return members on a node. A bound member counts before the watch shows it."""
        known = [*self.pods.items(), *self.unshown.items()]
        return [pod for uid, pod in known if self.gangs.get(uid) == key and self._is_scheduled(pod)]

    def reserved_node(self, uid: PodUid) -> str | None:
        return self.flight[uid][1] if uid in self.flight else None

    def has_passed(self, uid: PodUid) -> bool:
        return uid not in self.not_filtered

    def may_bind(self, uid: PodUid, node: str) -> bool:
        return (uid, node) not in self.reserved_for_others

    def may_lose_all(self, gang: GangKey) -> bool:
        seated = [pod.uid for pod in self.scheduled_pods(gang)]
        return bool(seated) and self.may_be_evicted.issuperset(seated)

    def may_lose(self, uid: PodUid) -> bool:
        return uid in self.may_be_evicted

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def has_capacity(self, uid: PodUid, node: str) -> bool:
        return self.fits(node, (uid,))

    def fits(self, node: str, pods: Iterable[PodUid]) -> bool:
        known = self.nodes.get(node)
        if known is None or PODS not in known.allocatable:
            return known is not None
        on_their_way = {
            uid for uid, (stage, to) in self.flight.items() if to == node and stage != "filtered"
        }
        seated = {pod.uid for pod in self.pods.values() if pod.node == node}
        return len(on_their_way | seated | set(pods)) <= known.allocatable[PODS]

    def _is_scheduled(self, pod: Pod) -> bool:
        return pod.status in SCHEDULED_SET or self.flight.get(pod.uid, ("", ""))[0] == "bound"

    # Reservations

    def take_note(self, instruction: Instruction) -> None:
        """Update the reservations as the permit runner would."""
        match instruction:
            case MarkWaiting(uid, node):
                self.mark_waiting(uid, node)
            case Bind(orders):
                for order in orders:
                    self.mark_binding(order.uid, order.node)
            case MarkBound(uid, node):
                self.mark_bound(uid, node)
            case Release(uid):
                self.release(uid)
            case KeepReserved(uid, node):
                self.keep_reserved(uid, node)
            case MarkUnknown(uid, node):
                self.mark_unknown(uid, node)

    def mark_waiting(self, uid: PodUid, node: str) -> None:
        self.flight[uid] = ("waiting", node)

    def mark_binding(self, uid: PodUid, node: str) -> None:
        self.flight[uid] = ("binding", node)

    def mark_unknown(self, uid: PodUid, node: str) -> None:
        """The reservation stays as it is."""

    def mark_bound(self, uid: PodUid, node: str) -> None:
        self.flight[uid] = ("bound", node)

    def keep_reserved(self, uid: PodUid, node: str) -> None:
        if uid in self.flight:
            self.flight[uid] = ("filtered", node)

    def release(self, uid: PodUid) -> None:
        self.flight.pop(uid, None)

    def back_off(self, gang: GangKey, span_s: float) -> None:
        self.backoffs.append((gang, span_s))


class MachineDriver:
    """Sends events to the state machine, checks it after each, and updates the world."""

    def __init__(
        self,
        world: World,
        limits: Timeouts | None = None,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.world = world
        self.limits = limits or Timeouts()
        self.machine = StateMachine(world, self.limits, chance=chance)
        self.now = 100.0
        self.answers: dict[CallId, Answer] = {}
        self._calls = 0

    def tell(self, event: Event) -> list[Instruction]:
        instructions = list(self.machine.react(event, self.now))
        for instruction in instructions:
            self._carry_out(instruction)
        soundness.check(self.machine)
        return instructions

    def _carry_out(self, instruction: Instruction) -> None:
        self.world.take_note(instruction)
        match instruction:
            case BackOff(gang, span_s):
                self.world.back_off(gang, span_s)
            case Answer(id):
                assert id not in self.answers, "a call is answered once"
                self.answers[id] = instruction

    def arrives(self, *uids: str, node: str = "n-1") -> list[Instruction]:
        """Let bind calls for these pods come in, one after the other."""
        out: list[Instruction] = []
        for uid in uids:
            self._calls += 1
            order = BindOrder(uid=PodUid(uid), namespace="team", name=uid, node=node)
            out += self.tell(Arrived(CallId(self._calls), order))
        return out

    @property
    def last_call(self) -> CallId:
        return CallId(self._calls)

    def peer_goes(self, call: int) -> list[Instruction]:
        return self.tell(PeerGone(CallId(call)))

    def passes(self, seconds: float) -> list[Instruction]:
        """Let time pass, with a tick whenever the state machine asked for it."""
        until = self.now + seconds
        out: list[Instruction] = []
        while self.machine.due is not None and self.machine.due <= until:
            self.now = max(self.now, self.machine.due)
            out += self.tell(Tick())
        self.now = until
        return out

    def pod_changed(self, uid: str, gang: GangKey | None = GANG) -> list[Instruction]:
        return self.tell(PodChanged(PodUid(uid), gang))

    def verified(self, verify: Instruction, group: PodGroup | None = None) -> list[Instruction]:
        assert isinstance(verify, Verify)
        return self.tell(Verified(verify.gang, verify.epoch, group or verify.group))

    def settled(self, *uids: str, outcome: BindOutcome = BOUND) -> list[Instruction]:
        """Let the bindings of these pods end, one after the other."""
        return [each for uid in uids for each in self.tell(Settled(PodUid(uid), outcome))]

    def commits(self, instructions: list[Instruction]) -> list[Instruction]:
        """Verify with the group in the cache, and return the instructions."""
        verify = the(Verify, instructions)
        return self.tell(Verified(verify.gang, verify.epoch, self.world.group(verify.gang)))

    def cause_of(self, call: int) -> Cause | None:
        answer = self.answers.get(CallId(call))
        return answer.cause if answer else None

    def error_of(self, call: int) -> str | None:
        answer = self.answers.get(CallId(call))
        return answer.error if answer else None


def the(kind: type[Found], instructions: list[Instruction]) -> Found:
    """Return the only instruction of a kind."""
    (found,) = (each for each in instructions if isinstance(each, kind))
    return found


def bound_uids(instructions: list[Instruction]) -> list[str]:
    """Return the pods whose bindings are sent."""
    return [order.uid for each in instructions if isinstance(each, Bind) for order in each.orders]


def a_gang_of(
    members: int, min_member: int | None = None, limits: Timeouts | None = None
) -> MachineDriver:
    """Return a driver with a gang of w-0, w-1, ... that has reservations and nodes."""
    world = World()
    for name in ("n-1", "n-2", "n-3"):
        world.add_node(name)
    world.add_group(members if min_member is None else min_member)
    for index in range(members):
        world.add_pod(f"w-{index}")
    return MachineDriver(world, limits)


def a_gang_with_a_surplus_member() -> MachineDriver:
    """Return a gang of two that is being bound, and w-2, which waits for the outcome."""
    driver = a_gang_of(3, min_member=2)
    verify = driver.arrives("w-0", "w-1")
    driver.arrives("w-2")
    driver.commits(verify)
    return driver
