"""Deployments of ours, with their pods, leases, Services, and what is mounted into them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from extender.doctor import entries
from extender.doctor.looking.arguments import settings_of, words_of
from extender.doctor.looking.eyes import ABSENT, Eyes
from extender.doctor.looking.mounts import mounted
from extender.doctor.needs import lease_of
from extender.doctor.seen import (
    Document,
    HookFiles,
    Installed,
    LeaseSeen,
    Replica,
    RunningScheduler,
    SchedulerConfig,
    ServiceSeen,
)
from extender.errors import BadInput
from extender.text import written
from extender.tls.secret import masked

OURS = {"labelSelector": "app.kubernetes.io/name=gang-extender"}


class Found(NamedTuple):
    """One Deployment: what we know of it, and how it is written."""

    installed: Installed
    #: Of the pod template.
    pod: Document
    extender: Document
    scheduler: Document | None


def deployments(eyes: Eyes, namespace: str = "") -> list[Found] | None:
    """Find what is labelled as ours and runs `serve`, in one namespace or in all."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    told = eyes.items(f"/apis/apps/v1{scope}/deployments", "Deployments of the extender", OURS)
    if told is None:
        return None
    return [found for each in told if (found := _found(eyes, each)) is not None]


def _found(eyes: Eyes, written: Document) -> Found | None:
    about, spec = written["metadata"], written.get("spec") or {}
    pod = spec.get("template", {}).get("spec") or {}
    containers = pod.get("containers") or []
    extender = next((each for each in containers if "serve" in words_of(each)), None)
    if extender is None:
        return None
    scheduler = next((each for each in containers if is_scheduler(each)), None)
    settings, problem, home = None, "", about["namespace"]
    try:
        settings = settings_of(extender, home)
    except BadInput as error:
        problem = str(error)
    installed = Installed(
        namespace=home,
        name=about["name"],
        settings=settings,
        problem=problem,
        replicas=spec.get("replicas", 1),
        account=pod.get("serviceAccountName") or "default",
        scheduler_name=pod.get("schedulerName") or entries.DEFAULT_PROFILE,
        priority_class=pod.get("priorityClassName") or "",
        is_pair=scheduler is not None,
        pods=_pods(eyes, home, (spec.get("selector") or {}).get("matchLabels") or {}),
    )
    return Found(installed, pod, extender, scheduler)


def is_scheduler(container: Document) -> bool:
    """Ask whether that is a kube-scheduler."""
    words = words_of(container)
    return any(word.rpartition("/")[2] == "kube-scheduler" for word in words[:1])


def _pods(eyes: Eyes, home: str, labels: dict[str, str]) -> tuple[Replica, ...] | None:
    query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
    told = eyes.items(f"/api/v1/namespaces/{home}/pods", f"pods in {home}", query)
    if told is None:
        return None
    return tuple(
        Replica(each["metadata"]["name"], _is_ready(each), each["metadata"].get("labels") or {})
        for each in told
        if "deletionTimestamp" not in each["metadata"]
    )


def _is_ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def leases(eyes: Eyes, found: list[Found]) -> Iterator[LeaseSeen]:
    """Read the lease that each goes by, if it goes by one."""
    for each in found:
        settings, home = each.installed.settings, each.installed.namespace
        if settings is None or settings.lease == "none" or not each.installed.replicas:
            continue
        namespace, name = lease_of(settings, home)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        told = eyes.get(path, f"lease {name} in {namespace}")
        if told is None:
            continue
        spec = told.get("spec") or {}
        yield LeaseSeen(
            namespace,
            name,
            exists=told is not ABSENT,
            holder=spec.get("holderIdentity") or "",
            renewed=_time(spec.get("renewTime")),
            duration_s=float(spec.get("leaseDurationSeconds") or 15),
        )


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def services(eyes: Eyes, found: list[Found]) -> Iterator[ServiceSeen]:
    """Read the Services of ours that select pods."""
    for home in sorted({each.installed.namespace for each in found}):
        path = f"/api/v1/namespaces/{home}/services"
        for each in eyes.items(path, f"Services in {home}", OURS) or ():
            if selector := (each.get("spec") or {}).get("selector"):
                yield ServiceSeen(f"service/{each['metadata']['name']} in {home}", selector)


def configurations(eyes: Eyes, found: list[Found]) -> Iterator[SchedulerConfig]:
    """Read the configuration of every kube-scheduler that shares a pod with an extender."""
    for each in found:
        if each.scheduler is None:
            continue
        home = each.installed.namespace
        reader, path = _as_written(each.pod, each.scheduler)
        where = f"{path} of kube-scheduler in {each.installed.where}"
        if not path:
            eyes.miss(f"the configuration of kube-scheduler in {each.installed.where}",
                      "it is started without --config")  # fmt: skip
        elif (text := mounted(eyes, each.pod, reader, path, home)) is not None:
            try:
                document = entries.check(written.load(text.decode(errors="replace")), where)
            except BadInput as error:
                eyes.miss(where, masked(str(error)))
                continue
            settings = each.installed.settings
            yield (
                SchedulerConfig(where=where, document=document, settings=settings)
                if settings
                else SchedulerConfig(where=where, document=document, is_assumed=True)
            )


def _as_written(pod: Document, scheduler: Document) -> tuple[Document, str]:
    """Give whose file the configuration of *scheduler* is, and its path, before a secret is in it.

    What `pair` has written lies in the memory of the pod, where nobody else can see it.
    """
    path = flag_of(scheduler, "--config")
    for each in pod.get("initContainers") or ():
        folder = flag_of(each, "--directory").rstrip("/")
        if "pair" in words_of(each) and folder and path.startswith(f"{folder}/"):
            return each, flag_of(each, "--scheduler-config")
    return scheduler, path


def flag_of(container: Document, flag: str) -> str:
    """Give what a container's *flag* says, the last time it is said; empty when it is not."""
    words = words_of(container)
    said = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            said = following
        elif word.startswith(f"{flag}="):
            said = word.partition("=")[2]
    return said


def schedulers(eyes: Eyes, found: list[Found]) -> Iterator[RunningScheduler]:
    """Name every kube-scheduler whose command line can be seen: beside ours, and kubeadm's."""
    for each in found:
        if each.scheduler is not None:
            where = f"kube-scheduler in {each.installed.where}"
            yield RunningScheduler(where, _gates(each.scheduler))
    selected = {"labelSelector": "component=kube-scheduler"}
    for pod in (
        eyes.items("/api/v1/namespaces/kube-system/pods", "pods of kube-system", selected) or ()
    ):
        for container in pod["spec"].get("containers") or ():
            if is_scheduler(container):
                where = f"pod/{pod['metadata']['name']} in kube-system"
                yield RunningScheduler(where, _gates(container))


def _gates(container: Document) -> dict[str, bool]:
    said = (word.partition("=") for word in flag_of(container, "--feature-gates").split(","))
    return {gate.strip(): value.strip().lower() == "true" for gate, _, value in said if gate}


def hook_files(eyes: Eyes, found: list[Found]) -> Iterator[HookFiles]:
    """Read what the hooks show, and whom they believe; the key is never looked at."""
    for each in found:
        settings, home = each.installed.settings, each.installed.namespace
        if settings is None or not settings.tls_cert_file:
            continue
        shown = mounted(eyes, each.pod, each.extender, settings.tls_cert_file, home)
        believed = mounted(eyes, each.pod, each.extender, settings.client_ca_file, home)
        if shown is not None:
            where = f"{settings.tls_cert_file} of {each.installed.where}"
            yield HookFiles(where=where, certificate=shown, client_ca=believed or b"")
