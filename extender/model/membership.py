"""To which gang a pod belongs, read from the pod alone."""

from __future__ import annotations

from dataclasses import dataclass

from extender.model.gang import GangKey

#: Separates a shadow's kind from its name; no Kubernetes name can contain it, so the gang of
#: the Job `train` (`job:train`) is never mistaken for the PodGroup `train`.
SHADOW = ":"


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The gang a pod names, or the shadow gang it falls into when it names none.

    A shadow gang needs no object of its own: all pods of one controller (a Job, a ReplicaSet, a
    StatefulSet) are one, and a pod without a controller is one by itself.
    """

    key: GangKey
    #: The pod asks to be started together with others; False for an ordinary pod.
    named: bool = False
    #: The size of a gang that its pods declare themselves, without any PodGroup.
    min_member: int | None = None
    #: A native scheduling.k8s.io group: kube-scheduler assembles it, we only count it.
    native: bool = False
    #: The queue the pod names, for gangs without a PodGroup.
    queue: str = ""
    #: Why the pod cannot be used as it is (a sentence), empty when it can.
    problem: str = ""
