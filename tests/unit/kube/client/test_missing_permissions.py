"""Refusals for a missing permission, in the exact words of kube-apiserver 1.36."""

from __future__ import annotations

import json
import logging

import pytest

from extender.errors import Forbidden
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.errors import (
    REMEMBERED_S,
    MissingPermissions,
    Permission,
    missing_permission,
    refusal,
)

US = "system:serviceaccount:gang-system:gang-extender"
LIST = (
    f'queues.scheduling.volcano.sh is forbidden: User "{US}" cannot list resource "queues" in API'
    ' group "scheduling.volcano.sh" at the cluster scope'
)
PATCH = (
    f'podgroups.scheduling.volcano.sh "train" is forbidden: User "{US}" cannot patch resource'
    ' "podgroups/status" in API group "scheduling.volcano.sh" in the namespace "team"'
)
BIND = (
    f'pods "train-0" is forbidden: User "{US}" cannot create resource "pods/binding" in API group'
    ' "" in the namespace "team"'
)


@pytest.mark.parametrize(
    ("message", "verb", "resource"),
    [
        (LIST, "list", "queues.scheduling.volcano.sh"),
        (PATCH, "patch", "podgroups.scheduling.volcano.sh/status"),
        (BIND, "create", "pods/binding"),
        (f"{BIND}: RBAC: clusterrole not found", "create", "pods/binding"),
    ],
)
def test_a_missing_permission_is_named_as_kubernetes_names_it(
    message: str, verb: str, resource: str
) -> None:
    assert missing_permission(message) == Permission(verb, resource, US)


@pytest.mark.parametrize(
    "message",
    [
        "",
        'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1',
        'events "a" is forbidden: unable to create new content in namespace b because it is being'
        " terminated",
        'admission webhook "policy.example.com" denied the request: not today',
    ],
)
def test_other_refusals_are_no_missing_permissions(message: str) -> None:
    assert missing_permission(message) is None


def test_a_refusal_for_a_missing_permission_is_a_forbidden_error() -> None:
    error = refusal("POST", "/x", 403, json.dumps({"message": BIND}).encode())

    assert isinstance(error, Forbidden)
    assert error.status == 403
    assert f"{US} may not create pods/binding; grant it" in str(error)
    assert "docs/security.md" in str(error)


def test_a_missing_permission_is_reported_until_it_was_not_refused_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    missing = MissingPermissions(lambda: now[0])
    with caplog.at_level(logging.ERROR):
        missing.note(Permission("list", "queues.scheduling.volcano.sh", US))
        missing.note(Permission("create", "pods/binding", US))
        now[0] = 5.0
        missing.note(Permission("create", "pods/binding", US))

    assert [each.message for each in caplog.records] == ["permission missing"] * 2
    first, second = missing.recent()
    assert first.account == US
    assert "may not create pods/binding" in first.why
    assert first.why.endswith("(refused 0 s ago)")
    assert "may not list queues.scheduling.volcano.sh" in second.why
    assert second.why.endswith("(refused 5 s ago)")

    now[0] = REMEMBERED_S + 1.0
    assert len(missing.recent()) == 1

    now[0] = 2 * REMEMBERED_S
    assert missing.recent() == []


def test_the_client_remembers_permissions_it_was_refused() -> None:
    access = ApiClient(ApiServer(host="127.0.0.1", port=1))
    access.refused("GET", "/x", 403, json.dumps({"message": LIST}).encode())
    access.refused("GET", "/x", 403, b'{"message": "exceeded quota"}')
    access.note_forbidden(json.dumps({"message": BIND}).encode())

    assert ["create pods/binding" in each.why for each in access.missing_permissions.recent()] == [
        True,
        False,
    ]
