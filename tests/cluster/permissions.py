"""The permissions in the manifests, and accounts that can be tested without single ones.

Roles named gang-extender are for the extender; those named gang-scheduler are for the
kube-scheduler that shares its pod and account in one of the overlays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import yaml

from .api import Object
from .control_plane import MANIFESTS, ControlPlane
from .users import EXTENDER_NAMESPACE, User, write_kubeconfig
from .waiting import wait_for

RBAC = "rbac.authorization.k8s.io"
_CHART = MANIFESTS / "chart"


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource, everywhere or in one namespace."""

    group: str
    resource: str
    verb: str
    #: The namespace of the Role; empty for a ClusterRole.
    namespace: str = ""
    #: The names of objects; empty for all.
    names: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Return the resource as kubectl writes it: `podgroups.scheduling.volcano.sh/status`."""
        plural, slash, part = self.resource.partition("/")
        return f"{plural}{'.' if self.group else ''}{self.group}{slash}{part}"

    def __str__(self) -> str:
        return f"{self.verb} {self.what}"

    def as_rule(self) -> Object:
        rule = {"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule

    def as_attributes(self) -> Object:
        """Return the resource attributes for an access review."""
        plural, _, part = self.resource.partition("/")
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": plural,
            "subresource": part,
        }
        return {**attributes, "namespace": self.namespace, "name": (*self.names, "")[0]}


def granted(*files: Path, to: str = "gang-extender") -> tuple[Permission, ...]:
    """Return all permissions of roles of that name in *files*."""
    things = [thing for file in files for thing in yaml.safe_load_all(file.read_text())]
    roles = [
        thing
        for thing in things
        if thing["kind"] in ("ClusterRole", "Role") and thing["metadata"]["name"].startswith(to)
    ]
    return tuple(
        Permission(group, resource, verb, role["metadata"].get("namespace", ""), names)
        for role in roles
        for rule in role["rules"]
        if "resources" in rule  # else it is for readers of the operations port
        for names in [tuple(rule.get("resourceNames", ()))]
        for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    )


def of_overlay(name: str, to: str = "gang-extender") -> tuple[Permission, ...]:
    """Return what an overlay adds for the extender, or for the account *to*."""
    return granted(*sorted((MANIFESTS / "overlays" / name).glob("*rbac.yaml")), to=to)


EVERYWHERE = granted(MANIFESTS / "base" / "rbac.yaml")
#: Only for a CRD without the status subresource.
WHOLE_PODGROUPS = granted(MANIFESTS / "volcano-crds" / "rbac.yaml")
#: Only where readers of the operations port are authenticated.
TOKEN_REVIEWS = granted(MANIFESTS / "ops-auth" / "rbac.yaml")
#: For waking pods and for the leader label.
POD_STATUS = tuple(right for right in EVERYWHERE if right.resource == "pods/status")
BESIDE_A_SCHEDULER = of_overlay("second-scheduler")
BEHIND_A_SERVICE = of_overlay("default-scheduler")
#: What the kube-scheduler of a pair has besides system:kube-scheduler.
OF_SCHEDULER = of_overlay("second-scheduler", to="gang-scheduler")


def shipped() -> set[Permission]:
    """Return every permission in the manifests; the chart has the same files."""
    files = [file for file in MANIFESTS.rglob("*.yaml") if not file.is_relative_to(_CHART)]
    # Examples are for other software.
    ours = [file for file in files if not file.is_relative_to(MANIFESTS / "examples")]
    return set(granted(*sorted(ours), to=""))


def has_permission(plane: ControlPlane, user: str, right: Permission) -> bool:
    """Ask the API server whether *user* has the permission."""
    groups = ["system:authenticated", "system:serviceaccounts"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": right.as_attributes()},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(plane.api.request("POST", path, review)["status"]["allowed"])


class AuditRecord:
    """The responses to one user from now on, by the audit log."""

    def __init__(self, plane: ControlPlane, user: str, *, from_the_start: bool = False) -> None:
        assert plane.apiserver.audit_log is not None
        self._log = plane.apiserver.audit_log
        self._start = 0 if from_the_start else self._log.stat().st_size
        self._user = user

    def was_forbidden(self, right: Permission) -> bool:
        return str(right) in map(str, self.forbidden())

    def was_allowed(self, right: Permission) -> bool:
        return any(str(asked) == str(right) and code != 403 for asked, code in self.responses())

    def forbidden(self) -> set[Permission]:
        return {right for right, code in self.responses() if code == 403}

    def requested(self) -> set[Permission]:
        return {right for right, _ in self.responses()}

    def responses(self) -> Iterator[tuple[Permission, int]]:
        with self._log.open("rb") as log:
            log.seek(self._start)
            lines = [line for line in log if line.endswith(b"\n")]
        for event in map(json.loads, lines):
            # Discovery is allowed to any user.
            about = event.get("objectRef")
            if about and event["user"].get("username") == self._user:
                parts = (about["resource"], about.get("subresource"))
                resource = "/".join(part for part in parts if part)
                right = Permission(about.get("apiGroup", ""), resource, event["verb"])
                yield right, event["responseStatus"]["code"]


class Account:
    """A service account with exactly *rights*, each of which can be removed for a block."""

    def __init__(self, plane: ControlPlane, name: str, rights: Iterable[Permission]) -> None:
        self._plane = plane
        self._name = name
        self.permissions = tuple(rights)
        self.user = f"system:serviceaccount:{EXTENDER_NAMESPACE}:{name}"
        self.kubeconfig = plane.folder / f"{name}.kubeconfig"
        home = {"name": name, "namespace": EXTENDER_NAMESPACE}
        plane.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": home})
        for kind in ("ClusterRole", "Role"):
            about = home if kind == "Role" else {"name": name}
            plane.api.create(
                {
                    "apiVersion": f"{RBAC}/v1",
                    "kind": kind,
                    "metadata": about,
                    "rules": self._rules(kind, self.permissions),
                },
                {
                    "apiVersion": f"{RBAC}/v1",
                    "kind": f"{kind}Binding",
                    "metadata": about,
                    "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
                    "subjects": [{"kind": "ServiceAccount", **home}],
                },
            )
        wait_for(
            lambda: all(has_permission(plane, self.user, right) for right in self.permissions),
            20,
            f"{name} has its permissions",
        )
        server = plane.apiserver
        user = User(self.user, token=self._token())
        write_kubeconfig(self.kubeconfig, user, server.url, server.certificate)

    @contextmanager
    def without(self, right: Permission) -> Iterator[None]:
        """Remove one permission until the block ends."""
        assert right in self.permissions, right
        self._set_rules(each for each in self.permissions if each != right)
        wait_for(
            lambda: not has_permission(self._plane, self.user, right), 20, f"it may not {right}"
        )
        try:
            yield
        finally:
            self._set_rules(self.permissions)
            wait_for(
                lambda: has_permission(self._plane, self.user, right), 20, f"it may {right} again"
            )

    def _set_rules(self, rights: Iterable[Permission]) -> None:
        left = tuple(rights)
        for kind, namespace in (("ClusterRole", None), ("Role", EXTENDER_NAMESPACE)):
            change = {"rules": self._rules(kind, left)}
            self._plane.api.patch(f"{kind.lower()}s.{RBAC}/v1", self._name, change, namespace)

    @staticmethod
    def _rules(kind: str, rights: Iterable[Permission]) -> list[Object]:
        return [each.as_rule() for each in rights if bool(each.namespace) is (kind == "Role")]

    def _token(self) -> str:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200},
        }
        path = f"/api/v1/namespaces/{EXTENDER_NAMESPACE}/serviceaccounts/{self._name}/token"
        token: str = self._plane.api.request("POST", path, request)["status"]["token"]
        return token
