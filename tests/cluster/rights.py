"""The rights in our manifests, one by one, and accounts from which single ones can be taken.

Roles called gang-extender are ours; those called gang-scheduler are of the kube-scheduler that
shares our pod and account in one of the overlays.
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
class Right:
    """One verb on one resource, everywhere or in one namespace."""

    group: str
    resource: str
    verb: str
    #: Where it is granted; empty for everywhere.
    namespace: str = ""
    #: Of which objects; empty for all.
    names: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The resource as Kubernetes names it: `podgroups.scheduling.volcano.sh/status`."""
        plural, slash, part = self.resource.partition("/")
        return f"{plural}{'.' if self.group else ''}{self.group}{slash}{part}"

    def __str__(self) -> str:
        return f"{self.verb} {self.what}"

    def as_rule(self) -> Object:
        rule = {"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule

    def as_wish(self) -> Object:
        """The same for whoever decides who may do what."""
        plural, _, part = self.resource.partition("/")
        wish = {"verb": self.verb, "group": self.group, "resource": plural, "subresource": part}
        return {**wish, "namespace": self.namespace, "name": (*self.names, "")[0]}


def granted(*files: Path, to: str = "gang-extender") -> tuple[Right, ...]:
    """All rights that roles of that name give in *files*."""
    things = [thing for file in files for thing in yaml.safe_load_all(file.read_text())]
    roles = [
        thing
        for thing in things
        if thing["kind"] in ("ClusterRole", "Role") and thing["metadata"]["name"].startswith(to)
    ]
    return tuple(
        Right(group, resource, verb, role["metadata"].get("namespace", ""), names)
        for role in roles
        for rule in role["rules"]
        if "resources" in rule  # else it is for whoever reads our pages, and not for us
        for names in [tuple(rule.get("resourceNames", ()))]
        for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    )


def of_overlay(name: str, to: str = "gang-extender") -> tuple[Right, ...]:
    """What an overlay adds for the extender, or for whoever else."""
    return granted(*sorted((MANIFESTS / "overlays" / name).glob("*rbac.yaml")), to=to)


EVERYWHERE = granted(MANIFESTS / "base" / "rbac.yaml")
#: Only where a CRD has no status subresource.
WHOLE_PODGROUPS = granted(MANIFESTS / "volcano-crds" / "rbac.yaml")
#: Only where readers of the operations port have to say who they are.
ASKS_WHO = granted(MANIFESTS / "ops-auth" / "rbac.yaml")
#: What wakes pods, and labels the leader's.
POD_STATUS = tuple(right for right in EVERYWHERE if right.resource == "pods/status")
BESIDE_A_SCHEDULER = of_overlay("second-scheduler")
BEHIND_A_SERVICE = of_overlay("default-scheduler")
#: What the kube-scheduler of a pair has besides what every kube-scheduler may.
OF_THE_SCHEDULER = of_overlay("second-scheduler", to="gang-scheduler")


def shipped() -> set[Right]:
    """Every verb of every rule of every role in our manifests; the chart has the same files."""
    files = [file for file in MANIFESTS.rglob("*.yaml") if not file.is_relative_to(_CHART)]
    # Examples of others are not what we ship.
    ours = [file for file in files if not file.is_relative_to(MANIFESTS / "examples")]
    return set(granted(*sorted(ours), to=""))


def may(plane: ControlPlane, user: str, right: Right) -> bool:
    """Ask the API server whether *user* may."""
    groups = ["system:authenticated", "system:serviceaccounts"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": right.as_wish()},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(plane.api.request("POST", path, review)["status"]["allowed"])


class Record:
    """What a user was answered from now on, by the API server's own record."""

    def __init__(self, plane: ControlPlane, user: str, *, from_the_start: bool = False) -> None:
        assert plane.apiserver.audit_log is not None
        self._log = plane.apiserver.audit_log
        self._start = 0 if from_the_start else self._log.stat().st_size
        self._user = user

    def was_refused(self, right: Right) -> bool:
        return str(right) in map(str, self.refused())

    def was_answered(self, right: Right) -> bool:
        return any(str(asked) == str(right) and code != 403 for asked, code in self.answers())

    def refused(self) -> set[Right]:
        return {right for right, code in self.answers() if code == 403}

    def asked(self) -> set[Right]:
        return {right for right, _ in self.answers()}

    def answers(self) -> Iterator[tuple[Right, int]]:
        with self._log.open("rb") as log:
            log.seek(self._start)
            lines = [line for line in log if line.endswith(b"\n")]
        for event in map(json.loads, lines):
            # Which kinds there are may be asked by anybody.
            about = event.get("objectRef")
            if about and event["user"].get("username") == self._user:
                parts = (about["resource"], about.get("subresource"))
                resource = "/".join(part for part in parts if part)
                right = Right(about.get("apiGroup", ""), resource, event["verb"])
                yield right, event["responseStatus"]["code"]


class Account:
    """A service account with exactly *rights*, each of which can be taken for a while."""

    def __init__(self, plane: ControlPlane, name: str, rights: Iterable[Right]) -> None:
        self._plane = plane
        self._name = name
        self.rights = tuple(rights)
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
                    "rules": self._rules(kind, self.rights),
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
            lambda: all(may(plane, self.user, right) for right in self.rights),
            20,
            f"{name} has its rights",
        )
        server = plane.apiserver
        user = User(self.user, token=self._token())
        write_kubeconfig(self.kubeconfig, user, server.url, server.certificate)

    @contextmanager
    def without(self, right: Right) -> Iterator[None]:
        """Take one right from it until the block ends."""
        assert right in self.rights, right
        self._have(each for each in self.rights if each != right)
        wait_for(lambda: not may(self._plane, self.user, right), 20, f"it may not {right}")
        try:
            yield
        finally:
            self._have(self.rights)
            wait_for(lambda: may(self._plane, self.user, right), 20, f"it may {right} again")

    def _have(self, rights: Iterable[Right]) -> None:
        left = tuple(rights)
        for kind, namespace in (("ClusterRole", None), ("Role", EXTENDER_NAMESPACE)):
            change = {"rules": self._rules(kind, left)}
            self._plane.api.patch(f"{kind.lower()}s.{RBAC}/v1", self._name, change, namespace)

    @staticmethod
    def _rules(kind: str, rights: Iterable[Right]) -> list[Object]:
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
