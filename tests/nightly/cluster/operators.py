"""PodGroups and pods exactly as the controllers of other projects write them.

From their sources: Volcano 1.15 (job controller, podgroup controller), Kubeflow's Training Operator
1.9 and Trainer 2, Spark 4 (its Volcano feature step) and Spark Operator 2.5, without fields that do
not matter to a scheduler (images, services, volumes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests import objects
from tests.cluster.api import Object

COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"
GROUP = objects.GROUP_NAME
#: The requests of one pod as a ResourceQuota counts them, which Volcano does too.
QUOTA_OF_A_POD = {
    "count/pods": 1,
    "pods": 1,
    "cpu": 1,
    "requests.cpu": 1,
    "limits.cpu": 2,
    "memory": 64,
    "requests.memory": 64,
    "limits.memory": 128,
}
RESOURCES = {
    "requests": {"cpu": "1", "memory": "64"},
    "limits": {"cpu": "2", "memory": "128"},
}


@dataclass(frozen=True, slots=True)
class Written:
    """The objects that a controller writes for one job."""

    group: Object
    #: Each is created when the previous one runs.
    waves: tuple[list[Object], ...]
    #: Pods are created when the group has this phase.
    awaits: str = ""


def volcano_job(namespace: str) -> Written:
    """Return a Volcano Job with two tasks and the labels and annotations of the job controller."""
    job, uid = "train", "2ff2b1b0-2f6b-4c6b-8c09-5c3f3a7c9f11"
    owner = _owner("batch.volcano.sh/v1alpha1", "Job", job, uid)
    group = objects.pod_group(
        f"{job}-{uid}",
        namespace,
        3,
        queue="default",
        minTaskMember={"master": 1, "worker": 2},
        minResources=_quota(3),
    )
    group["metadata"]["ownerReferences"] = [owner]

    def pod(task: str, index: int) -> Object:
        labels = {
            "volcano.sh/task-index": str(index),
            "volcano.sh/job-name": job,
            "volcano.sh/task-spec": task,
            "volcano.sh/job-namespace": namespace,
            "volcano.sh/queue-name": "default",
        }
        annotations = {
            "volcano.sh/task-index": str(index),
            "volcano.sh/task-spec": task,
            GROUP: f"{job}-{uid}",
            "volcano.sh/job-name": job,
            "volcano.sh/queue-name": "default",
            "volcano.sh/job-version": "0",
            "volcano.sh/template-uid": f"{job}-{task}",
            "volcano.sh/job-retry-count": "0",
        }
        return _pod(f"{job}-{task}-{index}", namespace, "volcano", owner, labels, annotations)

    pods = [pod("master", 0), pod("worker", 0), pod("worker", 1)]
    return Written(group, (pods,), awaits="Inqueue")


def volcano_statefulset(namespace: str) -> Written:
    """Return the group that Volcano creates for pods of other controllers.

    The annotation `scheduling.volcano.sh/group-min-member` of the StatefulSet gave the minimum.
    """
    owner = _owner("apps/v1", "StatefulSet", "store", "0c5b4f0e-6f0d-4a39-8d3a-b1f1a9b1c001")
    name = f"podgroup-{owner['uid']}"
    group = objects.pod_group(name, namespace, 2, minResources=_quota(2))
    group["metadata"]["ownerReferences"] = [owner]
    pods = [_pod(f"store-{i}", namespace, "volcano", owner, {}, {GROUP: name}) for i in range(2)]
    return Written(group, (pods,))


def training_operator_with_volcano(namespace: str) -> Written:
    """Return a PyTorchJob with `--gang-scheduler-name=volcano`."""
    owner = _owner("kubeflow.org/v1", "PyTorchJob", "net", "5a2c7f32-7a39-4e0c-b0f3-9d4f5d6f0002")
    minimum = {"cpu": "3", "memory": "192"}
    group = objects.pod_group("net", namespace, 3, queue="default", minResources=minimum)
    group["metadata"]["ownerReferences"] = [owner]

    def pod(role: str, index: int) -> Object:
        annotations = {GROUP: "net", "volcano.sh/task-spec": role}
        labels = {"training.kubeflow.org/job-name": "net", "training.kubeflow.org/job-role": role}
        return _pod(f"net-{role}-{index}", namespace, "volcano", owner, labels, annotations)

    pods = [pod("master", 0), pod("worker", 0), pod("worker", 1)]
    return Written(group, (pods,), awaits="Inqueue")


def training_operator_with_coscheduling(namespace: str) -> Written:
    """Return a PyTorchJob with `--gang-scheduler-name`: coscheduling's PodGroups."""
    owner = _owner("kubeflow.org/v1", "PyTorchJob", "net", "5a2c7f32-7a39-4e0c-b0f3-9d4f5d6f0003")
    group = _coscheduling_group("net", namespace, 3, owner, scheduleTimeoutSeconds=60)
    labels = {"scheduling.x-k8s.io/pod-group": "net", "training.kubeflow.org/job-name": "net"}
    names = ("net-master-0", "net-worker-0", "net-worker-1")
    pods = [_pod(name, namespace, "gang-scheduler", owner, labels, {}) for name in names]
    return Written(group, (pods,))


def trainer_with_coscheduling(namespace: str) -> Written:
    """Return a TrainJob whose runtime has `podGroupPolicy.coscheduling`; a Job has its pods."""
    uid = "5a2c7f32-7a39-4e0c-b0f3-9d4f5d6f0004"
    train = _owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "net", uid)
    job = _owner("batch/v1", "Job", "net-node-0", "5a2c7f32-7a39-4e0c-b0f3-9d4f5d6f0005")
    group = _coscheduling_group("net", namespace, 3, train, scheduleTimeoutSeconds=60)
    labels = {"scheduling.x-k8s.io/pod-group": "net", "jobset.sigs.k8s.io/jobset-name": "net"}
    names = [f"net-node-0-{index}" for index in range(3)]
    pods = [_pod(name, namespace, "gang-scheduler", job, labels, {}) for name in names]
    return Written(group, (pods,))


def spark_with_its_volcano_step(namespace: str) -> Written:
    """Return Spark with `spark.kubernetes.scheduler.name=volcano` and no group template."""
    app = "spark-9f1c0c7e2b5d4c0e8a"
    group: Object = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": f"{app}-podgroup", "namespace": namespace},
        "spec": {},
    }
    return Written(group, _spark(namespace, app, f"{app}-podgroup", None))


def spark_operator_with_volcano(namespace: str) -> Written:
    """Return a SparkApplication with `batchScheduler: volcano`; the minimum is the driver."""
    uid = "6b3d8043-8b4a-4f1d-a1f4-ad5f6e7f0006"
    owner = _owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", uid)
    minimum = {"cpu": "3", "memory": "192"}
    group = objects.pod_group("spark-pi-pg", namespace, 1, minResources=minimum)
    group["metadata"]["ownerReferences"] = [owner]
    group["status"] = {"phase": "Pending"}
    return Written(group, _spark(namespace, "spark-0001", "spark-pi-pg", owner))


def _spark(
    namespace: str, app: str, group: str, owner: Object | None
) -> tuple[list[Object], list[Object]]:
    annotations = {GROUP: group}
    role = {"spark-app-selector": app, "spark-role": "driver"}
    driver = _pod(f"{app}-driver", namespace, "volcano", owner, role, annotations)
    made = _owner("v1", "Pod", f"{app}-driver", "7c4e9154-9c5b-4a2e-b2a5-be6a7f8a0007")
    role = {"spark-app-selector": app, "spark-role": "executor"}
    executors = [
        _pod(f"{app}-exec-{index}", namespace, "volcano", made, role, annotations)
        for index in (1, 2)
    ]
    return [driver], executors


def _coscheduling_group(
    name: str, namespace: str, min_member: int, owner: Object, **spec: Any
) -> Object:
    minimum = {"cpu": str(min_member), "memory": str(64 * min_member)}
    return {
        "apiVersion": COSCHEDULING,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"minMember": min_member, "minResources": minimum, **spec},
    }


def _pod(
    name: str,
    namespace: str,
    scheduler: str,
    owner: Object | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Object:
    container = {"name": "main", "image": "registry.k8s.io/pause", "resources": RESOURCES}
    rest = {"scheduler": scheduler, "labels": labels, "annotations": annotations}
    made = objects.pod(name, namespace, **rest, containers=[container])
    if owner is not None:
        made["metadata"]["ownerReferences"] = [owner]
    return made


def _quota(pods: int) -> dict[str, str]:
    return {name: str(amount * pods) for name, amount in QUOTA_OF_A_POD.items()}


def _owner(version: str, kind: str, name: str, uid: str) -> Object:
    about = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    return {**about, "controller": True, "blockOwnerDeletion": True}
