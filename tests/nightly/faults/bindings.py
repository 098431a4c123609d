"""Rules about bindings: no pod on two nodes, on a full, closed or missing node, or above the
capability of its queue; and no leak.

Checked at each binding, against the state at that moment. A scheduler may not know the latest
changes, so a node or a queue counts with its largest value of the last seconds. Existing pods above
a lowered limit break no rule until another pod is added.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from .breaches import Bounds, Breach
from .cluster_state import Pod, World
from .excluded_spans import Spans
from .record import RESTED, Amounts, BindingAnswered, Line, PodBound, Promised, Record

TWICE = "pod bound twice"
FULL = "pod on a full node"
UNKNOWN = "pod on a node that is not there"
CLOSED = "pod on a closed node"
CEILING = "queue over its ceiling"
SHUT = "gang started in a closed queue"
LEAK = "room leaked"


@dataclass
class Bindings:
    """Checks every binding."""

    bounds: Bounds
    spans: Spans
    breaches: list[Breach] = field(default_factory=list)
    bound: int = 0

    def judge(self, record: Record) -> World:
        """Check *record*, and return the state at its end."""
        world = World()
        for change in record.changes():
            before = world.pods.get(change.uid) if isinstance(change, PodBound) else None
            is_second = before is not None and bool(before.node)
            world.take(change)
            if isinstance(change, PodBound):
                pod = world.pods[change.uid]
                if not is_second:
                    self.bound += 1
                    self._accept_queue(pod, change, world)
                    self._judge_node(pod, change, world)
                    self._judge_queue(pod, change, world)
                elif pod.node != change.node:
                    words = f"on {pod.node} and then on {change.node}"
                    self._breach(TWICE, pod.name, words, change.at)
        self._judge_bindings(record, world)
        self._judge_leaks(record, world)
        return world

    def _accept_queue(self, pod: Pod, change: PodBound, world: World) -> None:
        """Count the pod in the queue that the binding names, if it was recently that of the gang.

        Or if running members of the gang count in it: new members count in the same queue, also
        after the gang was moved.
        """
        if not pod.made.gang:
            return
        since = self.spans.back_from(change.at, self.bounds.lag_s)
        groups = world.groups[pod.made.gang].since(since)
        queues = {group.queue for group in groups if group is not None}
        others = (each for each in world.gangs[pod.made.gang] if each is not pod)
        queues |= {each.started_in for each in others if each.has_room and each.started_in}
        if change.queue in queues:
            pod.started_in = change.queue

    def _judge_node(self, pod: Pod, change: PodBound, world: World) -> None:
        recent = world.nodes[change.node].since(self.spans.back_from(change.at, self.bounds.lag_s))
        there = [node for node in recent if node is not None]
        if not there:
            self._breach(UNKNOWN, pod.name, f"on {change.node}", change.at)
            return
        if pod.made.ours and all(node.closed for node in there):
            self._breach(CLOSED, pod.name, f"on {change.node}", change.at)
        taken = world.taken_on(change.node)
        best = _best([node.room for node in there])
        over = {
            name: (amount, best.get(name, 0))
            for name, amount in taken.items()
            if pod.made.request.get(name) and amount > best.get(name, 0)
        }
        if over:
            self._breach(FULL, pod.name, f"{change.node} has {_describe(over)}", change.at)

    def _judge_queue(self, pod: Pod, change: PodBound, world: World) -> None:
        name = pod.started_in
        if name is None or not pod.made.ours:
            return
        since = self.spans.back_from(change.at, self.bounds.lag_s)
        recent = world.queues[name].since(since)
        known = [queue for queue in recent if queue is not None]
        if len(known) < len(recent) or self._has_moved(pod, since, world):
            return  # the queue is new, or the gang was moved recently
        first = sum(each.stands for each in world.gangs[pod.made.gang]) == 1 or not pod.made.gang
        if first and not any(queue.open for queue in known):
            self._breach(SHUT, pod.name, f"in {name}", change.at)
        taken = world.taken_in(name)
        over = {}
        for resource, amount in taken.items():
            ceilings = [queue.ceiling.get(resource) for queue in known]
            limits = [limit for limit in ceilings if limit is not None]
            is_limited = len(limits) == len(known)
            if is_limited and pod.made.request.get(resource) and amount > max(limits):
                over[resource] = (amount, max(limits))
        if over:
            self._breach(CEILING, name, f"with {pod.name}: {_describe(over)}", change.at)

    def _has_moved(self, pod: Pod, since: float, world: World) -> bool:
        if not pod.made.gang:
            return False
        groups = world.groups[pod.made.gang].since(since)
        return len({group.queue for group in groups if group is not None}) > 1

    def _judge_bindings(self, record: Record, world: World) -> None:
        done: dict[str, list[BindingAnswered]] = defaultdict(list)
        for answer in record.of(BindingAnswered):
            first = next(iter(done[answer.uid]), None)
            if answer.status < 300:
                done[answer.uid].append(answer)
            elif first is not None and self._must_know(first, answer):
                # The API server refuses the second one, but the extender must not send it.
                words = f"on {first.node}, and again to {answer.node}: {answer.status}"
                self._breach(TWICE, _whose(answer.uid, world), words, answer.at)
        for uid, answers in done.items():
            if len(answers) > 1:
                nodes = ", ".join(answer.node for answer in answers)
                words = f"two bindings succeeded: {nodes}"
                self._breach(TWICE, _whose(uid, world), words, answers[-1].at)

    def _must_know(self, first: BindingAnswered, later: BindingAnswered) -> bool:
        """Return whether the sender of *later* must know *first*."""
        known_at = self.spans.back_from(later.at, self.bounds.lag_s)
        return first.node != later.node and first.at < known_at

    def _judge_leaks(self, record: Record, world: World) -> None:
        last: dict[str, Promised] = {}
        for moment in record:
            if isinstance(moment, Promised):
                last[moment.who] = moment
            elif isinstance(moment, Line) and moment.text == RESTED:
                last.clear()  # checked in that pause
        for who, promised in last.items():
            for node in sorted({*promised.taken, *_standing_nodes(world)}):
                real = world.taken_on(node)
                reported = promised.taken.get(node, {})
                names = {*real, *reported} - {"pods"}
                wrong = {
                    name: (reported.get(name, 0), real.get(name, 0))
                    for name in names
                    if reported.get(name, 0) != real.get(name, 0)
                }
                if wrong:
                    words = f"{who} reports another usage: {_describe(wrong)}"
                    self._breach(LEAK, node, words, promised.at)

    def _breach(self, rule: str, whose: str, words: str, at: float) -> None:
        self.breaches.append(Breach(rule=rule, whose=whose, words=words, at=at))


def _whose(uid: str, world: World) -> str:
    return world.pods[uid].name if uid in world.pods else uid


def _standing_nodes(world: World) -> set[str]:
    return {name for name, history in world.nodes.items() if history.now is not None}


def _best(capacities: list[Amounts]) -> dict[str, int]:
    return {
        name: max(each.get(name, 0) for each in capacities) for each in capacities for name in each
    }


def _describe(amounts: dict[str, tuple[int, int]]) -> str:
    return ", ".join(
        f"{name} {have / 1000:g} of {limit / 1000:g}" for name, (have, limit) in amounts.items()
    )
