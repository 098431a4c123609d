"""Who talks to the API server, and how each of them proves it.

Every program has a name of its own, so that an audit log tells who wrote what. The extender and
kube-scheduler have only the rights that their roles give them; the rest are administrators.
"""

from __future__ import annotations

import csv
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import yaml

EXTENDER_NAMESPACE = "gang-system"
RIVALS = ("ha", "pair", "lawless")


@dataclass(frozen=True, slots=True)
class User:
    """A name the API server knows by its token."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=secrets.token_urlsafe, repr=False)


def everyone() -> dict[str, User]:
    """Make the users of one control plane, with fresh tokens."""
    service_accounts = ("system:serviceaccounts", f"system:serviceaccounts:{EXTENDER_NAMESPACE}")
    return {
        "admin": User("kubernetes-admin", ("system:masters",)),
        "extender": User(
            f"system:serviceaccount:{EXTENDER_NAMESPACE}:gang-extender", service_accounts
        ),
        # Where two run, and other two beside them, the audit log must tell all of them apart; a
        # test gives them the rights.
        **{name: User(name) for rivals in RIVALS for name in (f"{rivals}-a", f"{rivals}-b")},
        # One that may bind and hears nothing.
        "deaf-extender": User("deaf-extender"),
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
