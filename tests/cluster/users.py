"""The users of the API server and their credentials.

Every program has its own user, so that the audit log shows which one wrote what. The extender and
kube-scheduler have only the permissions of their roles; the others are administrators.
"""

from __future__ import annotations

import csv
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import yaml

EXTENDER_NAMESPACE = "gang-system"
REPLICATED = ("ha", "pair", "lawless")


@dataclass(frozen=True, slots=True)
class User:
    """A user with a static token."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=secrets.token_urlsafe, repr=False)


def all_users() -> dict[str, User]:
    """Make the users of one control plane, with fresh tokens."""
    service_accounts = ("system:serviceaccounts", f"system:serviceaccounts:{EXTENDER_NAMESPACE}")
    return {
        "admin": User("kubernetes-admin", ("system:masters",)),
        "extender": User(
            f"system:serviceaccount:{EXTENDER_NAMESPACE}:gang-extender", service_accounts
        ),
        # Replicas have their own users, so that the audit log distinguishes them; a test grants
        # their permissions.
        **{name: User(name) for prefix in REPLICATED for name in (f"{prefix}-a", f"{prefix}-b")},
        # It may bind, but not list or watch.
        "bind-only-extender": User("bind-only-extender"),
        "scheduler": User("system:kube-scheduler"),
        "controller-manager": User("system:kube-controller-manager", ("system:masters",)),
        "kwok": User("kwok", ("system:masters",)),
    }


def write_tokens(path: Path, users: dict[str, User]) -> None:
    """Write the file that kube-apiserver's `--token-auth-file` reads."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        for user in users.values():
            rows.writerow([user.token, user.name, user.name, ",".join(user.groups)])


def write_kubeconfig(path: Path, user: User, url: str, certificate_authority: Path) -> None:
    cluster = {"server": url, "certificate-authority": str(certificate_authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user.name}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
