"""The files and statements of docs/install.md."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.cli.scheduler_config import FOLDER
from tests import objects
from tests.cluster.api import Api, Object
from tests.cluster.binaries import ensure
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.train_gang import Pool
from tests.cluster.waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

EXAMPLES = REPOSITORY / "manifests" / "examples"
PATCH = EXAMPLES / "kubeadm" / "kube-scheduler+strategic.yaml"
PAGE = (REPOSITORY / "docs" / "install.md").read_text()
NAME = "called-scheduler"
OTHER = "other-scheduler"
TIMEOUT_S = 60

#: The relevant part of the manifest that kubeadm writes.
BY_KUBEADM = """
apiVersion: v1
kind: Pod
metadata:
  name: kube-scheduler
  namespace: kube-system
  labels: {component: kube-scheduler, tier: control-plane}
spec:
  containers:
    - name: kube-scheduler
      image: registry.k8s.io/kube-scheduler
      command:
        - kube-scheduler
        - --authentication-kubeconfig=/etc/kubernetes/scheduler.conf
        - --authorization-kubeconfig=/etc/kubernetes/scheduler.conf
        - --bind-address=127.0.0.1
        - --kubeconfig=/etc/kubernetes/scheduler.conf
        - --leader-elect=true
      volumeMounts:
        - {mountPath: /etc/kubernetes/scheduler.conf, name: kubeconfig, readOnly: true}
  hostNetwork: true
  priorityClassName: system-node-critical
  volumes:
    - name: kubeconfig
      hostPath: {path: /etc/kubernetes/scheduler.conf, type: FileOrCreate}
"""


def printed(*arguments: str) -> str:
    command = ["scheduler-config", "--deployment=default-scheduler", *arguments]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.fixture
def patched(plane: ControlPlane, tmp_path: Path) -> Any:
    """The static pod with the patch, merged as kubeadm does."""
    (tmp_path / "pod.yaml").write_text(BY_KUBEADM)
    (tmp_path / "patch.yaml").write_text(PATCH.read_text())
    rules = {"resources": ["pod.yaml"], "patches": [{"path": "patch.yaml"}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(rules))
    return yaml.safe_load(plane.kubectl("kustomize", tmp_path))


def test_patch_replaces_the_kubeconfig_flag_by_the_configuration_file(
    patched: Any,
) -> None:
    before = yaml.safe_load(BY_KUBEADM)["spec"]["containers"][0]["command"]
    (container,) = patched["spec"]["containers"]

    more = set(container["command"]) - set(before)
    less = set(before) - set(container["command"])
    assert more == {f"--config={FOLDER}/scheduler-config.yaml"}
    assert less == {"--kubeconfig=/etc/kubernetes/scheduler.conf"}
    assert patched["spec"]["hostNetwork"] is True
    assert container["image"] == "registry.k8s.io/kube-scheduler"


def test_files_of_the_configuration_are_mounted_at_their_paths(patched: Any) -> None:
    (container,) = patched["spec"]["containers"]
    volumes = {each["name"]: each["hostPath"]["path"] for each in patched["spec"]["volumes"]}
    mounted = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
    assert all(inside == outside for inside, outside in mounted.items())

    written = yaml.safe_load(printed("--url=https://10.96.0.77:8888"))
    named = [written["clientConnection"]["kubeconfig"]]
    for entry in written["extenders"]:
        named += [value for key, value in entry["tlsConfig"].items() if key.endswith("File")]
    named += [flag.partition("=")[2] for flag in container["command"] if "conf" in flag]
    assert len(set(named)) == 5
    for path in named:
        assert any(Path(path).is_relative_to(each) for each in mounted), path


def test_cluster_configuration_is_equivalent_to_the_patch(patched: Any) -> None:
    written = yaml.safe_load((EXAMPLES / "kubeadm" / "cluster-configuration.yaml").read_text())
    (argument,), (volume,) = (
        written["scheduler"]["extraArgs"],
        written["scheduler"]["extraVolumes"],
    )
    (container,) = patched["spec"]["containers"]

    assert f"--{argument['name']}={argument['value']}" in container["command"]
    assert volume["hostPath"] == volume["mountPath"] == FOLDER


def schedulers() -> list[Path]:
    """Return all kube-schedulers that are built, of any minor."""
    here = ensure("kube-scheduler")["kube-scheduler"]
    return sorted(here.parents[1].glob("kubernetes-*/kube-scheduler"))


def test_every_kube_scheduler_accepts_the_configuration_and_changes_nothing_else(
    plane: ControlPlane, tmp_path: Path
) -> None:
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_text("")
    bare, ours = tmp_path / "bare.yaml", tmp_path / "ours.yaml"
    kubeconfig = f"--kubeconfig={plane.kubeconfig('scheduler')}"
    files = [f"--{key}-file={tmp_path}/{name}" for key, name in (
        ("ca", "ca.crt"), ("cert", "client.crt"), ("key", "client.key")
    )]  # fmt: skip
    ours.write_text(printed("--url=https://10.96.0.77:8888", kubeconfig, *files))
    start = yaml.safe_load(ours.read_text())
    kept = ("apiVersion", "kind", "clientConnection", "leaderElection")
    bare.write_text(yaml.safe_dump({key: start[key] for key in kept}))
    found = schedulers()
    assert found

    for binary in found:
        without, with_us = (complete(binary, each) for each in (bare, ours))
        profiles = with_us.pop("profiles")
        (default,) = without.pop("profiles")
        extenders = with_us.pop("extenders")
        assert with_us == without
        assert [each.pop("schedulerName") for each in profiles] == [
            "default-scheduler", "gang-scheduler", "volcano", "kube-batch",
        ]  # fmt: skip
        default.pop("schedulerName")
        assert all(each == default for each in profiles)
        assert [each["httpTimeout"] for each in extenders] == ["2s", "45s"]


def complete(binary: Path, config: Path) -> Any:
    """Return the configuration with the defaults of a kube-scheduler."""
    out = config.with_suffix(f".{binary.parent.name}.out")
    command = [binary, f"--config={config}", f"--write-config-to={out}", "--secure-port=0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert out.exists(), ran.stderr[-2000:]
    return yaml.safe_load(out.read_text())


def test_all_profiles_wait_while_no_extender_answers(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, create: Create
) -> None:
    pool = nodes(1, cpu="16")
    names = (f"--scheduler-name={NAME}", f"--scheduler-name={OTHER}")
    # The extender serves only the first name: the other waits too, since extenders are shared.
    extender = plane.extender(f"--scheduler-name={NAME}", f"--exempt-namespace={namespace}")
    with extender:
        config = plane.scheduler_config(extender, *names)
        extender.terminate()
        with plane.scheduler(config):
            about = {"node_selector": pool.selector, "cpu": "1"}
            waiting = create(
                objects.pod("exempt", namespace, scheduler=NAME, **about),
                objects.pod(
                    "critical", namespace, scheduler=NAME, priority="system-node-critical", **about
                ),
                objects.pod("other", namespace, scheduler=OTHER, **about),
            )
            (placed,) = create(objects.pod("placed", namespace, nodeName=pool.names[0], **about))
            wait_for(
                lambda: phase(api, placed) == "Running", TIMEOUT_S, "it has a node from the start"
            )
            for pod in waiting:
                wait_for(
                    lambda it=pod: "connection refused" in refusal(api, it), TIMEOUT_S, "it waits"
                )
            assert [node_of(api, pod) for pod in waiting] == [None] * 3

            extender.start()
            wait_for(lambda: all(node_of(api, pod) for pod in waiting), TIMEOUT_S, "all go on")


def test_pod_can_be_bound_manually_as_documented(
    plane: ControlPlane, api: Api, namespace: str, nodes: Nodes, create: Create, tmp_path: Path
) -> None:
    pool = nodes(1)
    (pod,) = create(objects.pod("gang-extender-1", namespace, scheduler="none"))
    (shown,) = re.findall(r"^\$ kubectl (.*) binding.yaml$", PAGE, re.M)
    binding = (EXAMPLES / "binding.yaml").read_text()
    ours = {"POD": "gang-extender-1", "gang-system": namespace, "NODE": pool.names[0]}
    for old, new in ours.items():
        binding = binding.replace(old, new)
    (tmp_path / "binding.yaml").write_text(binding)

    plane.kubectl(*shown.split(), tmp_path / "binding.yaml")

    assert node_of(api, pod) == pool.names[0]
    wait_for(lambda: phase(api, pod) == "Running", TIMEOUT_S, "its kubelet starts it")


def seen(api: Api, pod: Object) -> Object:
    return api.get("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])


def node_of(api: Api, pod: Object) -> str | None:
    return objects.node_of(seen(api, pod))


def phase(api: Api, pod: Object) -> str:
    return objects.phase(seen(api, pod))


def refusal(api: Api, pod: Object) -> str:
    conditions = seen(api, pod)["status"].get("conditions", ())
    return " ".join(each.get("message", "") for each in conditions)
