"""The demo as a picture on the terminal: nodes, queues, gangs, and the sentences of the act."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from extender.cache.changes import SeenPod
from extender.cli.output import safe_text, wrap
from extender.demo.embedded import Embedded
from extender.model.gang import GangKey, PodGroup
from extender.model.node import Node
from extender.model.pod import Pod, PodUid
from extender.model.resources import CPU, MEMORY, Resources, total
from extender.text import clean
from extender.web import documents


class PodCell(NamedTuple):
    """A pod on a node, or one whose bind waits."""

    gang: str
    cpu: float
    memory: float
    is_waiting: bool


class NodeView(NamedTuple):
    """A node; its *cpu* and *memory* and those of its pods are in the same units."""

    name: str
    cpu: float
    memory: float
    pods: tuple[PodCell, ...]


class QueueView(NamedTuple):
    """A queue, in parts of the cluster, by the resource of which it has the largest part."""

    name: str
    used: float
    deserved: float
    wanted: float


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang: how many of its pods run, have waiting binds, and wait; and why."""

    name: str
    queue: str
    least: int
    runs: int
    binding: int
    waits: int
    why: str

    @property
    def state(self) -> str:
        """Return whether it runs, binds or waits."""
        if self.runs >= self.least:
            return "runs"
        return "binds" if self.binding else "waits"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment."""

    nodes: tuple[NodeView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    gangs: tuple[GangView, ...] = ()


def cluster_view(embedded: Embedded) -> ClusterView:
    """Return the state of the cluster, and the reasons of the plan."""
    plan, assumed, api = embedded.plan(), embedded.assumed, embedded.api
    nodes, pods = list(api.nodes.values()), list(api.pods.values())
    on_nodes: dict[str, list[PodCell]] = {each.name: [] for each in nodes}
    for seen in pods:
        pod = seen.pod
        if node := pod.node or assumed.get(pod.uid):
            cell = PodCell(
                _name(seen.membership.key),
                pod.requests.amount(CPU),
                pod.requests.amount(MEMORY),
                is_waiting=not pod.node,
            )
            on_nodes.setdefault(node, []).append(cell)
    return ClusterView(
        tuple(_node(each, on_nodes[each.name]) for each in nodes),
        tuple(
            _queue(each, total(each.allocatable for each in nodes))
            for each in plan.queues
            if _is_shown(each)
        ),
        tuple(_gangs(list(api.groups.values()), pods, assumed, plan)),
    )


def _node(node: Node, pods: Iterable[PodCell]) -> NodeView:
    allocatable = node.allocatable
    return NodeView(
        node.name, allocatable.amount(CPU), allocatable.amount(MEMORY), tuple(sorted(pods))
    )


def _name(key: GangKey) -> str:
    return key.partition("/")[2]


def _is_shown(queue: documents.Queue) -> bool:
    """Return whether the queue was created or is used."""
    return bool(queue.name not in ("default", "root") or queue.requested)


def _queue(queue: documents.Queue, total: Resources) -> QueueView:
    def part(written: documents.Amounts) -> float:
        amounts = Resources.parse(written)
        return max(amounts.amount(each) / max(1, total.amount(each)) for each in (CPU, MEMORY))

    return QueueView(queue.name, part(queue.allocated), part(queue.deserved), part(queue.requested))


def _gangs(
    groups: Iterable[PodGroup],
    pods: Iterable[SeenPod],
    assumed: Mapping[PodUid, str],
    plan: documents.Plan,
) -> Iterable[GangView]:
    verdicts = {each.name: each for each in plan.gangs}
    members: dict[GangKey, list[Pod]] = {}
    for seen in pods:
        members.setdefault(seen.membership.key, []).append(seen.pod)
    for group in groups:
        ours = members.get(group.key, [])
        runs = sum(bool(pod.node) for pod in ours)
        binding = sum(not pod.node and pod.uid in assumed for pod in ours)
        verdict = verdicts.get(group.name)
        why = f"{verdict.reason}: {verdict.message}" if verdict else "just created"
        yield GangView(
            *(group.name, group.queue, group.min_member, runs, binding),
            len(ours) - runs - binding,
            why,
        )


#: The smallest terminal for a picture.
MIN_WIDTH, MIN_HEIGHT = 60, 20
#: From this height on, parts have blank lines between them.
_SPACED_HEIGHT = 24
_NAME = 8
_MAX_DOTS = 16
#: Colours of pods: a background with a readable foreground.
_COLOURS = (
    *("white on #b3372e", "white on #2b61b8", "black on #d8a02a", "black on #5cae5c"),
    *("white on #8a4fae", "black on #3fb3b8", "black on #d98254", "white on #64707d"),
)
_STATE_STYLES = {"runs": "green", "binds": "yellow", "waits": "dim"}


class Letters(NamedTuple):
    """The characters of bars and dots."""

    free: str
    used: str
    borrowed: str
    wanted: str
    deserved: str
    runs: str
    binding: str
    waits: str
    line: str
    done: str


_DRAWN = Letters("·", "█", "▓", "░", "┃", "●", "◐", "○", "─", "✔")
_PLAIN = Letters(".", "#", "+", "-", "|", "#", "o", ".", "-", "x")


class Head(NamedTuple):
    """The header: the act, the address of the pages, and the time."""

    title: str
    act: int
    acts: int
    address: str
    seconds: float


class Picture:
    """Draws frames; a gang keeps its colour."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._letters = _DRAWN if console.encoding.startswith("utf") else _PLAIN
        self._has_colours = not console.no_color and console.color_system is not None
        self._colours: dict[str, str] = {"red": _COLOURS[0], "blue": _COLOURS[1]}

    def draw(self, head: Head, view: ClusterView, sentences: Sequence[Text]) -> RenderableType:
        """Return a frame that fills the terminal exactly."""
        width, height = self._console.size
        air = [Text()] if height >= _SPACED_HEIGHT else []
        lines = [
            *self._head(head, width),
            *air,
            *self._nodes(view.nodes, width),
            *air,
            *self._queues(view.queues, width),
            *air,
        ]
        left = height - len(lines) - 2  # the head of the gangs, and a line above the story
        limit = max(
            2, min(4 if height < _SPACED_HEIGHT else 5 + (height - _SPACED_HEIGHT) // 3, left - 3)
        )
        lines += self._gangs(view.gangs, width, limit)
        lines.append(Text(self._letters.line * width, style="dim"))
        lines += self._story(sentences, width, height - len(lines))
        return Group(*(_cut(line, width) for line in lines[:height]))

    def _head(self, head: Head, width: int) -> Iterator[Text]:
        yield _apart(
            Text("gang-extender demo", style="bold"),
            safe_text(head.address, style="underline cyan"),
            width,
        )
        steps = Text()
        for number in range(1, head.acts + 1):
            letter = self._letters.runs if number <= head.act else self._letters.waits
            steps.append(f"{letter} ", style="bold green" if number < head.act else "bold")
        steps.append(f" {head.title}")
        yield _apart(steps, Text(f"{head.seconds:.0f} s", style="dim"), width)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────

    def _nodes(self, nodes: Sequence[NodeView], width: int) -> Iterator[Text]:
        bar = (width - _NAME - 2) // 2
        yield _head_of("nodes", _NAME).append("cpu".ljust(bar + 2)).append("memory")
        for node in nodes:
            line = _named(node.name)
            line.append_text(self._bar(node, bar, [each.cpu for each in node.pods], node.cpu))
            line.append("  ")
            amounts = [each.memory for each in node.pods]
            yield line.append_text(self._bar(node, bar, amounts, node.memory))

    def _bar(self, node: NodeView, width: int, amounts: Sequence[float], total: float) -> Text:
        """Draw the pods as cells, as wide as their part of the node."""
        bar, taken = Text(), 0.0
        for pod, amount in zip(node.pods, amounts, strict=True):
            begin = round(taken / total * width)
            taken += amount
            bar.append_text(self._cell(pod, round(taken / total * width) - begin))
        return bar.append(self._letters.free * (width - len(bar)), style="dim")

    def _cell(self, pod: PodCell, width: int) -> Text:
        pod = pod._replace(gang=clean(pod.gang))
        if width < 2:
            return Text(pod.gang[:width])
        # A blank or a bracket on the right separates it from the next.
        label = pod.gang[: width - 2].ljust(width - 2)
        if pod.is_waiting:
            label = pod.gang[: width - 2].ljust(width - 2, self._letters.wanted)
        if not self._has_colours:
            return Text(f"({label})" if pod.is_waiting else f"[{label}]")
        colour = self._colour(pod.gang)
        if pod.is_waiting:
            colour = f"bold {colour.split(' on ')[1]}"
        return Text(f" {label}"[: width - 1], style=colour).append(" ", style="default on default")

    def _colour(self, gang: str) -> str:
        if gang not in self._colours:
            self._colours[gang] = _COLOURS[len(self._colours) % len(_COLOURS)]
        return self._colours[gang]

    # ── queues ────────────────────────────────────────────────────────────────────────────

    def _queues(self, queues: Sequence[QueueView], width: int) -> Iterator[Text]:
        figures_width = 28
        bar, letters = width - _NAME - figures_width, self._letters
        legend = Text(style="dim")
        for letter, word in ((letters.used, "used"), (letters.borrowed, "borrowed")):
            legend.append(f"{letter} {word}  ")
        legend.append(f"{letters.wanted} wanted  {letters.deserved} deserved")
        yield _head_of("queues", _NAME).append_text(legend)
        for queue in queues:
            line = _named(queue.name)
            for at in range(bar):
                line.append_text(self._of_queue(queue, (at + 0.5) / bar, 0.5 / bar))
            yield line.append(f"  uses {queue.used:4.0%}, deserves {queue.deserved:4.0%}")

    def _of_queue(self, queue: QueueView, part: float, near: float) -> Text:
        letters = self._letters
        if queue.deserved and abs(min(queue.deserved, 1 - near) - part) <= near:
            return Text(letters.deserved, style="bold")
        if part < min(queue.used, queue.deserved):
            return Text(letters.used, style="green")
        if part < queue.used:
            return Text(letters.borrowed, style="yellow")
        if part < queue.wanted:
            return Text(letters.wanted, style="cyan")
        return Text(letters.free, style="dim")

    # ── gangs ─────────────────────────────────────────────────────────────────────────────

    def _gangs(self, gangs: Sequence[GangView], width: int, limit: int) -> Iterator[Text]:
        letters = self._letters
        legend = f"{letters.runs} runs  {letters.binding} binds  {letters.waits} waits"
        yield _head_of("gangs", _NAME).append(legend, style="dim")
        shown = gangs if len(gangs) <= limit else gangs[: limit - 1]
        dots = max([_dots(each) for each in shown], default=0)
        for gang in shown:
            yield self._gang(gang, dots)
        if len(shown) < len(gangs):
            yield Text(f"and {len(gangs) - len(shown)} more", style="dim")
        for _ in range(limit - max(len(shown) + (len(shown) < len(gangs)), 0)):
            yield Text()

    def _gang(self, gang: GangView, dots: int) -> Text:
        letters, line = self._letters, Text()
        colour = self._colour(gang.name).split(" on ")[1] if self._has_colours else ""
        line.append(f"{safe_text(gang.name).plain[: _NAME - 1]:<{_NAME}}", style=f"bold {colour}")
        counts = (
            (gang.runs, letters.runs),
            (gang.binding, letters.binding),
            (gang.waits, letters.waits),
        )
        if _dots(gang) <= _MAX_DOTS:
            line.append("".join(letter * count for count, letter in counts), style=colour)
        else:
            line.append(" ".join(f"{count}{letter}" for count, letter in counts if count))
        line.append(" " * max(1, _NAME + min(dots, _MAX_DOTS) + 2 - len(line)))
        line.append(f"{safe_text(gang.queue).plain[:6]:<6} ", style="dim")
        line.append(f"{gang.state:<6}", style=_STATE_STYLES[gang.state])
        if gang.state == "waits":
            line.append_text(safe_text(gang.why))
        return line

    # ── the story ─────────────────────────────────────────────────────────────────────────

    def _story(self, sentences: Sequence[Text], width: int, limit: int) -> list[Text]:
        """Return the last sentences, the newest at the bottom and the brightest."""
        lines: list[Text] = []
        for age, sentence in enumerate(reversed(sentences)):
            wrapped = wrap(sentence, width, self._console)
            if age:
                for line in wrapped:
                    line.stylize("dim")
            if lines and len(lines) + len(wrapped) > limit:
                break
            lines = [*wrapped, *lines]
        return lines[:limit]


def _dots(gang: GangView) -> int:
    return gang.runs + gang.binding + gang.waits


def _head_of(name: str, width: int) -> Text:
    return Text(name.ljust(width), style="bold")


def _named(name: str) -> Text:
    return Text(f"{safe_text(name).plain[: _NAME - 1]:<{_NAME}}")


def _apart(left: Text, right: Text, width: int) -> Text:
    """Put two texts at both ends of a line; omit the right one where it does not fit."""
    blank = width - left.cell_len - right.cell_len
    return left.append(" " * blank).append_text(right) if blank > 1 else left


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line
