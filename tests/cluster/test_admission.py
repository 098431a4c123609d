"""The admission policies on the real API server: what they refuse and warn about."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests import objects

from .api import Api, ApiError, Object
from .control_plane import MANIFESTS, ControlPlane
from .reported import wait_until_running
from .train_gang import gang, running_pair
from .waiting import wait_for

ADMISSION = MANIFESTS / "admission"
STARTED_IN = "gang-extender.io/started-in"
SCHEDULER = "guarded-scheduler"
EDIT = "system:aggregate-to-edit"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def guarded(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """A control plane of its own: policies apply to all its users, and take time to apply."""
    with ControlPlane(tmp_path_factory.mktemp("guarded")) as plane:
        plane.install()
        plane.kubectl("apply", "-k", ADMISSION)
        _wait_until_policies_apply(plane.api)
        yield plane


def _wait_until_policies_apply(api: Api) -> None:
    """Wait until each policy applies: the API server reads them a moment after the write."""
    api.create(objects.namespace("probe"))
    tenant = _tenant(api, "probe")

    def all_apply() -> bool:
        marked = objects.pod("probe", "probe", annotations={STARTED_IN: "x"})
        hard = objects.pod_group("hard", "probe", 1, networkTopology={})
        soft = objects.pod_group(
            f"soft-{secrets.token_hex(2)}", "probe", 1, networkTopology={"mode": "soft"}
        )
        assert _is_refused(api, objects.queue("probe", parent="probe")), "queues"
        assert _is_refused(api, hard), "pod groups"
        assert api.create_with_warnings(soft), "ignored field"
        assert _is_refused(tenant, marked), "started in"
        assert _is_refused(tenant, sized("probe", "labels", 257)), "pod sizes"
        return True

    def check() -> bool:
        try:
            return all_apply()
        finally:
            api.delete(objects.QUEUES, "probe")
            api.delete(objects.POD_GROUPS, "hard", "probe")
            api.delete("pods", "probe", "probe", grace_seconds=0)

    wait_for(check, 20, "all policies apply", every_s=0.2)


def _is_refused(api: Api, wanted: Object) -> bool:
    try:
        api.create(wanted)
    except ApiError as error:
        return "ValidatingAdmissionPolicy" in str(error)
    return False


def _tenant(api: Api, namespace: str) -> Api:
    """Return a client with the permissions of the stock role `edit` in *namespace* alone.

    A controller aggregates that role, and none runs here, so the part for pods is bound.
    """
    about = {"name": "tenant", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    api.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": EDIT},
            "subjects": [{"kind": "ServiceAccount", **about}],
        },
    )
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/tenant/token"
    tenant = api.with_token(api.request("POST", path, asked)["status"]["token"])

    def has_rights() -> bool:
        tenant.delete("pods", "missing", namespace)
        return True

    # The authorizer reads the binding a moment after it is written.
    wait_for(has_rights, 20, "the tenant has its permissions")
    return tenant


@pytest.fixture
def api(guarded: ControlPlane) -> Api:
    return guarded.api


@pytest.fixture
def plane(guarded: ControlPlane) -> ControlPlane:
    return guarded


@pytest.fixture
def tenant(api: Api, namespace: str) -> Api:
    return _tenant(api, namespace)


@pytest.fixture(autouse=True)
def delete_queues(api: Api) -> Iterator[None]:
    """Delete the queues of each test: their guarantees would reserve capacity in the next."""
    yield
    api.delete_all(objects.QUEUES)


def queue(**spec: Any) -> Object:
    return objects.queue(f"q-{secrets.token_hex(3)}", **spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"guarantee": {"resource": {"cpu": "4", "memory": "1Gi"}}, "capability": {"cpu": 3}},
            "spec.guarantee.resource is above spec.capability in cpu;",
            id="guarantee above capability",
        ),
        pytest.param(
            {"guarantee": {"resource": {"cpu": "1500m"}}, "capability": {"cpu": "1.4"}},
            "spec.guarantee.resource is above spec.capability in cpu;",
            id="other notation",
        ),
        pytest.param(
            {"guarantee": {"resource": {"a.b/gpu": 1}}, "capability": {"a.b/gpu": "0"}},
            "spec.guarantee.resource is above spec.capability in a.b/gpu;",
            id="no devices at all",
        ),
        pytest.param(
            {"deserved": {"memory": "2Gi"}, "capability": {"memory": "1Gi"}},
            "spec.deserved is above spec.capability in memory;",
            id="deserved above capability",
        ),
        # Our CRDs refuse most of these before; Volcano's own accept any text.
        pytest.param({"capability": {"cpu": "much"}}, "spec.capability.cpu", id="no number"),
        pytest.param(
            {"capability": {"cpu": "1e99999999999999999999"}},
            "the quantity of cpu cannot be parsed",
            id="unreadable",
        ),
        pytest.param({"deserved": {"cpu": "-1"}}, "the quantity of cpu is negative", id="negative"),
    ],
)
def test_queue_with_contradictory_fields_is_refused(
    api: Api, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        api.create(queue(**spec))

    assert words in str(refusal.value)


def test_queue_as_its_own_parent_is_refused(api: Api) -> None:
    with pytest.raises(ApiError, match="names the queue itself"):
        api.create(objects.queue("loop", parent="loop"))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="empty"),
        pytest.param(
            {
                "guarantee": {"resource": {"cpu": "4", "memory": "64Gi"}},
                "deserved": {"cpu": "4"},
                "capability": {"cpu": "4", "a.b/gpu": "0"},
                "parent": "root",
            },
            id="all within the capability, where it limits",
        ),
        pytest.param(
            {"guarantee": {"resource": {"cpu": 1}}, "capability": {"cpu": "0"}},
            id="a capability of no cpu is no limit",
        ),
    ],
)
def test_valid_queue_is_accepted_without_warning(api: Api, spec: dict[str, Any]) -> None:
    assert api.create_with_warnings(queue(**spec)) == []


def test_invalid_queue_of_earlier_can_be_labelled_and_corrected(
    plane: ControlPlane, api: Api
) -> None:
    name = "gang-extender-queues"
    binding = api.get(BINDINGS, name)
    api.delete(BINDINGS, name)
    old = queue(guarantee={"resource": {"cpu": 4}}, capability={"cpu": 3})
    wait_for(lambda: api.create(old), 20, "the policy is off", every_s=0.2)
    api.create({**binding, "metadata": {"name": name}})
    wait_for(
        lambda: _is_refused(api, queue(**old["spec"])), 20, "the policy applies again", every_s=0.2
    )

    name = old["metadata"]["name"]
    api.patch(objects.QUEUES, name, {"metadata": {"labels": {"seen": "yes"}}})
    api.patch(objects.QUEUES, name, {"status": {"state": "Open"}}, subresource="status")
    with pytest.raises(ApiError, match="is above"):
        api.patch(objects.QUEUES, name, {"spec": {"capability": {"cpu": "3500m"}}})
    api.patch(objects.QUEUES, name, {"spec": {"capability": {"cpu": "4"}}})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"networkTopology": {"mode": "hard"}}, "mode hard", id="hard"),
        pytest.param({"networkTopology": {"highestTierAllowed": 1}}, "mode hard", id="no mode"),
        pytest.param({"subGroupPolicy": [{"name": "x"}]}, "spec.subGroupPolicy", id="sub-groups"),
        pytest.param({"minTaskMember": {"worker": -1}}, "spec.minTaskMember", id="negative"),
    ],
)
def test_pod_group_that_can_never_start_is_refused(
    api: Api, namespace: str, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        api.create(objects.pod_group("odd", namespace, 2, **spec))

    assert words in str(refusal.value)


def test_pod_group_with_ignored_fields_is_accepted_with_warnings(api: Api, namespace: str) -> None:
    soft = objects.pod_group("soft", namespace, 0, networkTopology={"mode": "soft"})
    soft["metadata"]["annotations"] = {"volcano.sh/cooldown-time": "60s"}

    warnings = " ".join(api.create_with_warnings(soft))

    assert "spec.networkTopology of mode soft has no effect here" in warnings
    assert "spec.minMember is 0" in warnings
    assert "annotations without effect here: volcano.sh/cooldown-time" in warnings
    assert api.get(objects.POD_GROUPS, "soft", namespace)["spec"]["networkTopology"]


def test_ordinary_pod_group_is_accepted_without_warning(api: Api, namespace: str) -> None:
    plain = objects.pod_group("plain", namespace, 2, minTaskMember={"worker": 2})

    assert api.create_with_warnings(plain) == []


def test_queue_with_ignored_fields_is_accepted_with_warnings(api: Api) -> None:
    strict = queue(
        dequeueStrategy="fifo",
        type="x",
        extendClusters=[{"name": "far"}],
        affinity={"nodeGroupAffinity": {}},
    )

    warnings = " ".join(api.create_with_warnings(strict))

    for word in ("dequeueStrategy", "affinity", "extendClusters", "type"):
        assert f"spec.{word} has no effect here" in warnings
    assert api.create_with_warnings(queue(dequeueStrategy="traverse")) == []


def test_tenant_may_not_set_change_or_remove_the_started_in_annotation(
    api: Api, tenant: Api, namespace: str
) -> None:
    mark = {"metadata": {"annotations": {STARTED_IN: "else"}}}
    tenant.create(objects.pod("plain", namespace))
    with pytest.raises(ApiError, match="only a caller that may create pods/binding"):
        tenant.create(objects.pod("annotated", namespace, annotations={STARTED_IN: "x"}))
    with pytest.raises(ApiError, match="only a caller that may create pods/binding"):
        tenant.patch("pods", "plain", mark, namespace)

    # An administrator may: pods that are restored from a backup have the annotation.
    api.create(objects.pod("marked", namespace, annotations={STARTED_IN: "x"}))
    for other in ("else", None):
        change = {"metadata": {"annotations": {STARTED_IN: other}}}
        with pytest.raises(ApiError, match="only a caller that may create pods/binding") as refusal:
            tenant.patch("pods", "marked", change, namespace)
        assert refusal.value.status == 403
    tenant.patch("pods", "marked", {"metadata": {"labels": {"mine": "yes"}}}, namespace)


def test_status_patches_and_legacy_bindings_may_not_set_the_started_in_annotation(
    api: Api, tenant: Api, namespace: str
) -> None:
    rbac = "rbac.authorization.k8s.io"
    about = {"name": "more", "namespace": namespace}
    rules = [
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["bindings"], "verbs": ["create"]},
    ]
    api.create(
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": about, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "more"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
        },
    )
    tenant.create(objects.pod("plain", namespace))
    mark = {"metadata": {"annotations": {STARTED_IN: "else"}}}

    def refused(subresource: bool) -> bool:
        try:
            if subresource:
                tenant.patch("pods", "plain", mark, namespace, subresource="status")
            else:
                binding = {"target": {"kind": "Node", "name": "n"}, "metadata": {"name": "plain"}}
                binding["metadata"].update(mark["metadata"])
                path = f"/api/v1/namespaces/{namespace}/bindings"
                whole = {"apiVersion": "v1", "kind": "Binding", **binding}
                tenant.request("POST", path, whole)
        except ApiError as error:
            return "only a caller that may create pods/binding" in str(error)
        return False

    # The authorizer reads the role a moment after it is written.
    wait_for(lambda: refused(True), 10, "a status patch sets no annotation")
    wait_for(lambda: refused(False), 10, "a legacy binding sets no annotation")
    assert STARTED_IN not in api.get("pods", "plain", namespace)["metadata"].get("annotations", {})


def test_binds_of_the_extender_set_the_started_in_annotation(
    plane: ControlPlane, api: Api, namespace: str, nodes: Any
) -> None:
    pool = nodes(1, cpu="4")
    with running_pair(plane, scheduler_name=SCHEDULER):
        gang(api, "train", namespace, 3, pool, scheduler=SCHEDULER)
        wait_until_running(api, "train", namespace, 3)

    for index in range(3):
        pod = api.get("pods", f"train-{index}", namespace)
        assert pod["metadata"]["annotations"][STARTED_IN] == "default"


def sized(namespace: str, what: str, number: int) -> Object:
    """Return a pod with *number* items in the field *what*."""
    pod = objects.pod("probe", namespace)
    container = pod["spec"]["containers"][0]
    if what == "labels":
        pod["metadata"]["labels"] = {f"l{each}": "" for each in range(number)}
    elif what == "resources":
        container["resources"] = {"limits": {f"r.example/{each}": "1" for each in range(number)}}
    elif what == "ports":
        container["ports"] = [{"containerPort": 1 + each} for each in range(number)]
    elif what == "tolerations":
        pod["spec"]["tolerations"] = [
            {"key": f"k{each}", "operator": "Exists"} for each in range(number)
        ]
    elif what == "selector":
        pod["spec"]["nodeSelector"] = {f"l{each}": "" for each in range(number)}
    else:
        within = {"key": "k", "operator": "In", "values": ["a"]}
        terms = [{"matchExpressions": [within]} for _ in range(number // 3)]
        required = {"nodeSelectorTerms": terms}
        preferred = [{"weight": 1, "preference": term} for term in terms]
        pod["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            if what == "affinity"
            else {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        }
    return pod


@pytest.mark.parametrize(
    ("what", "limit", "words"),
    [
        ("labels", 256, "more than 256 labels; move those that no selector uses to annotations"),
        ("resources", 250, "more than 256 limits in all containers together"),
        ("ports", 256, "more than 256 ports in all containers together"),
        # The API server adds two of its own.
        ("tolerations", 254, "more than 256 tolerations; one with operator Exists"),
        ("selector", 128, "more than 128 labels in the nodeSelector"),
        ("affinity", 999, "more than 1000 terms, expressions and values in the node affinity"),
        ("preferences", 999, "more than 1000 terms, expressions and values in the node affinity"),
    ],
)
def test_pod_that_exceeds_a_size_limit_is_refused(
    tenant: Api, namespace: str, what: str, limit: int, words: str
) -> None:
    with pytest.raises(ApiError, match=words):
        tenant.create(sized(namespace, what, limit + 10))
    tenant.create(sized(namespace, what, limit))


def test_labels_may_not_grow_beyond_the_limit_later(tenant: Api, namespace: str) -> None:
    tenant.create(objects.pod("grows", namespace))

    def label(*names: str) -> None:
        marks = {"metadata": {"labels": dict.fromkeys(names, "")}}
        tenant.patch("pods", "grows", marks, namespace)

    label(*(f"l{number}" for number in range(200)))
    with pytest.raises(ApiError, match="more than 256 labels"):
        label(*(f"m{number}" for number in range(200)))


def _tolerations(pod: Object, number: int) -> Object:
    """Return the tolerations of *pod* and *number* more: existing ones may not be removed."""
    more = [{"key": f"more-{each}", "operator": "Exists"} for each in range(number)]
    return {"spec": {"tolerations": [*pod["spec"]["tolerations"], *more]}}


def test_tolerations_may_not_grow_beyond_the_limit_later(tenant: Api, namespace: str) -> None:
    pod = tenant.create(objects.pod("grows", namespace))[0]

    tenant.patch("pods", "grows", _tolerations(pod, 200), namespace)
    with pytest.raises(ApiError, match="more than 256 tolerations"):
        tenant.patch("pods", "grows", _tolerations(pod, 300), namespace)


@pytest.mark.parametrize(
    ("what", "limit", "words"),
    [
        ("selector", 128, "more than 128 labels in the nodeSelector"),
        ("affinity", 999, "more than 1000 terms, expressions and values in the node affinity"),
        ("preferences", 999, "more than 1000 terms, expressions and values in the node affinity"),
    ],
)
def test_node_selector_of_a_gated_pod_may_not_grow_beyond_the_limit_later(
    tenant: Api, namespace: str, what: str, limit: int, words: str
) -> None:
    field = "nodeSelector" if what == "selector" else "affinity"
    for number in (limit, limit + 10):
        gates = [{"name": "example.com/wait"}]
        tenant.create(objects.pod(f"grows-{number}", namespace, schedulingGates=gates))

    def grow(number: int) -> None:
        asked = sized(namespace, what, number)["spec"][field]
        tenant.patch("pods", f"grows-{number}", {"spec": {field: asked}}, namespace)

    grow(limit)
    with pytest.raises(ApiError, match=words):
        grow(limit + 10)


def test_oversized_pod_of_earlier_can_be_annotated(api: Api, tenant: Api, namespace: str) -> None:
    name = "gang-extender-pod-sizes"
    binding = api.get(BINDINGS, name)
    api.delete(BINDINGS, name)
    old = sized(namespace, "tolerations", 300)
    wait_for(lambda: tenant.create(old), 20, "the policy is off", every_s=0.2)
    api.create({**binding, "metadata": {"name": name}})
    another = sized(namespace, "labels", 257)
    wait_for(lambda: _is_refused(tenant, another), 20, "the policy applies again", every_s=0.2)

    name = old["metadata"]["name"]
    tenant.patch("pods", name, {"metadata": {"annotations": {"seen": "yes"}}}, namespace)
    more = _tolerations(api.get("pods", name, namespace), 1)
    with pytest.raises(ApiError, match="more than 256 tolerations"):
        tenant.patch("pods", name, more, namespace)


def test_pod_with_minimal_fields_is_accepted(tenant: Api, namespace: str) -> None:
    """Most of the counted fields are optional; a missing one counts as empty."""
    pod = objects.pod("bare", namespace)
    del pod["spec"]["containers"][0]["resources"]
    pod["metadata"].pop("labels", None)
    pod["spec"].pop("tolerations", None)
    pod["spec"]["initContainers"] = [{"name": "first", "image": "none"}]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    terms = [{"weight": 1, "preference": term}]
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    }
    tenant.create(pod)
