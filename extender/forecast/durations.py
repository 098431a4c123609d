"""Durations of earlier gangs by name: in memory, bounded, and lost at a restart.

Rule 1: everything is bounded: all names, the names of a namespace, the samples of a name. A
namespace with very many names evicts only its own names.
Rule 2: one thread writes (the one that watches pods), any thread reads. Readers see whole tuples,
which are replaced in one step.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, OrderedDict
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import ceil, floor
from typing import NamedTuple

from extender.cache.cluster import Cluster
from extender.durations import format_duration
from extender.model.gang import IMPLICIT, Gang, GangKey
from extender.model.pod import ALLOCATED_SET, FINISHED_SET, Pod, PodUid, Status

MAX_NAMES = 4096
MAX_NAMES_PER_NAMESPACE = 64
MAX_SAMPLES = 64
#: The letters of names that Kubernetes generates: no vowels, so that no words result.
_RANDOM = re.compile(r"(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10})")
_NUMBER = re.compile(r"\d+")
#: Commit hashes and similar; without a digit it may be a word.
_HEX = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,64}")
_UUID = re.compile(r"[-.][0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_LAST = re.compile(r"[-._][^-._]+$")


@lru_cache(16_384)
def stem(name: str) -> str:
    """Return *name* without generated suffixes, which is common to gangs of one kind.

    CronJobs append minutes, `generateName` and ReplicaSets random letters, Volcano a uid, users
    dates and numbers. The result is never empty.
    """
    kind, colon, rest = name.rpartition(IMPLICIT)
    rest = _UUID.sub("", rest) or rest
    while (found := _LAST.search(rest)) and found.start() and _is_generated(found[0][1:]):
        rest = rest[: found.start()]
    return f"{kind}{colon}{rest}"


def _is_generated(part: str) -> bool:
    return any(each.fullmatch(part) for each in (_NUMBER, _RANDOM, _HEX))


class Sample(NamedTuple):
    """The duration of one gang."""

    gang: GangKey
    seconds: float


class Name(NamedTuple):
    """The common name of gangs of one kind."""

    namespace: str
    queue: str
    stem: str


class DurationHistory:
    """The latest durations of each name, by namespace and queue."""

    def __init__(self) -> None:
        self._samples: OrderedDict[Name, tuple[Sample, ...]] = OrderedDict()
        #: The names of each namespace, least recently used first.
        self._by_namespace: dict[str, OrderedDict[Name, None]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def record(self, key: GangKey, queue: str, seconds: float) -> None:
        """Record the duration of a gang; of a gang that ended twice, the last one counts."""
        name = name_of(key, queue)
        earlier = tuple(each for each in self._samples.get(name, ()) if each.gang != key)
        self._samples[name] = (*earlier, Sample(key, seconds))[-MAX_SAMPLES:]
        self._samples.move_to_end(name)
        own = self._by_namespace.setdefault(name.namespace, OrderedDict())
        own[name] = None
        own.move_to_end(name)
        if len(own) > MAX_NAMES_PER_NAMESPACE:
            self._forget(next(iter(own)))
        if len(self._samples) > MAX_NAMES:
            self._forget(next(iter(self._samples)))

    def of(self, key: GangKey, queue: str) -> tuple[float, ...]:
        """Return the durations in seconds of earlier gangs with the name of *key* in *queue*."""
        return tuple(each.seconds for each in self._samples.get(name_of(key, queue), ()))

    def _forget(self, name: Name) -> None:
        del self._samples[name]
        own = self._by_namespace[name.namespace]
        del own[name]
        if not own:
            del self._by_namespace[name.namespace]


def name_of(key: GangKey, queue: str) -> Name:
    """Return the name under which the durations of a gang are recorded."""
    namespace, _, name = key.partition("/")
    return Name(namespace, queue, stem(name))


class DurationLearner:
    """Record durations; called in the thread that watches pods."""

    def __init__(self, cluster: Cluster, past_durations: DurationHistory) -> None:
        self._cluster = cluster
        self._experience = past_durations

    def seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Handle a changed pod; None when it is deleted."""
        if pod is None or pod.status is not Status.SUCCEEDED:
            return
        key = self._cluster.gang_of(uid)
        if key is None or not self._cluster.is_finished(key):
            return
        pods = self._cluster.pods_of(key)
        group = self._cluster.group(key)
        if any(each.status is Status.FAILED or not each.began for each in pods):
            return
        began = min(each.began for each in pods)
        seconds = max(each.ended for each in pods) - began
        if seconds > 0:
            started_in = Counter(each.started_in for each in pods if each.started_in)
            wanted = group.queue if group is not None else ""
            queue = max(sorted(started_in), key=started_in.__getitem__, default="")
            self._experience.record(
                key, queue or self._cluster.used_in_queue(key, pod.namespace, wanted), seconds
            )


#: So many earlier gangs outweigh a declared duration that is shorter than each of theirs.
MIN_SAMPLES = 5
_OF_NAME = "of this name in this queue"
MEDIAN = 0.5


class Ground(Enum):
    """The source of a duration."""

    ANNOTATION = "annotation"
    LEARNT = "learnt"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Duration:
    """The expected duration of a gang, from its start to its end."""

    seconds: float
    ground: Ground
    #: The earlier gangs that were used, and the number of all.
    samples: int = 0
    of: int = 0
    #: How many of the used gangs had ended by then; None for the median.
    ended: int | None = None

    @property
    def text(self) -> str:
        """Return the duration with its source."""
        return f"{format_duration(self.seconds)} ({self._source})"

    @property
    def _source(self) -> str:
        if self.ground is Ground.ANNOTATION:
            return "from its annotation"
        if self.ground is Ground.DEADLINE:
            return "its deadline, so at the latest"
        if self.samples == self.of == 1:
            return f"as one earlier gang {_OF_NAME} did"
        part = f"the {self.samples} of " if self.samples < self.of else ""
        gangs = f"{part}{self.of} earlier gangs {_OF_NAME}"
        gangs += " that ran longer than it has" if part else ""
        if self.ended is None:
            return f"from the median of {gangs}"
        return f"from {gangs}, {self.ended} of which had ended by then: it is one of several"


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected end of a gang, in seconds since the epoch; or why it is unknown (a phrase)."""

    began: float
    duration: Duration | None
    why_unknown: str = ""

    @property
    def ends_at(self) -> float | None:
        """The time of the end; None when it is unknown."""
        return self.began + self.duration.seconds if self.duration is not None else None


def expected(
    gang: Gang, now: float, past_durations: DurationHistory, part: float = MEDIAN
) -> Expected:
    """Return when *gang*, which is on nodes or starts now, is expected to end.

    *part* is the quantile of the learnt durations, of those that exceed the time it has run.
    """
    began = _began(gang, now)
    ran_s = now - began
    declared_s = gang.group.lasts_s or max((pod.lasts_s for pod in gang.pods), default=0.0)
    deadline_s = _deadline(gang, began)
    earlier = past_durations.of(gang.key, gang.queue)
    is_disproved = len(earlier) >= MIN_SAMPLES and declared_s < min(earlier)
    duration = None
    if declared_s > ran_s and not is_disproved:
        duration = Duration(declared_s, Ground.ANNOTATION)
    elif longer := [each for each in earlier if each > ran_s]:
        duration = _learnt(longer, len(earlier), part)
    if deadline_s > ran_s and (duration is None or deadline_s < duration.seconds):
        duration = Duration(deadline_s, Ground.DEADLINE)
    return Expected(began, duration, "" if duration else _why(ran_s, declared_s, len(earlier)))


def spread(number: int) -> float:
    """Return the quantile of the nth of several identical gangs: 1/2, 1/4, 3/4, 1/8, 5/8, …

    Any first n values are evenly distributed between 0 and 1 (van der Corput's sequence).
    """
    part, weight = 0.0, 0.5
    while number:
        number, bit = divmod(number, 2)
        part += bit * weight
        weight /= 2
    return part


def _learnt(longer: list[float], of: int, part: float) -> Duration:
    ordered = sorted(longer)
    at = min(max(part * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
    low, high = floor(at), ceil(at)
    seconds = ordered[low] + (at - low) * (ordered[high] - ordered[low])
    ended = None if part == MEDIAN or len(ordered) == 1 else bisect_right(ordered, seconds)
    return Duration(seconds, Ground.LEARNT, len(ordered), of, ended)


def _began(gang: Gang, now: float) -> float:
    """Return when it had its minimum on nodes; *now* while no kubelet has reported a start."""
    begins = sorted(pod.began for pod in gang.pods if pod.began and pod.status in ALLOCATED_SET)
    if not begins:
        return now
    return min(now, begins[min(len(begins), max(1, gang.group.min_member)) - 1])


def _deadline(gang: Gang, began: float) -> float:
    """Return the time after which the kubelet has ended all members; 0 if one has no deadline."""
    on_nodes = [pod for pod in gang.pods if pod.status in ALLOCATED_SET]
    pods = on_nodes or [pod for pod in gang.pods if pod.status not in FINISHED_SET]
    if not all(pod.deadline_s for pod in pods):
        return 0.0
    # Each deadline counts from the start of its own pod.
    return max((max(0.0, pod.began - began) + pod.deadline_s for pod in pods), default=0.0)


def _why(ran_s: float, declared_s: float, earlier: int) -> str:
    ran = format_duration(ran_s)
    if declared_s:
        return f"has run {ran}, longer than the {format_duration(declared_s)} of its annotation"
    if earlier:
        name = "gang of this name" if earlier == 1 else f"{earlier} gangs of this name"
        return f"has run {ran}, longer than the last {name} in this queue"
    return "declares no duration and none was learnt"
