"""The demo as a picture of the terminal: nodes filling, queues against dues, gangs, the story."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from extender.cli.output import safe_text, wrap
from extender.demo import objects
from extender.demo.cluster import Object
from extender.demo.embedded import Embedded
from extender.model.resources import NOTHING, Resources
from extender.text import clean

_CPU, _MEMORY = "cpu", "memory"


class PodCell(NamedTuple):
    """A pod on a node, or on its way there."""

    gang: str
    cpu: float
    memory: float
    is_held: bool


class NodeView(NamedTuple):
    """A node; *cpu* and *memory* are what it has, a seat's are in the same units."""

    name: str
    cpu: float
    memory: float
    seats: tuple[PodCell, ...]


class QueueView(NamedTuple):
    """A queue, as parts of the cluster: of the resource of which it has, is due or wants most."""

    name: str
    used: float
    due: float
    wanted: float


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang: how many of its pods run, are held, and wait; and why."""

    name: str
    queue: str
    least: int
    runs: int
    held: int
    waits: int
    why: str

    @property
    def stands(self) -> str:
        """Say in a word how it is."""
        if self.runs >= self.least:
            return "runs"
        return "held" if self.held else "waits"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One look."""

    nodes: tuple[NodeView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    gangs: tuple[GangView, ...] = ()


def cluster_view(embedded: Embedded) -> ClusterView:
    """Look at the cluster itself for what is, and at the plan for why."""
    plan, assumed = embedded.plan(), embedded.assumed
    nodes, pods = embedded.cluster.all("Node"), embedded.cluster.all("Pod")
    whole = sum((_has(each) for each in nodes), NOTHING)
    placed: dict[str, list[tuple[Object, bool]]] = {}
    for pod in pods:
        on, held_for = pod["spec"].get("nodeName"), assumed.get(pod["metadata"]["uid"])
        if on or held_for:
            placed.setdefault(on or held_for or "", []).append((pod, not on))
    return ClusterView(
        tuple(_node(each, placed.get(each["metadata"]["name"], ())) for each in nodes),
        tuple(_queue(each, whole) for each in plan["queues"] if _is_shown(each)),
        tuple(_gangs(embedded.cluster.all("PodGroup"), pods, assumed, plan)),
    )


def _node(node: Object, placed: Iterable[tuple[Object, bool]]) -> NodeView:
    seats = []
    for pod, is_held in placed:
        asks = Resources.parse(pod["spec"]["containers"][0]["resources"]["requests"])
        gang = objects.gang_of(pod) or pod["metadata"]["name"]
        seats.append(PodCell(gang, asks.amount(_CPU), asks.amount(_MEMORY), is_held))
    has = _has(node)
    return NodeView(
        node["metadata"]["name"],
        has.amount(_CPU),
        has.amount(_MEMORY),
        tuple(sorted(seats)),
    )


def _has(node: Object) -> Resources:
    return Resources.parse(node["status"]["allocatable"])


def _is_shown(queue: Mapping[str, Any]) -> bool:
    """Leave out what has nothing and wants nothing and nobody made."""
    return bool(queue["name"] not in ("default", "root") or queue["requested"])


def _queue(queue: Mapping[str, Any], whole: Resources) -> QueueView:
    def part(word: str) -> float:
        amounts = Resources.parse(queue[word])
        return max(amounts.amount(each) / max(1, whole.amount(each)) for each in (_CPU, _MEMORY))

    return QueueView(queue["name"], part("allocated"), part("deserved"), part("requested"))


def _gangs(
    groups: Iterable[Object],
    pods: Iterable[Object],
    assumed: Mapping[str, str],
    plan: Mapping[str, Any],
) -> Iterable[GangView]:
    told = {each["name"]: each for each in plan["gangs"]}
    members: dict[str, list[Object]] = {}
    for pod in pods:
        members.setdefault(objects.gang_of(pod), []).append(pod)
    for group in groups:
        name = group["metadata"]["name"]
        ours = members.get(name, [])
        runs = sum(bool(pod["spec"].get("nodeName")) for pod in ours)
        on_the_way = sum(pod["metadata"]["uid"] in assumed for pod in ours) - runs
        held = max(0, on_the_way)
        verdict = told.get(name)
        why = f"{verdict['reason']}: {verdict['message']}" if verdict else "just created"
        spec = group["spec"]
        yield GangView(
            *(name, spec.get("queue", ""), spec["minMember"], runs, held),
            len(ours) - runs - held,
            why,
        )


#: Below that there are lines instead of a picture.
LEAST_WIDTH, LEAST_HEIGHT = 60, 20
#: Where there is more height than that, parts have air between them.
_AIRY = 24
_NAME = 8
_MOST_DOTS = 16
#: Bricks: background, and a foreground that is read on it.
_PAINTS = (
    *("white on #b3372e", "white on #2b61b8", "black on #d8a02a", "black on #5cae5c"),
    *("white on #8a4fae", "black on #3fb3b8", "black on #d98254", "white on #64707d"),
)
_STANDS = {"runs": "green", "held": "yellow", "waits": "dim"}


class Letters(NamedTuple):
    """What bars and dots are drawn with."""

    free: str
    used: str
    lent: str
    wanted: str
    due: str
    runs: str
    held: str
    waits: str
    line: str
    done: str


_DRAWN = Letters("·", "█", "▓", "░", "┃", "●", "◐", "○", "─", "✔")
_PLAIN = Letters(".", "#", "+", "-", "|", "#", "o", ".", "-", "x")


class Head(NamedTuple):
    """What stands above: which act of how many, where the pages are, how long it has been."""

    title: str
    act: int
    acts: int
    address: str
    seconds: float


class Picture:
    """Draws one frame after the other; a gang keeps its colour."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._letters = _DRAWN if console.encoding.startswith("utf") else _PLAIN
        self._has_colours = not console.no_color and console.color_system is not None
        self._paints: dict[str, str] = {"red": _PAINTS[0], "blue": _PAINTS[1]}

    def draw(self, head: Head, sight: ClusterView, told: Sequence[Text]) -> RenderableType:
        """Give a frame that fills the terminal as it is now, and not a line more."""
        width, height = self._console.size
        air = [Text()] if height >= _AIRY else []
        lines = [
            *self._head(head, width),
            *air,
            *self._nodes(sight.nodes, width),
            *air,
            *self._queues(sight.queues, width),
            *air,
        ]
        left = height - len(lines) - 2  # the head of the gangs, and a line above the story
        most = max(2, min(4 if height < _AIRY else 5 + (height - _AIRY) // 3, left - 3))
        lines += self._gangs(sight.gangs, width, most)
        lines.append(Text(self._letters.line * width, style="dim"))
        lines += self._story(told, width, height - len(lines))
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
            line.append_text(self._bar(node, bar, [each.cpu for each in node.seats], node.cpu))
            line.append("  ")
            amounts = [each.memory for each in node.seats]
            yield line.append_text(self._bar(node, bar, amounts, node.memory))

    def _bar(self, node: NodeView, width: int, amounts: Sequence[float], whole: float) -> Text:
        """Draw the seats as bricks, as wide as their part of the node."""
        bar, taken = Text(), 0.0
        for seat, amount in zip(node.seats, amounts, strict=True):
            begin = round(taken / whole * width)
            taken += amount
            bar.append_text(self._brick(seat, round(taken / whole * width) - begin))
        return bar.append(self._letters.free * (width - len(bar)), style="dim")

    def _brick(self, seat: PodCell, width: int) -> Text:
        seat = seat._replace(gang=clean(seat.gang))
        if width < 2:
            return Text(seat.gang[:width])
        # A blank or a bracket on the right keeps it apart from the next.
        label = seat.gang[: width - 2].ljust(width - 2)
        if seat.is_held:
            label = seat.gang[: width - 2].ljust(width - 2, self._letters.wanted)
        if not self._has_colours:
            return Text(f"({label})" if seat.is_held else f"[{label}]")
        paint = self._paint(seat.gang)
        if seat.is_held:
            paint = f"bold {paint.split(' on ')[1]}"
        return Text(f" {label}"[: width - 1], style=paint).append(" ", style="default on default")

    def _paint(self, gang: str) -> str:
        if gang not in self._paints:
            self._paints[gang] = _PAINTS[len(self._paints) % len(_PAINTS)]
        return self._paints[gang]

    # ── queues ────────────────────────────────────────────────────────────────────────────

    def _queues(self, queues: Sequence[QueueView], width: int) -> Iterator[Text]:
        said = 23
        bar, letters = width - _NAME - said, self._letters
        legend = Text(style="dim")
        for letter, word in ((letters.used, "used"), (letters.lent, "borrowed")):
            legend.append(f"{letter} {word}  ")
        legend.append(f"{letters.wanted} wanted  {letters.due} due")
        yield _head_of("queues", _NAME).append_text(legend)
        for queue in queues:
            line = _named(queue.name)
            for at in range(bar):
                line.append_text(self._of_queue(queue, (at + 0.5) / bar, 0.5 / bar))
            yield line.append(f"  uses {queue.used:4.0%}, due {queue.due:4.0%}")

    def _of_queue(self, queue: QueueView, part: float, near: float) -> Text:
        letters = self._letters
        if queue.due and abs(min(queue.due, 1 - near) - part) <= near:
            return Text(letters.due, style="bold")
        if part < min(queue.used, queue.due):
            return Text(letters.used, style="green")
        if part < queue.used:
            return Text(letters.lent, style="yellow")
        if part < queue.wanted:
            return Text(letters.wanted, style="cyan")
        return Text(letters.free, style="dim")

    # ── gangs ─────────────────────────────────────────────────────────────────────────────

    def _gangs(self, gangs: Sequence[GangView], width: int, most: int) -> Iterator[Text]:
        letters = self._letters
        legend = f"{letters.runs} runs  {letters.held} held  {letters.waits} waits"
        yield _head_of("gangs", _NAME).append(legend, style="dim")
        shown = gangs if len(gangs) <= most else gangs[: most - 1]
        dots = max([_dots(each) for each in shown], default=0)
        for gang in shown:
            yield self._gang(gang, dots)
        if len(shown) < len(gangs):
            yield Text(f"and {len(gangs) - len(shown)} more", style="dim")
        for _ in range(most - max(len(shown) + (len(shown) < len(gangs)), 0)):
            yield Text()

    def _gang(self, gang: GangView, dots: int) -> Text:
        letters, line = self._letters, Text()
        paint = self._paint(gang.name).split(" on ")[1] if self._has_colours else ""
        line.append(f"{safe_text(gang.name).plain[: _NAME - 1]:<{_NAME}}", style=f"bold {paint}")
        counts = ((gang.runs, letters.runs), (gang.held, letters.held), (gang.waits, letters.waits))
        if _dots(gang) <= _MOST_DOTS:
            line.append("".join(letter * count for count, letter in counts), style=paint)
        else:
            line.append(" ".join(f"{count}{letter}" for count, letter in counts if count))
        line.append(" " * max(1, _NAME + min(dots, _MOST_DOTS) + 2 - len(line)))
        line.append(f"{safe_text(gang.queue).plain[:6]:<6} ", style="dim")
        line.append(f"{gang.stands:<6}", style=_STANDS[gang.stands])
        if gang.stands == "waits":
            line.append_text(safe_text(gang.why))
        return line

    # ── the story ─────────────────────────────────────────────────────────────────────────

    def _story(self, told: Sequence[Text], width: int, most: int) -> list[Text]:
        """Give the last sentences, the newest at the bottom and the brightest."""
        lines: list[Text] = []
        for age, sentence in enumerate(reversed(told)):
            wrapped = wrap(sentence, width, self._console)
            if age:
                for line in wrapped:
                    line.stylize("dim")
            if lines and len(lines) + len(wrapped) > most:
                break
            lines = [*wrapped, *lines]
        return lines[:most]


def _dots(gang: GangView) -> int:
    return gang.runs + gang.held + gang.waits


def _head_of(name: str, width: int) -> Text:
    return Text(name.ljust(width), style="bold")


def _named(name: str) -> Text:
    return Text(f"{safe_text(name).plain[: _NAME - 1]:<{_NAME}}")


def _apart(left: Text, right: Text, width: int) -> Text:
    """Put two texts at both ends of a line; the right one goes first when there is no room."""
    blank = width - left.cell_len - right.cell_len
    return left.append(" " * blank).append_text(right) if blank > 1 else left


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line
