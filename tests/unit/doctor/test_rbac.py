"""The permissions that doctor checks are those that our manifests grant, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.doctor import rbac
from tests.cluster.permissions import (
    BEHIND_A_SERVICE,
    BESIDE_A_SCHEDULER,
    EVERYWHERE,
    TOKEN_REVIEWS,
    WHOLE_PODGROUPS,
    Permission,
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


def as_checked(granted: Permission) -> list[rbac.Permission]:
    names = granted.names or ("",)
    return [
        rbac.Permission(granted.group, granted.resource, granted.verb, granted.namespace, name)
        for name in names
    ]


@pytest.mark.parametrize(
    ("granted", "needed"),
    [
        (EVERYWHERE, rbac.EVERYWHERE),
        (WHOLE_PODGROUPS, rbac.WHOLE_PODGROUPS),
        (TOKEN_REVIEWS, rbac.TOKEN_REVIEW),
        (BEHIND_A_SERVICE, rbac.of_own_lease(HOME)),
        (BESIDE_A_SCHEDULER, rbac.of_schedulers_lease(HOME, "gang-scheduler")),
    ],
    ids=["everywhere", "whole podgroups", "token reviews", "own lease", "lease of the scheduler"],
)
def test_the_needed_permissions_are_those_granted(
    granted: tuple[Permission, ...], needed: tuple[rbac.Permission, ...]
) -> None:
    assert sorted(needed) == sorted(
        each for permission in granted for each in as_checked(permission)
    )


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
