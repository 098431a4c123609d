"""The admission policies on the real API server: what they refuse, what they warn about."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests import objects

from .api import Api, ApiError, Object
from .control_plane import MANIFESTS, ControlPlane
from .stage import gang, running_pair
from .telling import wait_until_running
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
    """A control plane of its own: policies hold for everybody on it, and come and go slowly."""
    with ControlPlane(tmp_path_factory.mktemp("guarded")) as plane:
        plane.install()
        plane.kubectl("apply", "-k", ADMISSION)
        _wait_until_all_policies_hold(plane.api)
        yield plane


def _wait_until_all_policies_hold(api: Api) -> None:
    """Every policy is heard of: the API server reads them a moment after they are written."""
    api.create(objects.namespace("probe"))
    tenant = _tenant(api, "probe")

    def holds() -> bool:
        marked = objects.pod("probe", "probe", annotations={STARTED_IN: "x"})
        hard = objects.pod_group("hard", "probe", 1, networkTopology={})
        soft = objects.pod_group(
            f"soft-{secrets.token_hex(2)}", "probe", 1, networkTopology={"mode": "soft"}
        )
        assert _is_refused(api, objects.queue("probe", parent="probe")), "queues"
        assert _is_refused(api, hard), "pod groups"
        assert api.warned(soft), "without effect"
        assert _is_refused(tenant, marked), "started in"
        assert _is_refused(tenant, sized("probe", "labels", 257)), "pod sizes"
        return True

    def settle() -> bool:
        try:
            return holds()
        finally:
            api.delete(objects.QUEUES, "probe")
            api.delete(objects.POD_GROUPS, "hard", "probe")
            api.delete("pods", "probe", "probe", grace_seconds=0)

    wait_for(settle, 20, "all policies hold", every_s=0.2)


def _is_refused(api: Api, wanted: Object) -> bool:
    try:
        api.create(wanted)
    except ApiError as error:
        return "ValidatingAdmissionPolicy" in str(error)
    return False


def _tenant(api: Api, namespace: str) -> Api:
    """Somebody with the rights of the stock role `edit` in *namespace*, and nowhere else.

    That role itself is put together by a controller, and none runs here.
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
    tenant = api.as_another(api.request("POST", path, asked)["status"]["token"])

    def has_rights() -> bool:
        tenant.delete("pods", "nobody", namespace)
        return True

    # The API server reads whom it has given rights a moment after that was written.
    wait_for(has_rights, 20, "the tenant has its rights")
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
def no_queue_stays(api: Api) -> Iterator[None]:
    """What one test guarantees to nobody would be kept from the gangs of the next."""
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
            id="in other words",
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
        # Our CRDs refuse most of these before; Volcano's own take any words.
        pytest.param({"capability": {"cpu": "much"}}, "spec.capability.cpu", id="no number"),
        pytest.param(
            {"capability": {"cpu": "1e99999999999999999999"}},
            "no amount of cpu can be read",
            id="unreadable",
        ),
        pytest.param({"deserved": {"cpu": "-1"}}, "an amount of cpu is negative", id="negative"),
    ],
)
def test_a_queue_that_makes_no_sense_by_itself_is_refused(
    api: Api, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        api.create(queue(**spec))

    assert words in str(refusal.value)


def test_a_queue_may_not_be_its_own_parent(api: Api) -> None:
    with pytest.raises(ApiError, match="names the queue itself"):
        api.create(objects.queue("narcissus", parent="narcissus"))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing said"),
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
def test_a_queue_that_makes_sense_is_taken(api: Api, spec: dict[str, Any]) -> None:
    assert api.warned(queue(**spec)) == []


def test_a_queue_that_was_senseless_before_can_still_be_labelled_and_mended(
    plane: ControlPlane, api: Api
) -> None:
    name = "gang-extender-queues"
    binding = api.get(BINDINGS, name)
    api.delete(BINDINGS, name)
    old = queue(guarantee={"resource": {"cpu": 4}}, capability={"cpu": 3})
    wait_for(lambda: api.create(old), 20, "nobody refuses it", every_s=0.2)
    api.create({**binding, "metadata": {"name": name}})
    wait_for(lambda: _is_refused(api, queue(**old["spec"])), 20, "it holds again", every_s=0.2)

    called = old["metadata"]["name"]
    api.patch(objects.QUEUES, called, {"metadata": {"labels": {"seen": "yes"}}})
    api.patch(objects.QUEUES, called, {"status": {"state": "Open"}}, subresource="status")
    with pytest.raises(ApiError, match="is above"):
        api.patch(objects.QUEUES, called, {"spec": {"capability": {"cpu": "3500m"}}})
    api.patch(objects.QUEUES, called, {"spec": {"capability": {"cpu": "4"}}})


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"networkTopology": {"mode": "hard"}}, "mode hard", id="hard"),
        pytest.param({"networkTopology": {"highestTierAllowed": 1}}, "mode hard", id="no mode"),
        pytest.param({"subGroupPolicy": [{"name": "x"}]}, "spec.subGroupPolicy", id="sub-groups"),
        pytest.param({"minTaskMember": {"worker": -1}}, "spec.minTaskMember", id="negative"),
    ],
)
def test_a_pod_group_that_could_never_start_is_refused(
    api: Api, namespace: str, spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        api.create(objects.pod_group("odd", namespace, 2, **spec))

    assert words in str(refusal.value)


def test_what_has_no_effect_in_a_pod_group_is_warned_about_and_taken(
    api: Api, namespace: str
) -> None:
    wishful = objects.pod_group("wishful", namespace, 0, networkTopology={"mode": "soft"})
    wishful["metadata"]["annotations"] = {"volcano.sh/cooldown-time": "60s"}

    said = " ".join(api.warned(wishful))

    assert "spec.networkTopology of mode soft has no effect here" in said
    assert "spec.minMember is 0" in said
    assert "annotations without effect here: volcano.sh/cooldown-time" in said
    assert api.get(objects.POD_GROUPS, "wishful", namespace)["spec"]["networkTopology"]


def test_an_ordinary_pod_group_is_taken_without_a_word(api: Api, namespace: str) -> None:
    plain = objects.pod_group("plain", namespace, 2, minTaskMember={"worker": 2})

    assert api.warned(plain) == []


def test_what_has_no_effect_in_a_queue_is_warned_about_and_taken(api: Api) -> None:
    strict = queue(
        dequeueStrategy="fifo",
        type="x",
        extendClusters=[{"name": "far"}],
        affinity={"nodeGroupAffinity": {}},
    )

    said = " ".join(api.warned(strict))

    for word in ("dequeueStrategy", "affinity", "extendClusters", "type"):
        assert f"spec.{word} has no effect here" in said
    assert api.warned(queue(dequeueStrategy="traverse")) == []


def test_a_tenant_may_neither_bring_nor_change_nor_drop_where_a_pod_was_started(
    api: Api, tenant: Api, namespace: str
) -> None:
    mark = {"metadata": {"annotations": {STARTED_IN: "else"}}}
    tenant.create(objects.pod("plain", namespace))
    with pytest.raises(ApiError, match="is written by who binds the pod"):
        tenant.create(objects.pod("brought", namespace, annotations={STARTED_IN: "x"}))
    with pytest.raises(ApiError, match="is written by who binds the pod"):
        tenant.patch("pods", "plain", mark, namespace)

    # Who may do anything may do this: what is restored from a backup has the mark.
    api.create(objects.pod("marked", namespace, annotations={STARTED_IN: "x"}))
    for other in ("else", None):
        change = {"metadata": {"annotations": {STARTED_IN: other}}}
        with pytest.raises(ApiError, match="is written by who binds the pod") as refusal:
            tenant.patch("pods", "marked", change, namespace)
        assert refusal.value.status == 403
    tenant.patch("pods", "marked", {"metadata": {"labels": {"mine": "yes"}}}, namespace)


def test_who_may_write_a_status_may_not_slip_the_mark_in_nor_who_may_only_bind_the_old_way(
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
            return "is written by who binds the pod" in str(error)
        return False

    # The authorizer hears of the role a moment after it was written.
    wait_for(lambda: refused(True), 10, "the status of a pod brings no mark")
    wait_for(lambda: refused(False), 10, "a binding of the old way brings no mark")
    assert STARTED_IN not in api.get("pods", "plain", namespace)["metadata"].get("annotations", {})


def test_our_own_binds_still_mark_the_pods_of_a_gang(
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
    """A pod with so much of something."""
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
        wished = [{"weight": 1, "preference": term} for term in terms]
        pod["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            if what == "affinity"
            else {"preferredDuringSchedulingIgnoredDuringExecution": wished}
        }
    return pod


@pytest.mark.parametrize(
    ("what", "most", "words"),
    [
        ("labels", 256, "more than 256 labels; keep what nobody selects by in annotations"),
        ("resources", 250, "more than 256 limits in all containers together"),
        ("ports", 256, "more than 256 ports in all containers together"),
        # The API server adds two of its own.
        ("tolerations", 254, "more than 256 tolerations; one with operator Exists"),
        ("selector", 128, "more than 128 labels in the nodeSelector"),
        ("affinity", 999, "more than 1000 terms, expressions and values in the node affinity"),
        ("wishes", 999, "more than 1000 terms, expressions and values in the node affinity"),
    ],
)
def test_a_pod_that_would_stop_kube_scheduler_by_its_size_is_refused(
    tenant: Api, namespace: str, what: str, most: int, words: str
) -> None:
    with pytest.raises(ApiError, match=words):
        tenant.create(sized(namespace, what, most + 10))
    tenant.create(sized(namespace, what, most))


def test_labels_may_not_grow_beyond_the_bound_later(tenant: Api, namespace: str) -> None:
    tenant.create(objects.pod("grows", namespace))

    def label(*names: str) -> None:
        marks = {"metadata": {"labels": dict.fromkeys(names, "")}}
        tenant.patch("pods", "grows", marks, namespace)

    label(*(f"l{number}" for number in range(200)))
    with pytest.raises(ApiError, match="more than 256 labels"):
        label(*(f"m{number}" for number in range(200)))


def _tolerations(pod: Object, number: int) -> Object:
    """So many more than *pod* has; none of those may be taken away."""
    more = [{"key": f"more-{each}", "operator": "Exists"} for each in range(number)]
    return {"spec": {"tolerations": [*pod["spec"]["tolerations"], *more]}}


def test_tolerations_may_not_grow_beyond_the_bound_later(tenant: Api, namespace: str) -> None:
    pod = tenant.create(objects.pod("grows", namespace))[0]

    tenant.patch("pods", "grows", _tolerations(pod, 200), namespace)
    with pytest.raises(ApiError, match="more than 256 tolerations"):
        tenant.patch("pods", "grows", _tolerations(pod, 300), namespace)


@pytest.mark.parametrize(
    ("what", "most", "words"),
    [
        ("selector", 128, "more than 128 labels in the nodeSelector"),
        ("affinity", 999, "more than 1000 terms, expressions and values in the node affinity"),
        ("wishes", 999, "more than 1000 terms, expressions and values in the node affinity"),
    ],
)
def test_where_a_gated_pod_may_go_may_not_grow_beyond_the_bound_later(
    tenant: Api, namespace: str, what: str, most: int, words: str
) -> None:
    field = "nodeSelector" if what == "selector" else "affinity"
    for number in (most, most + 10):
        gates = [{"name": "example.com/wait"}]
        tenant.create(objects.pod(f"grows-{number}", namespace, schedulingGates=gates))

    def grow(number: int) -> None:
        asked = sized(namespace, what, number)["spec"][field]
        tenant.patch("pods", f"grows-{number}", {"spec": {field: asked}}, namespace)

    grow(most)
    with pytest.raises(ApiError, match=words):
        grow(most + 10)


def test_a_pod_that_was_too_large_before_can_still_be_annotated(
    api: Api, tenant: Api, namespace: str
) -> None:
    name = "gang-extender-pod-sizes"
    binding = api.get(BINDINGS, name)
    api.delete(BINDINGS, name)
    old = sized(namespace, "tolerations", 300)
    wait_for(lambda: tenant.create(old), 20, "nobody refuses it", every_s=0.2)
    api.create({**binding, "metadata": {"name": name}})
    another = sized(namespace, "labels", 257)
    wait_for(lambda: _is_refused(tenant, another), 20, "it holds again", every_s=0.2)

    called = old["metadata"]["name"]
    tenant.patch("pods", called, {"metadata": {"annotations": {"seen": "yes"}}}, namespace)
    more = _tolerations(api.get("pods", called, namespace), 1)
    with pytest.raises(ApiError, match="more than 256 tolerations"):
        tenant.patch("pods", called, more, namespace)


def test_a_pod_that_says_next_to_nothing_is_taken(tenant: Api, namespace: str) -> None:
    """Most of what is counted may be missing: that is none, and no mistake."""
    pod = objects.pod("bare", namespace)
    del pod["spec"]["containers"][0]["resources"]
    pod["metadata"].pop("labels", None)
    pod["spec"].pop("tolerations", None)
    pod["spec"]["initContainers"] = [{"name": "first", "image": "none"}]
    wish = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    wishes = [{"weight": 1, "preference": wish}]
    pod["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    }
    tenant.create(pod)
