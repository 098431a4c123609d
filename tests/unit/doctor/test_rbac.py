"""The permissions that doctor checks are those that our manifests grant, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.doctor import rbac
from extender.doctor.rbac import Permission
from tests.cluster.rights import (
    ASKS_WHO,
    BEHIND_A_SERVICE,
    BESIDE_A_SCHEDULER,
    EVERYWHERE,
    WHOLE_PODGROUPS,
    Right,
)

from .cases import INSTALLED, kind

HOME = "gang-system"
WRITTEN_BY_PEOPLE = ("pods", "podgroups", "queues")
#: On any address.
ASKING = {
    "ops_auth": "tokenreview",
    "ops_tls_cert_file": "/tls.crt",
    "ops_tls_private_key_file": "/tls.key",
}


def as_needed(right: Right) -> list[Permission]:
    names = right.names or ("",)
    return [
        Permission(right.group, right.resource, right.verb, right.namespace, name) for name in names
    ]


@pytest.mark.parametrize(
    ("granted", "needed"),
    [
        (EVERYWHERE, rbac.EVERYWHERE),
        (WHOLE_PODGROUPS, rbac.WHOLE_PODGROUPS),
        (ASKS_WHO, rbac.TOKEN_REVIEW),
        (BEHIND_A_SERVICE, rbac.of_own_lease(HOME)),
        (BESIDE_A_SCHEDULER, rbac.of_schedulers_lease(HOME, "gang-scheduler")),
    ],
    ids=["everywhere", "whole podgroups", "token reviews", "own lease", "lease of the scheduler"],
)
def test_the_needed_permissions_are_those_granted(
    granted: tuple[Right, ...], needed: tuple[Permission, ...]
) -> None:
    assert sorted(needed) == sorted(each for right in granted for each in as_needed(right))


def test_the_role_reads_no_secrets_and_never_writes_objects_of_users() -> None:
    resources = {right.resource for right in EVERYWHERE}
    verbs = {right.verb for right in EVERYWHERE if right.resource in WRITTEN_BY_PEOPLE}

    assert {"pods", "pods/binding"} <= resources
    assert not resources & {"secrets", "configmaps", "*"}
    assert verbs <= {"get", "list", "watch"}


def test_status_is_patched_as_subresource_or_with_the_object_but_not_both() -> None:
    for has_status, expected in ((True, "podgroups/status"), (False, "podgroups")):
        found = rbac.needed(INSTALLED, [kind("podgroups", has_status=has_status)])
        patched = [each.resource for each in found if each.group and each.verb == "patch"]
        assert patched == [expected]


def test_token_reviews_are_needed_only_with_ops_auth() -> None:
    assert INSTALLED.settings is not None
    asking = replace(INSTALLED, settings=replace(INSTALLED.settings, **ASKING))

    assert not {*rbac.TOKEN_REVIEW} & {*rbac.needed(INSTALLED, [])}
    assert {*rbac.TOKEN_REVIEW} <= {*rbac.needed(asking, [])}
