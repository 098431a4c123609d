"""Reads Deployments of the extender, with their pods, leases, Services and mounted files."""

from __future__ import annotations

import base64
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
    reader: ApiReader, pod: Document, container: Document, path: str, home: str
) -> bytes | None:
    """Read the file *path* of a container of the pod template *pod*; None if not readable."""
    what = f"{path} of {container.get('name')} in {home}"
    volume, key = _volume(pod, container, path)
    for kind, plural, name_of in (
        ("configMap", "configmaps", "name"),
        ("secret", "secrets", "secretName"),
    ):
        if kind not in volume:
            continue
        source = volume[kind]
        key = next((e["key"] for e in source.get("items") or () if e.get("path") == key), key)
        name = source.get(name_of)
        found = reader.get(f"/api/v1/namespaces/{home}/{plural}/{name}", what)
        if found is None:
            return None
        return _content(reader, found, key, what, f"{plural[:-1]} {name} in {home}")
    reader.not_readable(what, "it is mounted neither from a ConfigMap nor from a Secret")
    return None


def _content(reader: ApiReader, found: Document, key: str, what: str, where: str) -> bytes | None:
    text = (found.get("data") or {}).get(key)
    if text is None:
        reader.not_readable(
            what, f"{where} does not exist" if not found else f"{where} has no {key}"
        )
        return None
    if found.get("kind") == "ConfigMap":
        return str(text).encode()
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        reader.not_readable(what, f"{where}: {key} is not base64")
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
#: A placeholder for the name of a pod, which differs between pods.
_SOME_NAME = "some-pod"
#: A reference to a variable in an argument.
_REFERENCE = re.compile(r"\$\(([^)]+)\)")
#: By name; None if only the pod has the value.
Variables: TypeAlias = Mapping[str, str | None]


def command_of(container: Document) -> list[str]:
    """Return the command line of a container."""
    return [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]


def settings_of(container: Document, home: str = "") -> Settings:
    """Read flags and variables as `serve` does, in the namespace *home*; raise as it does."""
    args = command_of(container)
    variables = {
        str(each.get("name")): _variable_value(each, home) for each in container.get("env") or ()
    }
    flags = _by_flag(args[args.index("serve") + 1 :], variables)
    return Settings(**{**_by_variable(variables), **flags})


def _variable_value(each: Document, home: str) -> str | None:
    """Return the value of a variable; None if only the pod has it."""
    source = each.get("valueFrom")
    if not source:
        return str(each.get("value") or "")
    path = str((source.get("fieldRef") or {}).get("fieldPath"))
    return {"metadata.namespace": home, "metadata.name": _SOME_NAME}.get(path)


def _by_variable(variables: Variables) -> dict[str, Any]:
    given = ((name, variables.get(variable(name))) for name in _DEFAULTS)
    return {name: _value(name, text.split(), variable(name)) for name, text in given if text}


def _by_flag(args: Sequence[str], variables: Variables) -> dict[str, Any]:
    names = {flag(name): name for name in _DEFAULTS}
    given: dict[str, list[str]] = {}
    left = list(args)
    while left:
        arg, equals, value = left.pop(0).partition("=")
        if arg not in names:
            raise InvalidConfiguration(f"`serve` has no {arg}")
        name = names[arg]
        if not equals and not isinstance(_DEFAULTS[name], bool):
            if not left:
                raise InvalidConfiguration(f"{arg} needs a value")
            value = left.pop(0)
        if (expanded := _expanded(value, variables)) is not None:
            given.setdefault(name, []).append(expanded)
    return {name: _value(name, values, flag(name)) for name, values in given.items()}


def _expanded(text: str, variables: Variables) -> str | None:
    """Expand variables as Kubernetes does; None when the value of one is not known."""
    used = _REFERENCE.findall(text)
    if any(name in variables and variables[name] is None for name in used):
        return None
    return _REFERENCE.sub(lambda found: variables.get(found[1]) or found[0], text)


def _value(name: str, texts: Sequence[str], given_as: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, tuple):
        return tuple(texts)
    text = " ".join(texts) if given_as.isupper() else texts[-1]
    if isinstance(default, bool):
        return text.lower() in ("", "1", "true", "t", "yes", "y", "on")
    try:
        return type(default)(text)
    except ValueError as error:
        raise InvalidConfiguration(f"{given_as} {text!r} is not a number") from error


OURS = {"labelSelector": "app.kubernetes.io/name=gang-extender"}


class FoundDeployment(NamedTuple):
    """A Deployment: its facts, and its containers."""

    installed: ExtenderDeployment
    #: The spec of the pod template.
    pod: Document
    extender: Document
    scheduler: Document | None


def deployments(reader: ApiReader, namespace: str = "") -> list[FoundDeployment] | None:
    """Find Deployments with our label that run `serve`, in one namespace or in all."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    items = reader.items(f"/apis/apps/v1{scope}/deployments", "Deployments of the extender", OURS)
    if items is None:
        return None
    return [found for each in items if (found := _found(reader, each)) is not None]


def _found(reader: ApiReader, manifest: Document) -> FoundDeployment | None:
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    pod = spec.get("template", {}).get("spec") or {}
    containers = pod.get("containers") or []
    extender = next((each for each in containers if "serve" in command_of(each)), None)
    if extender is None:
        return None
    scheduler = next((each for each in containers if is_scheduler(each)), None)
    settings, problem, home = None, "", metadata["namespace"]
    try:
        settings = settings_of(extender, home)
    except InvalidInput as error:
        problem = str(error)
    installed = ExtenderDeployment(
        namespace=home,
        name=metadata["name"],
        settings=settings,
        problem=problem,
        replicas=spec.get("replicas", 1),
        account=pod.get("serviceAccountName") or "default",
        scheduler_name=pod.get("schedulerName") or scheduler_config.DEFAULT_PROFILE,
        priority_class=pod.get("priorityClassName") or "",
        is_pair=scheduler is not None,
        pods=_pods(reader, home, (spec.get("selector") or {}).get("matchLabels") or {}),
    )
    return FoundDeployment(installed, pod, extender, scheduler)


def is_scheduler(container: Document) -> bool:
    """Return whether the container runs kube-scheduler."""
    args = command_of(container)
    return any(arg.rpartition("/")[2] == "kube-scheduler" for arg in args[:1])


def _pods(reader: ApiReader, home: str, labels: dict[str, str]) -> tuple[Replica, ...] | None:
    query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
    items = reader.items(f"/api/v1/namespaces/{home}/pods", f"pods in {home}", query)
    if items is None:
        return None
    return tuple(
        Replica(each["metadata"]["name"], _is_ready(each), each["metadata"].get("labels") or {})
        for each in items
        if "deletionTimestamp" not in each["metadata"]
    )


def _is_ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def leases(reader: ApiReader, found: list[FoundDeployment]) -> Iterator[LeaseFacts]:
    """Yield the lease of each Deployment that uses one."""
    for each in found:
        settings, home = each.installed.settings, each.installed.namespace
        if settings is None or settings.lease == "none" or not each.installed.replicas:
            continue
        namespace, name = lease_of(settings, home)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        lease = reader.get(path, f"lease {name} in {namespace}")
        if lease is None:
            continue
        spec = lease.get("spec") or {}
        yield LeaseFacts(
            namespace,
            name,
            exists=lease is not ABSENT,
            holder=spec.get("holderIdentity") or "",
            renewed=_time(spec.get("renewTime")),
            duration_s=float(spec.get("leaseDurationSeconds") or 15),
        )


def _time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def services(reader: ApiReader, found: list[FoundDeployment]) -> Iterator[ServiceFacts]:
    """Yield the Services of the extender that select pods."""
    for home in sorted({each.installed.namespace for each in found}):
        path = f"/api/v1/namespaces/{home}/services"
        for each in reader.items(path, f"Services in {home}", OURS) or ():
            if selector := (each.get("spec") or {}).get("selector"):
                yield ServiceFacts(f"service/{each['metadata']['name']} in {home}", selector)


def configurations(reader: ApiReader, found: list[FoundDeployment]) -> Iterator[SchedulerConfig]:
    """Yield the configuration of every kube-scheduler in a pod of an extender."""
    for each in found:
        if each.scheduler is None:
            continue
        home = each.installed.namespace
        container, path = _source_of_config(each.pod, each.scheduler)
        where = f"{path} of kube-scheduler in {each.installed.where}"
        if not path:
            what = f"the configuration of kube-scheduler in {each.installed.where}"
            reader.not_readable(what, "it is started without --config")
        elif (text := mounted(reader, each.pod, container, path, home)) is not None:
            try:
                document = scheduler_config.check(
                    yaml_loader.load(text.decode(errors="replace")), where
                )
            except InvalidInput as error:
                reader.not_readable(where, masked(str(error)))
                continue
            yield SchedulerConfig.of(where, document, each.installed.settings)


def _source_of_config(pod: Document, scheduler: Document) -> tuple[Document, str]:
    """Return container and path of the configuration of *scheduler* before `pair` adds a secret.

    The output of `pair` is in a volume in memory, which only the pod can read.
    """
    path = flag_of(scheduler, "--config")
    for each in pod.get("initContainers") or ():
        folder = flag_of(each, "--directory").rstrip("/")
        if "pair" in command_of(each) and folder and path.startswith(f"{folder}/"):
            return each, flag_of(each, "--scheduler-config")
    return scheduler, path


def flag_of(container: Document, flag: str) -> str:
    """Return the last value of a container's *flag*; empty when it is not given."""
    args = command_of(container)
    value = ""
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        if arg == flag:
            value = following
        elif arg.startswith(f"{flag}="):
            value = arg.partition("=")[2]
    return value


def schedulers(reader: ApiReader, found: list[FoundDeployment]) -> Iterator[RunningScheduler]:
    """Yield every kube-scheduler with a readable command line: beside extenders, and kubeadm's."""
    for each in found:
        if each.scheduler is not None:
            where = f"kube-scheduler in {each.installed.where}"
            yield RunningScheduler(where, _gates(each.scheduler))
    selected = {"labelSelector": "component=kube-scheduler"}
    for pod in (
        reader.items("/api/v1/namespaces/kube-system/pods", "pods of kube-system", selected) or ()
    ):
        for container in pod["spec"].get("containers") or ():
            if is_scheduler(container):
                where = f"pod/{pod['metadata']['name']} in kube-system"
                yield RunningScheduler(where, _gates(container))


def _gates(container: Document) -> dict[str, bool]:
    pairs = (arg.partition("=") for arg in flag_of(container, "--feature-gates").split(","))
    return {gate.strip(): value.strip().lower() == "true" for gate, _, value in pairs if gate}


def hook_files(reader: ApiReader, found: list[FoundDeployment]) -> Iterator[HookFiles]:
    """Yield the certificates and client CAs of hooks; the private key is never read."""
    for each in found:
        settings, home = each.installed.settings, each.installed.namespace
        if settings is None or not settings.tls_cert_file:
            continue
        certificate = mounted(reader, each.pod, each.extender, settings.tls_cert_file, home)
        client_ca = mounted(reader, each.pod, each.extender, settings.client_ca_file, home)
        if certificate is not None:
            where = f"{settings.tls_cert_file} of {each.installed.where}"
            yield HookFiles(where=where, certificate=certificate, client_ca=client_ca or b"")
