"""When a gang that runs will end, as far as anybody can tell, and on what ground.

What its author says comes first, then what gangs of its name did before, then the deadline after
which the kubelet ends it. A claim is only a claim: once it has run out, or where it says less than
each of several earlier gangs took, it is worth nothing, and what was learnt decides.

Of gangs of one name the first is expected to run as long as the median of earlier ones, and the
next ones as long as other parts of them: of forty that run one ends soon, though nobody knows
which, and whoever waits for any of them waits for that one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum
from math import ceil, floor

from extender.forecast.experience import Experience
from extender.model.gang import Gang
from extender.model.pod import ALLOCATED_SET, FINISHED_SET
from extender.text.spans import told

#: So many earlier gangs outweigh a claim below all of them.
ENOUGH = 5
_OF_NAME = "of this name in this queue"
MEDIAN = 0.5


class Ground(Enum):
    """Where a duration is from."""

    ANNOTATION = "annotation"
    LEARNT = "learnt"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Lasting:
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
        return f"{told(self.seconds)} ({self._whence})"

    @property
    def _whence(self) -> str:
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
    lasting: Lasting | None
    why_unknown: str = ""

    @property
    def ends_at(self) -> float | None:
        """Give the moment; None when nobody can tell."""
        return self.began + self.lasting.seconds if self.lasting is not None else None


def expected(gang: Gang, now: float, experience: Experience, part: float = MEDIAN) -> Expected:
    """Say when *gang*, which is on nodes or starts now, will end.

    By what was learnt it ends when that *part* of those have ended that ran longer than it has.
    """
    began = _began(gang, now)
    ran_s = now - began
    claim_s = gang.group.lasts_s or max((pod.lasts_s for pod in gang.pods), default=0.0)
    deadline_s = _deadline(gang, began)
    earlier = experience.of(gang.key, gang.queue)
    is_disproved = len(earlier) >= ENOUGH and claim_s < min(earlier)
    lasting = None
    if claim_s > ran_s and not is_disproved:
        lasting = Lasting(claim_s, Ground.ANNOTATION)
    elif longer := [each for each in earlier if each > ran_s]:
        lasting = _learnt(longer, len(earlier), part)
    if deadline_s > ran_s and (lasting is None or deadline_s < lasting.seconds):
        lasting = Lasting(deadline_s, Ground.DEADLINE)
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


def _learnt(longer: list[float], of: int, part: float) -> Lasting:
    ordered = sorted(longer)
    at = min(max(part * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
    low, high = floor(at), ceil(at)
    seconds = ordered[low] + (at - low) * (ordered[high] - ordered[low])
    ended = None if part == MEDIAN or len(ordered) == 1 else bisect_right(ordered, seconds)
    return Lasting(seconds, Ground.LEARNT, len(ordered), of, ended)


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
    if claim_s:
        return f"has run {told(ran_s)}, longer than the {told(claim_s)} of its annotation"
    if earlier:
        name = "gang of this name" if earlier == 1 else f"{earlier} gangs of this name"
        return f"has run {told(ran_s)}, longer than the last {name} in this queue"
    return "says no duration and none was learnt"
