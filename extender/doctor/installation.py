"""Deployments of ours, with their pods, leases, Services, and what is mounted into them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from extender import yaml_loader
from extender.doctor import scheduler_config
from extender.doctor.facts import (
    Document,
    ExtenderDeployment,
    HookFiles,
    LeaseFacts,
    Replica,
    RunningScheduler,
    SchedulerConfig,
    ServiceFacts,
)
from extender.doctor.rbac import lease_of
from extender.doctor.reader import ABSENT, ApiReader
from extender.errors import InvalidConfiguration, InvalidInput
from extender.settings import Settings, flag, variable
from extender.tls.hook_secret import masked


def mounted(
    eyes: ApiReader, pod: Document, container: Document, path: str, home: str
) -> bytes | None:
    """Read *path* of a container of the pod template *pod*; None when it cannot be seen."""
    what = f"{path} of {container.get('name')} in {home}"
    volume, key = _volume(pod, container, path)
    for kind, plural, name_of in (
        ("configMap", "configmaps", "name"),
        ("secret", "secrets", "secretName"),
    ):
        if kind not in volume:
            continue
        told = volume[kind]
        key = next((e["key"] for e in told.get("items") or () if e.get("path") == key), key)
        name = told.get(name_of)
        found = eyes.get(f"/api/v1/namespaces/{home}/{plural}/{name}", what)
        if found is None:
            return None
        return _content(eyes, found, key, what, f"{plural[:-1]} {name} in {home}")
    eyes.miss(what, "no ConfigMap and no Secret is mounted there")
    return None


def _content(eyes: ApiReader, found: Document, key: str, what: str, where: str) -> bytes | None:
    text = (found.get("data") or {}).get(key)
    if text is None:
        eyes.miss(what, f"{where} does not exist" if not found else f"{where} has no {key}")
        return None
    if found.get("kind") == "ConfigMap":
        return str(text).encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError):
        eyes.miss(what, f"{where}: {key} is not base64")
        return None


def _volume(pod: Document, container: Document, path: str) -> tuple[Document, str]:
    volumes = {each.get("name"): each for each in pod.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        folder = str(mount.get("mountPath", "")).rstrip("/")
        if mount.get("subPath") and path == folder:
            return volumes.get(mount.get("name"), {}), str(mount["subPath"])
        if path.startswith(f"{folder}/"):
            return volumes.get(mount.get("name"), {}), path.removeprefix(f"{folder}/")
    return {}, path


_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Settings)}
#: Stands for the name of a pod, which each has for itself.
_SOME_NAME = "some-pod"
#: A variable in an argument.
_REFERENCE = re.compile(r"\$\(([^)]+)\)")
#: By name; None is what only the pod is told.
Variables: TypeAlias = Mapping[str, str | None]


def words_of(container: Document) -> list[str]:
    """Give what the container is started with."""
    return [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]


def settings_of(container: Document, home: str = "") -> Settings:
    """Read flags and variables as `serve` in the namespace *home* does, or would refuse to."""
    words = words_of(container)
    told = {str(each.get("name")): _told(each, home) for each in container.get("env") or ()}
    flags = _by_flag(words[words.index("serve") + 1 :], told)
    return Settings(**{**_by_variable(told), **flags})


def _told(each: Document, home: str) -> str | None:
    """Give the value of a variable; None when only the pod itself is told it."""
    source = each.get("valueFrom")
    if not source:
        return str(each.get("value") or "")
    path = str((source.get("fieldRef") or {}).get("fieldPath"))
    return {"metadata.namespace": home, "metadata.name": _SOME_NAME}.get(path)


def _by_variable(told: Variables) -> dict[str, Any]:
    given = ((name, told.get(variable(name))) for name in _DEFAULTS)
    return {name: _value(name, text.split(), variable(name)) for name, text in given if text}


def _by_flag(words: Sequence[str], told: Variables) -> dict[str, Any]:
    names = {flag(name): name for name in _DEFAULTS}
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if word not in names:
            raise InvalidConfiguration(f"`serve` has no {word}")
        name = names[word]
        if not equals and not isinstance(_DEFAULTS[name], bool):
            if not rest:
                raise InvalidConfiguration(f"{word} needs a value")
            value = rest.pop(0)
        if (filled := _filled_in(value, told)) is not None:
            given.setdefault(name, []).append(filled)
    return {name: _value(name, values, flag(name)) for name, values in given.items()}


def _filled_in(text: str, told: Variables) -> str | None:
    """Put variables in as Kubernetes does; None when one is not known here."""
    used = _REFERENCE.findall(text)
    if any(name in told and told[name] is None for name in used):
        return None
    return _REFERENCE.sub(lambda found: told.get(found[1]) or found[0], text)


def _value(name: str, texts: Sequence[str], said: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, tuple):
        return tuple(texts)
    text = " ".join(texts) if said.isupper() else texts[-1]
    if isinstance(default, bool):
        return text.lower() in ("", "1", "true", "t", "yes", "y", "on")
    try:
        return type(default)(text)
    except ValueError as error:
        raise InvalidConfiguration(f"{said} {text!r} is not a number") from error


OURS = {"labelSelector": "app.kubernetes.io/name=gang-extender"}


class FoundDeployment(NamedTuple):
    """One Deployment: what we know of it, and how it is written."""

    installed: ExtenderDeployment
    #: Of the pod template.
    pod: Document
    extender: Document
    scheduler: Document | None


def deployments(eyes: ApiReader, namespace: str = "") -> list[FoundDeployment] | None:
    """Find what is labelled as ours and runs `serve`, in one namespace or in all."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    told = eyes.items(f"/apis/apps/v1{scope}/deployments", "Deployments of the extender", OURS)
    if told is None:
        return None
    return [found for each in told if (found := _found(eyes, each)) is not None]


def _found(eyes: ApiReader, written: Document) -> FoundDeployment | None:
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
    except InvalidInput as error:
        problem = str(error)
    installed = ExtenderDeployment(
        namespace=home,
        name=about["name"],
        settings=settings,
        problem=problem,
        replicas=spec.get("replicas", 1),
        account=pod.get("serviceAccountName") or "default",
        scheduler_name=pod.get("schedulerName") or scheduler_config.DEFAULT_PROFILE,
        priority_class=pod.get("priorityClassName") or "",
        is_pair=scheduler is not None,
        pods=_pods(eyes, home, (spec.get("selector") or {}).get("matchLabels") or {}),
    )
    return FoundDeployment(installed, pod, extender, scheduler)


def is_scheduler(container: Document) -> bool:
    """Ask whether that is a kube-scheduler."""
    words = words_of(container)
    return any(word.rpartition("/")[2] == "kube-scheduler" for word in words[:1])


def _pods(eyes: ApiReader, home: str, labels: dict[str, str]) -> tuple[Replica, ...] | None:
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


def leases(eyes: ApiReader, found: list[FoundDeployment]) -> Iterator[LeaseFacts]:
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
        yield LeaseFacts(
            namespace,
            name,
            exists=told is not ABSENT,
            holder=spec.get("holderIdentity") or "",
            renewed=_time(spec.get("renewTime")),
            duration_s=float(spec.get("leaseDurationSeconds") or 15),
        )


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def services(eyes: ApiReader, found: list[FoundDeployment]) -> Iterator[ServiceFacts]:
    """Read the Services of ours that select pods."""
    for home in sorted({each.installed.namespace for each in found}):
        path = f"/api/v1/namespaces/{home}/services"
        for each in eyes.items(path, f"Services in {home}", OURS) or ():
            if selector := (each.get("spec") or {}).get("selector"):
                yield ServiceFacts(f"service/{each['metadata']['name']} in {home}", selector)


def configurations(eyes: ApiReader, found: list[FoundDeployment]) -> Iterator[SchedulerConfig]:
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
                document = scheduler_config.check(
                    yaml_loader.load(text.decode(errors="replace")), where
                )
            except InvalidInput as error:
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


def schedulers(eyes: ApiReader, found: list[FoundDeployment]) -> Iterator[RunningScheduler]:
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


def hook_files(eyes: ApiReader, found: list[FoundDeployment]) -> Iterator[HookFiles]:
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
