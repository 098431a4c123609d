"""The families of CRDs in which PodGroups and Queues are written, by their API group."""

from __future__ import annotations

VOLCANO = "scheduling.volcano.sh"
COSCHEDULING = "scheduling.x-k8s.io"
KUBE_BATCH = "scheduling.sigs.dev"
KUBE_BATCH_INCUBATOR = "scheduling.incubator.k8s.io"
#: Groups that kube-scheduler assembles itself; we count them and let them pass.
NATIVE = "scheduling.k8s.io"
#: No object at all: pods make the gang by themselves.
UNWRITTEN = ""

#: Of two objects with the same name, the one that comes first here counts.
MOST_TRUSTED_FIRST = (VOLCANO, COSCHEDULING, KUBE_BATCH, KUBE_BATCH_INCUBATOR, UNWRITTEN)
#: Their PodGroups have no priority of their own; their pods speak for them.
WITHOUT_PRIORITY = frozenset({COSCHEDULING, NATIVE, UNWRITTEN})

#: The version of each in which we read and write.
VERSIONS = {
    VOLCANO: "v1beta1",
    COSCHEDULING: "v1alpha1",
    KUBE_BATCH: "v1alpha2",
    KUBE_BATCH_INCUBATOR: "v1alpha1",
}
