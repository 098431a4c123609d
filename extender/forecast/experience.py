"""How long gangs of a name ran before: kept in memory, bounded, and forgotten at a restart.

Rule 1: everything is bounded: the names, those of one namespace, the samples of a name. Whoever
makes a hundred thousand names pushes out names of their own namespace.
Rule 2: one thread writes (whoever follows the pods); any may read. What readers see are whole
tuples, replaced in one step.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple

from extender.model.gang import SHADOW, GangKey

MOST_NAMES = 4096
MOST_OF_A_NAMESPACE = 64
MOST_SAMPLES = 64

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
    kind, colon, rest = name.rpartition(SHADOW)
    rest = _UUID.sub("", rest) or rest
    while (found := _LAST.search(rest)) and found.start() and _is_made(found[0][1:]):
        rest = rest[: found.start()]
    return f"{kind}{colon}{rest}"


def _is_made(part: str) -> bool:
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


class Experience:
    """The last runs of every name, by namespace and queue."""

    def __init__(self) -> None:
        self._samples: OrderedDict[Name, tuple[Sample, ...]] = OrderedDict()
        #: The names of each namespace, who was heard of longest ago first.
        self._of: dict[str, OrderedDict[Name, None]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def note(self, key: GangKey, queue: str, seconds: float) -> None:
        """Take in how long a gang ran; one that ended again since counts once, with its last."""
        name = name_of(key, queue)
        earlier = tuple(each for each in self._samples.get(name, ()) if each.gang != key)
        self._samples[name] = (*earlier, Sample(key, seconds))[-MOST_SAMPLES:]
        self._samples.move_to_end(name)
        own = self._of.setdefault(name.namespace, OrderedDict())
        own[name] = None
        own.move_to_end(name)
        if len(own) > MOST_OF_A_NAMESPACE:
            self._forget(next(iter(own)))
        if len(self._samples) > MOST_NAMES:
            self._forget(next(iter(self._samples)))

    def of(self, key: GangKey, queue: str) -> tuple[float, ...]:
        """Give how long earlier gangs of the name of *key* ran in *queue*, in seconds."""
        return tuple(each.seconds for each in self._samples.get(name_of(key, queue), ()))

    def _forget(self, name: Name) -> None:
        del self._samples[name]
        own = self._of[name.namespace]
        del own[name]
        if not own:
            del self._of[name.namespace]


def name_of(key: GangKey, queue: str) -> Name:
    """Give the name under which the runs of a gang are kept."""
    namespace, _, name = key.partition("/")
    return Name(namespace, queue, stem(name))
