"""How long gangs of a name ran before: kept in memory, bounded, and forgotten at a restart.

Rule 1: everything is bounded: the names, those of one namespace, the samples of a name. Whoever
makes a hundred thousand names pushes out names of their own namespace.
Rule 2: one thread writes (whoever follows the pods); any may read. What readers see are whole
tuples, replaced in one step.
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
#: Letters of Kubernetes' own generated names: no vowels, so that no words come out.
_RANDOM = re.compile(r"(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10})")
_NUMBER = re.compile(r"\d+")
#: Hashes of commits and the like; those without a digit may be words.
_HEX = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,64}")
_UUID = re.compile(r"[-.][0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_LAST = re.compile(r"[-._][^-._]+$")


@lru_cache(16_384)
def stem(name: str) -> str:
    """Give what gangs of one kind have in common: *name* without what generators add to it.

    CronJobs add minutes, `generateName` and ReplicaSets random letters, Volcano a uid, people dates
    and numbers. Something is always left.
    """
    kind, colon, rest = name.rpartition(IMPLICIT)
    rest = _UUID.sub("", rest) or rest
    while (found := _LAST.search(rest)) and found.start() and _is_generated(found[0][1:]):
        rest = rest[: found.start()]
    return f"{kind}{colon}{rest}"


def _is_generated(part: str) -> bool:
    return any(each.fullmatch(part) for each in (_NUMBER, _RANDOM, _HEX))


class Sample(NamedTuple):
    """How long one gang ran."""

    gang: GangKey
    seconds: float


class Name(NamedTuple):
    """What gangs of one kind have in common."""

    namespace: str
    queue: str
    stem: str


class DurationHistory:
    """The last runs of every name, by namespace and queue."""

    def __init__(self) -> None:
        self._samples: OrderedDict[Name, tuple[Sample, ...]] = OrderedDict()
        #: The names of each namespace, who was heard of longest ago first.
        self._by_namespace: dict[str, OrderedDict[Name, None]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def record(self, key: GangKey, queue: str, seconds: float) -> None:
        """Take in how long a gang ran; one that ended again since counts once, with its last."""
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
        """Give how long earlier gangs of the name of *key* ran in *queue*, in seconds."""
        return tuple(each.seconds for each in self._samples.get(name_of(key, queue), ()))

    def _forget(self, name: Name) -> None:
        del self._samples[name]
        own = self._by_namespace[name.namespace]
        del own[name]
        if not own:
            del self._by_namespace[name.namespace]


def name_of(key: GangKey, queue: str) -> Name:
    """Give the name under which the runs of a gang are kept."""
    namespace, _, name = key.partition("/")
    return Name(namespace, queue, stem(name))


def learn_from(cluster: Cluster) -> DurationHistory:
    """Give what is learnt from *cluster* from now on."""
    experience = DurationHistory()
    cluster.watch_pods(DurationLearner(cluster, experience).seen)
    return experience


class DurationLearner:
    """Called in the thread that follows the pods."""

    def __init__(self, cluster: Cluster, experience: DurationHistory) -> None:
        self._cluster = cluster
        self._experience = experience

    def seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Hear how a pod is now; None when it is gone."""
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


#: So many earlier gangs outweigh a claim below all of them.
MIN_SAMPLES = 5
_OF_NAME = "of this name in this queue"
MEDIAN = 0.5


class Ground(Enum):
    """Where a duration is from."""

    ANNOTATION = "annotation"
    LEARNT = "learnt"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Duration:
    """For how long a gang is expected to run, from its beginning to its end."""

    seconds: float
    ground: Ground
    #: From how many earlier gangs this is, and how many there were.
    samples: int = 0
    of: int = 0
    #: How many of those had ended by then; None where it is their median.
    ended: int | None = None

    @property
    def words(self) -> str:
        """Say how long, and whence we have it."""
        return f"{format_duration(self.seconds)} ({self._source})"

    @property
    def _source(self) -> str:
        if self.ground is Ground.ANNOTATION:
            return "from its annotation"
        if self.ground is Ground.DEADLINE:
            return "its deadline, so at the latest"
        if self.samples == self.of == 1:
            return f"as one earlier gang {_OF_NAME} did"
        some = f"the {self.samples} of " if self.samples < self.of else ""
        those = f"{some}{self.of} earlier gangs {_OF_NAME}"
        those += " that ran longer than it has" if some else ""
        if self.ended is None:
            return f"from the median of {those}"
        return f"from {those}, {self.ended} of which had ended by then: it is one of several"


@dataclass(frozen=True, slots=True)
class Expected:
    """When a gang ends, in seconds since the epoch; or why nobody can tell (a phrase)."""

    began: float
    duration: Duration | None
    why_unknown: str = ""

    @property
    def ends_at(self) -> float | None:
        """Give the moment; None when nobody can tell."""
        return self.began + self.duration.seconds if self.duration is not None else None


def expected(gang: Gang, now: float, experience: DurationHistory, part: float = MEDIAN) -> Expected:
    """Say when *gang*, which is on nodes or starts now, will end.

    By what was learnt it ends when that *part* of those have ended that ran longer than it has.
    """
    began = _began(gang, now)
    ran_s = now - began
    claim_s = gang.group.lasts_s or max((pod.lasts_s for pod in gang.pods), default=0.0)
    deadline_s = _deadline(gang, began)
    earlier = experience.of(gang.key, gang.queue)
    is_disproved = len(earlier) >= MIN_SAMPLES and claim_s < min(earlier)
    lasting = None
    if claim_s > ran_s and not is_disproved:
        lasting = Duration(claim_s, Ground.ANNOTATION)
    elif longer := [each for each in earlier if each > ran_s]:
        lasting = _learnt(longer, len(earlier), part)
    if deadline_s > ran_s and (lasting is None or deadline_s < lasting.seconds):
        lasting = Duration(deadline_s, Ground.DEADLINE)
    return Expected(began, lasting, "" if lasting else _why(ran_s, claim_s, len(earlier)))


def spread(number: int) -> float:
    """Give a part for each of several alike, however many there are: 1/2, 1/4, 3/4, 1/8, 5/8, …

    The first ones of any length lie evenly between 0 and 1 (van der Corput's sequence).
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
    """Say when it had its minimum on nodes; now, where no kubelet has said anything yet."""
    begins = sorted(pod.began for pod in gang.pods if pod.began and pod.status in ALLOCATED_SET)
    if not begins:
        return now
    return min(now, begins[min(len(begins), max(1, gang.group.min_member)) - 1])


def _deadline(gang: Gang, began: float) -> float:
    """Say after how long the kubelet has ended all of it; 0 where it leaves a member alone."""
    there = [pod for pod in gang.pods if pod.status in ALLOCATED_SET]
    pods = there or [pod for pod in gang.pods if pod.status not in FINISHED_SET]
    if not all(pod.deadline_s for pod in pods):
        return 0.0
    # Each is counted from its own beginning.
    return max((max(0.0, pod.began - began) + pod.deadline_s for pod in pods), default=0.0)


def _why(ran_s: float, claim_s: float, earlier: int) -> str:
    ran = format_duration(ran_s)
    if claim_s:
        return f"has run {ran}, longer than the {format_duration(claim_s)} of its annotation"
    if earlier:
        name = "gang of this name" if earlier == 1 else f"{earlier} gangs of this name"
        return f"has run {ran}, longer than the last {name} in this queue"
    return "says no duration and none was learnt"
