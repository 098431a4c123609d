"""The chart renders the objects of the overlays, and refuses invalid values."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.settings import Settings
from tests.cluster.api import Object
from tests.cluster.binaries import ensure, require
from tests.cluster.control_plane import MANIFESTS, ControlPlane
from tests.nightly.chart.generated import OF_THE_CHART
from tests.nightly.chart.values import CHART, VALUES, explained

from .helm import HOME, HelmRefused, helm, objects_of, template

SECOND = "second-scheduler"
DEPLOYMENTS = (SECOND, "default-scheduler")
CHANGED = Path(__file__).parents[1] / "chart" / "every-value-changed"

Values = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def binaries() -> None:
    require("helm", "kubectl")


# Rendered objects


def place(thing: Object) -> str:
    about = thing["metadata"]
    return f"{thing['kind']} {about.get('namespace', '')}/{about['name']}"


def kustomized(deployment: str) -> list[Object]:
    return kustomize(MANIFESTS / "overlays" / deployment)


def kustomize(overlay: Path) -> list[Object]:
    command = [ensure("kubectl")["kubectl"], "kustomize", overlay]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    return objects_of(made.stdout)


def without_hash(thing: Object) -> None:
    """kustomize marks a changed ConfigMap by its name, the chart by an annotation of the pod."""
    if thing["kind"] == "ConfigMap" and thing["metadata"]["name"].startswith("gang-scheduler"):
        thing["metadata"]["name"] = "gang-scheduler-config"
    if thing["kind"] == "Deployment":
        template = thing["spec"]["template"]
        for volume in template["spec"]["volumes"]:
            if "configMap" in volume:
                volume["configMap"]["name"] = "gang-scheduler-config"
        template["metadata"].pop("annotations", None)


def without_labels_of_crds(thing: Object) -> None:
    """The overlay labels CRDs, so that they can be left out; Helm has --skip-crds."""
    if thing["kind"] == "CustomResourceDefinition":
        thing["metadata"].pop("labels", None)


def without_default_scheduler_names(thing: Object) -> None:
    """The chart always passes the names, since they are values; the overlay omits the defaults."""
    if thing["kind"] == "Deployment":
        extender = thing["spec"]["template"]["spec"]["containers"][0]
        named = [word for word in extender["args"] if word.startswith("--scheduler-name=")]
        if named == [f"--scheduler-name={name}" for name in Settings().scheduler_name]:
            extender["args"] = [word for word in extender["args"] if word not in named]


#: The allowed differences.
DIFFERENCES: list[Callable[[Object], None]] = [
    without_hash,
    without_labels_of_crds,
    without_default_scheduler_names,
]


def compared(things: list[Object]) -> dict[str, Object]:
    things = copy.deepcopy(things)
    for thing in things:
        for remove in DIFFERENCES:
            remove(thing)
    assert len({place(thing) for thing in things}) == len(things)
    return {place(thing): thing for thing in things}


def as_the_overlay(deployment: str) -> Values:
    """Return the values that an overlay sets: it creates the namespace, and its tag is dev."""
    return {"deployment": deployment, "namespace.create": True, "image.tag": "dev"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_chart_renders_the_objects_of_the_overlay(deployment: str) -> None:
    overlay = compared(kustomized(deployment))
    chart = compared(objects_of(template(as_the_overlay(deployment))))

    assert chart.keys() == overlay.keys()
    for name, thing in chart.items():
        assert thing == overlay[name], name


def schedulers_image(things: list[Object]) -> str:
    (pod,) = (t["spec"]["template"]["spec"] for t in things if t["kind"] == "Deployment")
    (image,) = (c["image"] for c in pod["containers"] if c["name"] == "kube-scheduler")
    return str(image)


def test_chart_and_overlay_run_kube_scheduler_by_digest() -> None:
    by_chart, by_overlay = map(schedulers_image, (objects_of(template()), kustomized(SECOND)))

    assert by_chart == by_overlay
    assert re.fullmatch(r"registry\.k8s\.io/kube-scheduler:v[\d.]+@sha256:\w{64}", by_chart)


def test_another_tag_of_kube_scheduler_removes_the_digest(tmp_path: Path) -> None:
    """With a digest the tag is ignored, so our digest must be removed for another tag."""
    overlay = {
        "resources": [os.path.relpath(MANIFESTS / "overlays" / SECOND, tmp_path)],
        "images": [{"name": "registry.k8s.io/kube-scheduler", "newTag": "v1.28.15"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    by_chart = objects_of(template({"kubeScheduler.image.tag": "v1.28.15"}))

    for things in (by_chart, kustomize(tmp_path)):
        assert schedulers_image(things) == "registry.k8s.io/kube-scheduler:v1.28.15"


def test_volcano_crds_value_renders_their_manifests() -> None:
    command = [ensure("kubectl")["kubectl"], "kustomize", MANIFESTS / "volcano-crds"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    default, changed = (
        compared(objects_of(template({"volcanoCrds": each}))) for each in (False, True)
    )

    assert {name: changed[name] for name in changed.keys() - default.keys()} == compared(
        objects_of(made.stdout)
    )


def test_operations_auth_value_renders_its_manifests() -> None:
    command = [ensure("kubectl")["kubectl"], "kustomize", MANIFESTS / "ops-auth"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    tls = {"tls.operationsSecretName": "ops"}
    default, changed = (
        compared(objects_of(template({**tls, "operationsAuth": each})))
        for each in ("none", "tokenreview")
    )

    assert {name: changed[name] for name in changed.keys() - default.keys()} == compared(
        objects_of(made.stdout)
    )


def test_flow_control_value_renders_its_manifests() -> None:
    command = [ensure("kubectl")["kubectl"], "kustomize", MANIFESTS / "flow-control"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    default, changed = (
        compared(objects_of(template({"flowControl": each}))) for each in (False, True)
    )

    assert {name: changed[name] for name in changed.keys() - default.keys()} == compared(
        objects_of(made.stdout)
    )


def test_operations_auth_needs_tls() -> None:
    with pytest.raises(HelmRefused, match=r"operationsAuth needs tls\.operationsSecretName"):
        template({"operationsAuth": "tokenreview"})


def test_service_monitor_sends_the_token_of_its_secret() -> None:
    switched = {"monitoring.serviceMonitor.enabled": True}
    named = {**switched, "monitoring.serviceMonitor.tokenSecretName": "scraper"}
    without, with_it = (
        next(each for each in objects_of(template(one)) if each["kind"] == "ServiceMonitor")
        for one in (switched, named)
    )

    assert "authorization" not in without["spec"]["endpoints"][0]
    sent = with_it["spec"]["endpoints"][0]["authorization"]
    assert sent == {"credentials": {"name": "scraper", "key": "token"}}


def test_defaults_render_the_second_scheduler_without_its_namespace() -> None:
    made = {place(thing) for thing in objects_of(template())}
    overlay = compared(kustomized("second-scheduler")).keys()

    assert made == overlay - {f"Namespace /{HOME}"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_allowed_difference_is_needed(deployment: str) -> None:
    """No difference is allowed that does not occur."""
    overlay, chart = kustomized(deployment), objects_of(template(as_the_overlay(deployment)))

    def differs(removed: list[Callable[[Object], None]]) -> bool:
        both = copy.deepcopy((overlay, chart))
        for thing in (*both[0], *both[1]):
            for remove in removed:
                remove(thing)
        by_place = [sorted(things, key=place) for things in both]
        return by_place[0] != by_place[1]

    assert not differs(DIFFERENCES)
    needed = [each for each in DIFFERENCES if differs([d for d in DIFFERENCES if d is not each])]
    if deployment == "second-scheduler":
        assert needed == DIFFERENCES
    else:
        assert needed == [without_labels_of_crds]


def test_packaged_chart_renders_the_same(tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    (packaged,) = tmp_path.glob("gang-extender-*.tgz")

    assert template(chart=packaged) == template()
    with tarfile.open(packaged) as archive:
        names = [name for name in archive.getnames() if name.startswith("gang-extender/files/")]
    assert names
    others = [name for name in names if not name.endswith("rbac.yaml")]
    assert sorted(Path(name).name for name in others) == [
        "alerts.yaml", "dashboard.json", "flow-schemas.yaml",
    ]  # fmt: skip


# Other values


#: Sets of values: the defaults of both deployments, and all values changed.
SETS = [*DEPLOYMENTS, *(f"{name}, every value changed" for name in DEPLOYMENTS)]


@pytest.fixture(params=SETS)
def values(request: pytest.FixtureRequest) -> list[str]:
    """The Helm flags for one of the sets."""
    deployment, _, changed = request.param.partition(", ")
    if changed:
        return [f"--values={CHANGED / deployment}.yaml"]
    return [f"--set=deployment={deployment}"]


def test_chart_passes_helm_lint(values: list[str]) -> None:
    assert helm("lint", CHART, "--strict", "--quiet", *values) == ""


@pytest.fixture
def operator_kinds(create: Callable[..., list[Object]], plane: ControlPlane) -> None:
    """Minimal CRDs of the Prometheus operator."""
    for kind in ("ServiceMonitor", "PrometheusRule"):
        name = f"{kind.lower()}s"
        wanted = f"crd/{name}.monitoring.coreos.com"
        # Those of the previous test may still be terminating.
        plane.kubectl("wait", "--for=delete", wanted, "--timeout=30s")
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}},
        }
        create(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{name}.monitoring.coreos.com"},
                "spec": {
                    "group": "monitoring.coreos.com",
                    "names": {"kind": kind, "plural": name, "singular": kind.lower()},
                    "scope": "Namespaced",
                    "versions": [version],
                },
            }
        )
        plane.wait_until_established(wanted)


@pytest.mark.usefixtures("operator_kinds")
def test_rendered_objects_pass_strict_validation(
    values: list[str], plane: ControlPlane, namespace: str
) -> None:
    made = template({}, *values, namespace=namespace)
    output = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=made)

    assert len(output.splitlines()) == len(objects_of(made))


def test_objects_are_in_the_namespace_of_the_release(values: list[str]) -> None:
    made = objects_of(template({}, *values, namespace="elsewhere"))

    assert HOME not in yaml.safe_dump_all(made)
    places = {thing["metadata"].get("namespace") for thing in made}
    # The RoleBinding for delegated authentication is in kube-system.
    assert places <= {None, "elsewhere", "kube-system"}


#: Off by default, since a cluster may lack the CRDs.
MONITORING = (
    "monitoring.serviceMonitor.enabled",
    "monitoring.alerts.enabled",
    "monitoring.dashboard.enabled",
)

#: Values that apply only to the other deployment.
IGNORED_FIELD = {
    "second-scheduler": {"tls.secretName", "networkPolicy.hookClients"},
    "default-scheduler": {
        "kubeScheduler.image.repository",
        "kubeScheduler.image.tag",
        "kubeScheduler.image.digest",
        "kubeScheduler.image.pullPolicy",
        "kubeScheduler.resources",
        "kubeScheduler.extraArgs",
    },
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_value_of_the_deployment_has_an_effect(deployment: str) -> None:
    changed = yaml.safe_load((CHANGED / f"{deployment}.yaml").read_text())
    # Enough replicas for any budget, and with the optional objects.
    usual = {"deployment": deployment, "replicas": 5, **dict.fromkeys(MONITORING, True)}
    usual["tls.operationsSecretName"] = "some-other"  # operationsAuth needs it
    made = template(usual)

    def alone(path: str) -> object:
        value = changed
        for name in path.split("."):
            value = value[name]
        # It is true in those files too, since the other values have no effect without it.
        return False if path.endswith(".enabled") else value

    paths = [each.path for each in explained() if not each.is_section and each.path != "deployment"]
    same = {path for path in paths if template({**usual, path: alone(path)}) == made}
    assert same == IGNORED_FIELD[deployment]


@pytest.mark.parametrize(
    ("switch", "kind"),
    [
        ("criticalPodsQuota.enabled", "ResourceQuota"),
        ("podDisruptionBudget.enabled", "PodDisruptionBudget"),
        ("networkPolicy.enabled", "NetworkPolicy"),
    ],
)
def test_switch_removes_one_kind_of_object(switch: str, kind: str) -> None:
    usual = objects_of(template())

    assert kind in [thing["kind"] for thing in usual]
    assert objects_of(template({switch: False})) == [t for t in usual if t["kind"] != kind]


def test_there_is_no_quota_in_kube_system() -> None:
    usual, there = objects_of(template()), objects_of(template(namespace="kube-system"))

    assert len(there) == len(usual) - 1
    assert "ResourceQuota" not in {thing["kind"] for thing in there}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_recording_has_a_large_enough_volume(deployment: str) -> None:
    record = {"settings.record": "/data/recording", "settings.record-mib": 100}
    made = objects_of(template({"deployment": deployment, **record}))
    (pod,) = [t["spec"]["template"]["spec"] for t in made if t["kind"] == "Deployment"]
    (extender,) = [each for each in pod["containers"] if each["name"] == "extender"]

    assert "--record=/data/recording" in extender["args"]
    assert extender["securityContext"]["readOnlyRootFilesystem"]
    assert {"name": "recording", "mountPath": "/data/recording"} in extender["volumeMounts"]
    assert {"name": "recording", "emptyDir": {"sizeLimit": "164Mi"}} in pod["volumes"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_monitoring_objects_are_those_of_the_component(deployment: str, tmp_path: Path) -> None:
    overlay = {
        "resources": [str(MANIFESTS / "overlays" / deployment)],
        "components": [str(MANIFESTS / "monitoring")],
    }
    # kustomize accepts only relative paths.
    overlay = {
        key: [os.path.relpath(path, tmp_path) for path in paths] for key, paths in overlay.items()
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    command = [ensure("kubectl")["kubectl"], "kustomize", tmp_path]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    switched = {**as_the_overlay(deployment), **dict.fromkeys(MONITORING, True)}

    assert compared(objects_of(template(switched))) == compared(objects_of(made.stdout))


def test_service_monitor_trusts_the_ca_of_the_operations_port() -> None:
    switched = {"monitoring.serviceMonitor.enabled": True, "tls.operationsSecretName": "ops"}
    made = objects_of(template(switched, namespace="elsewhere"))
    (monitor,) = [thing for thing in made if thing["kind"] == "ServiceMonitor"]

    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "serverName": "gang-extender.elsewhere.svc",
        "ca": {"secret": {"name": "ops", "key": "ca.crt"}},
    }


def test_single_replica_has_no_disruption_budget() -> None:
    made = objects_of(template({"replicas": 1}))

    assert "PodDisruptionBudget" not in [thing["kind"] for thing in made]


def test_arguments_of_the_extender_follow_the_values(values: list[str]) -> None:
    made = objects_of(template({}, *values))
    given = computed(values)
    arguments = containers(made)[0]["args"]

    assert arguments[0] == "serve"
    settings = settings_of(arguments[1:])
    for name, value in given["settings"].items():
        value = tuple(value) if isinstance(value, list) else value
        assert getattr(settings, name.replace("-", "_")) == value, name
    assert set(settings.scheduler_name) >= set(given["schedulerNames"])
    own = given["deployment"] == "default-scheduler"
    assert ("default-scheduler" in settings.scheduler_name) == own
    assert settings.exempt_namespace == tuple(given["exemptNamespaces"])
    assert bool(settings.config) == bool(given["policy"])
    # All other settings have their defaults.
    of_values = {name.replace("-", "_") for name in given["settings"]}
    for each in fields(Settings):
        if each.name not in of_values | OF_THE_CHART:
            assert getattr(settings, each.name) == each.default


def settings_of(arguments: list[str]) -> Settings:
    return Settings(**main.commands["serve"].make_context("serve", [*arguments]).params)


def computed(flags: list[str]) -> Values:
    """Return the values that Helm computes from *flags*, without merging maps."""
    (given,) = (flag.removeprefix("--") for flag in flags)
    kind, _, what = given.partition("=")
    name, _, value = what.partition("=")
    changed = {name: value} if kind == "set" else yaml.safe_load(Path(what).read_text())
    return {**yaml.safe_load(VALUES.read_text()), **changed}


def containers(made: list[Object]) -> list[Object]:
    (deployment,) = [thing for thing in made if thing["kind"] == "Deployment"]
    found: list[Object] = deployment["spec"]["template"]["spec"]["containers"]
    return found


#: Values, and the equivalent flags of `scheduler-config`.
CONFIGURATIONS: dict[str, tuple[Values, list[str]]] = {
    "none": ({}, []),
    "one name": ({"schedulerNames": ["batch"]}, ["--scheduler-name=batch"]),
    "names": (
        {"schedulerNames": ["volcano", "my.batch-2"]},
        ["--scheduler-name=volcano", "--scheduler-name=my.batch-2"],
    ),
    "times": (
        {"settings": {"bind-timeout-s": 100, "filter-timeout-s": 1.25, "hold-s": 80}},
        ["--bind-timeout-s=100", "--filter-timeout-s=1.25"],
    ),
    "long times": ({"settings": {"bind-timeout-s": 100000}}, ["--bind-timeout-s=100000"]),
    "packing": ({"settings": {"prefer": "pack"}}, ["--prefer=pack"]),
    "nothing preferred": ({"settings": {"prefer": "nothing"}}, ["--prefer=nothing"]),
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("namespace_of_release", [HOME, "batch"])
def test_scheduler_configuration_is_what_the_command_prints(
    configuration: str, namespace_of_release: str
) -> None:
    given, flags = CONFIGURATIONS[configuration]
    flags = ["--leader-elect", f"--lease-namespace={namespace_of_release}", *flags]
    printed = CliRunner().invoke(main, ["scheduler-config", *flags])

    assert printed.exit_code == 0, printed.output
    assert scheduler_config(template(given, namespace=namespace_of_release)) == printed.output


def scheduler_config(made: str) -> str:
    (config,) = [thing for thing in objects_of(made) if thing["kind"] == "ConfigMap"]
    text: str = config["data"]["scheduler-config.yaml"]
    return text


@pytest.mark.parametrize("name", ["true", "null", "12", "1e3"])
def test_scheduler_name_that_looks_like_a_yaml_value_is_quoted(name: str) -> None:
    made = template({"schedulerNames": [name]})
    config = yaml.safe_load(scheduler_config(made))

    assert config["profiles"] == [{"schedulerName": name}]
    assert config["leaderElection"]["resourceName"] == name
    assert name in lease_names(objects_of(made))


@pytest.mark.parametrize("values", [{}, {"schedulerNames": ["batch", "volcano"]}], ids=str)
def test_scheduler_extender_and_role_name_the_same_lease(values: Values) -> None:
    made = template(values, namespace="batch")
    election = yaml.safe_load(scheduler_config(made))["leaderElection"]
    settings = settings_of(containers(objects_of(made))[0]["args"][1:])

    name, namespace = election["resourceName"], election["resourceNamespace"]
    assert (settings.lease_name, settings.lease_namespace) == (name, namespace)
    assert lease_names(objects_of(made)) == {name}
    assert namespace == "batch"


def lease_names(made: list[Object]) -> set[str]:
    """Return the leases that Roles name."""
    rules = [rule for thing in made if thing["kind"] == "Role" for rule in thing["rules"]]
    return {name for rule in rules for name in rule.get("resourceNames", [])}


def test_changed_configuration_replaces_the_pods() -> None:
    def annotations(values: Values) -> object:
        (deployment,) = [t for t in objects_of(template(values)) if t["kind"] == "Deployment"]
        return deployment["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({"replicas": 3})
    assert annotations({}) != annotations({"settings": {"prefer": "pack"}})


# Refused values


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replica": 3}, "at '': additional properties 'replica' not allowed"),
        ({"image.tga": "v1"}, "at '/image': additional properties 'tga' not allowed"),
        ({"settings.hold": 3}, "at '/settings': additional properties 'hold' not allowed"),
        ({"settings.listen": "0.0.0.0:1"}, "at '/settings': additional properties 'listen'"),
        ({"settings.hold-s": "long"}, "at '/settings/hold-s': got string, want number"),
        ({"settings.prefer": "best"}, "'/settings/prefer': value must be one of 'nothing', 'pack'"),
        ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
        ({"replicas": None}, "at '': missing property 'replicas'"),
        (
            {"deployment": "third"},
            "at '/deployment': value must be one of 'second-scheduler', 'default-scheduler'",
        ),
        (
            {"deployment": "default-scheduler", "tls.secretName": ""},
            "deployment default-scheduler needs tls.secretName, a Secret with tls.crt, tls.key and"
            " ca.crt: `gang-extender certificates --kubernetes-secrets` makes it",
        ),
        ({"schedulerNames": []}, "at '/schedulerNames': minItems: got 0, want 1"),
        ({"image.digest": "sha256:12"}, "at '/image/digest': 'sha256:12' does not match pattern"),
        ({"networkPolicy.hookClients": []}, "at '/networkPolicy/hookClients': minItems"),
        (
            {"podDisruptionBudget.minAvailable": 2},
            "podDisruptionBudget.minAvailable 2 of 2 replicas would block every drain",
        ),
        (
            {"podLabels": {"app.kubernetes.io/name": "mine"}},
            "podLabels may not set app.kubernetes.io/name: selectors of the chart use it",
        ),
        (
            {"replicas": 10},
            "criticalPodsQuota.pods 10 leaves no room to replace one of 10 replicas; raise it",
        ),
        (
            {"schedulerNames": ["gang-scheduler", "default-scheduler"]},
            "schedulerNames may not contain default-scheduler here: the cluster's own"
            " kube-scheduler schedules those pods too",
        ),
        (
            {"deployment": "default-scheduler", "priorityClassName": "batch"},
            "the extender's own pods would wait for the extender; set priorityClassName"
            " system-cluster-critical, or add gang-system to exemptNamespaces",
        ),
        ({"settings.record": "data"}, "settings.record data is not an absolute path"),
    ],
    ids=str,
)
def test_invalid_value_is_refused_with_a_message(values: Values, why: str) -> None:
    with pytest.raises(HelmRefused) as refusal:
        template(values)

    assert why in str(refusal.value)


def test_exempt_namespace_needs_no_system_priority_class() -> None:
    values: Values = {"deployment": "default-scheduler", "priorityClassName": ""}

    assert template(values, namespace="kube-system")
    assert template({**values, "exemptNamespaces": [HOME]})


def test_invalid_value_is_refused_as_documented() -> None:
    page = (CHART.parents[1] / "docs" / "install.md").read_text()
    (shown,) = [block for block in page.split("```") if "\nError:" in block]
    command, *message = shown.removeprefix("console\n$ helm ").strip().splitlines()
    with pytest.raises(HelmRefused) as refusal:
        helm(*command.replace("manifests/chart", str(CHART)).split())

    assert str(refusal.value).strip().splitlines() == message


# Notes


def notes(*flags: str, namespace: str = HOME) -> str:
    shown = helm("install", "x", CHART, "--dry-run=client", "-ojson", f"-n{namespace}", *flags)
    text: str = json.loads(shown)["info"]["notes"]
    return text


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.startswith("  ")]


def test_notes_of_the_second_scheduler_name_the_objects(values: list[str]) -> None:
    made = {(t["kind"], t["metadata"]["name"]) for t in objects_of(template({}, *values))}
    shown = commands(notes(*values))

    (rollout,) = [words for words in shown if words[:2] == ["kubectl", "rollout"]]
    assert ("Deployment", rollout[-1]) in made
    for words in shown:
        if words[0] == "kubectl" and "--namespace" in words:
            assert words[words.index("--namespace") + 1] == HOME


@pytest.mark.parametrize(
    "flags",
    [["--set=deployment=default-scheduler"], [f"--values={CHANGED / 'default-scheduler'}.yaml"]],
    ids=["usual", "changed"],
)
def test_notes_of_the_default_scheduler_print_a_matching_configuration(
    flags: list[str],
) -> None:
    made = objects_of(template({}, *flags, namespace="batch"))
    settings = settings_of(containers(made)[0]["args"][1:])
    text = notes(*flags, namespace="batch")
    lookup = (
        "$(kubectl get service --namespace batch gang-extender --output jsonpath={.spec.clusterIP})"
    )
    (words,) = [
        words
        for words in commands(text.replace(lookup, "10.0.0.77"))
        if words[:2] == ["gang-extender", "scheduler-config"]
    ]
    printed = CliRunner().invoke(main, words[1:])

    assert printed.exit_code == 0, printed.output
    config = yaml.safe_load(printed.output)
    assert [p["schedulerName"] for p in config["profiles"]] == [*settings.scheduler_name]
    filters, binds = config["extenders"]
    assert filters["httpTimeout"] == f"{settings.filter_timeout_s:g}s"
    assert binds["httpTimeout"] == f"{settings.bind_timeout_s:g}s"
    assert ("prioritizeVerb" in filters) == (settings.prefer != "nothing")
    assert filters["urlPrefix"] == "https://10.0.0.77:8888"
    assert filters["tlsConfig"]["serverName"] == "gang-extender.batch.svc"
