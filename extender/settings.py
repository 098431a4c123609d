"""What can be set, with the reason for each: the flags, the environment and the docs say the same.

Every field becomes a flag of `gang-extender serve` (`hold_s` is `--hold-s`) and a variable
(`GANG_EXTENDER_HOLD_S`). Unknown variables with our prefix refuse to start: a typo that is
silently ignored is found in production.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from extender.errors import BadConfiguration

PREFIX = "GANG_EXTENDER_"
PREFERENCES = ("nothing", "pack", "spread")
LEASES = ("none", "own", "scheduler")


def setting(default: Any, why: str) -> Any:
    """Declare a setting with the reason that `--help` and the docs print."""
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Frozen at start; what may change while we run lives in the policy file."""

    kubeconfig: str = setting(
        "",
        "The kubeconfig to use. Without it: $KUBECONFIG, then the pod's service account, then"
        " the file in the home directory.",
    )
    listen: str = setting(
        "127.0.0.1:8888",
        "HOST:PORT of the hooks. Bind is privileged, so keep it on loopback beside kube-scheduler.",
    )
    ops_listen: str = setting(
        "127.0.0.1:8889", "HOST:PORT of probes, metrics and pages; nothing there changes anything."
    )
    config: str = setting(
        "", "The policy file (actions, tiers, arguments), in the format of volcano-scheduler.conf."
    )
    scheduler_name: tuple[str, ...] = setting(
        ("gang-scheduler", "volcano", "kube-batch"),
        "Pods of these schedulers are ours; all others only use up room. May be repeated.",
    )
    hold_s: float = setting(
        30.0,
        "How long a bind waits for the rest of its gang. The first arrival sets the deadline.",
    )
    bind_timeout_s: float = setting(
        45.0,
        "httpTimeout of the bind entry in kube-scheduler's configuration: hold, plus time to bind"
        " a whole gang, plus a margin. If kube-scheduler gives up first, room is lost.",
    )
    filter_timeout_s: float = setting(
        2.0, "httpTimeout of the other entry; these calls sit in the serial scheduling loop."
    )
    ticket_s: float = setting(
        20.0,
        "How long a reservation waits for its pods to come to filter before it is given up.",
    )
    take_back_s: float = setting(
        0.0,
        "After so long, a gang of which only a part could be bound is evicted again, if all of it"
        " has a controller. 0: never; the rest is bound whenever it comes.",
    )
    arrival_grace_s: float = setting(
        3.0,
        "How long room is kept for members of an arriving gang that do not exist yet, after the"
        " last one came. If nobody else comes, all of it is given back.",
    )
    max_holds: int = setting(
        10_000, "Binds held at once; one more is refused and comes back, instead of piling up."
    )
    default_queue: str = setting(
        "default", "The queue of gangs that name none and whose namespace has none."
    )
    namespaces_are_queues: bool = setting(
        False,
        "Make every namespace without a queue of its own an implicit queue of weight 1, instead of"
        " sharing the default one.",
    )
    prefer: str = setting(
        "nothing",
        "Where ordinary pods and surplus members go among the nodes that fit: `pack` fills nodes"
        " up, `spread` evens them out, `nothing` leaves it to kube-scheduler's own scores.",
    )
    dry_run: bool = setting(
        False, "Evict nobody; only say in log, events and metrics who would have had to leave."
    )
    min_run_s: float = setting(
        0.0, "How long a gang runs in peace after its start before it may be made to leave."
    )
    stuck_s: float = setting(
        60.0,
        "How long after the end of its grace a deleted pod is still expected to go. Then nobody"
        " waits for its room any more: a finalizer may keep it for ever.",
    )
    lease: str = setting(
        "none",
        "Who acts where several of us run: whoever holds a Lease of our `own`, or whoever's"
        " `scheduler`, in the same pod, holds its; `none`: we are alone and always act.",
    )
    lease_name: str = setting(
        "",
        "The name of that Lease; gang-extender for our own, and for the scheduler's the"
        " resourceName of its leaderElection, which has to be said.",
    )
    lease_namespace: str = setting("", "Its namespace; without it, that of this pod.")
    lease_identity: str = setting(
        "",
        "What we are called in our own Lease, with a random part behind it; the scheduler's holder"
        " must begin with it. Without it, the host name, which containers of a pod share.",
    )
    lease_duration_s: float = setting(
        15.0, "Others may take our Lease so long after they saw it renewed last."
    )
    lease_renew_s: float = setting(
        10.0,
        "Without a renewal we stop acting after so long; what the others wait longer covers"
        " requests on their way and clocks that do not run alike.",
    )
    lease_retry_s: float = setting(
        2.0, "How often our Lease is renewed; somebody else's is looked at twice as often."
    )
    log_level: str = setting("info", "debug, info, warning or error.")

    def __post_init__(self) -> None:
        port = address(self.listen, "--listen")[1]
        if port == address(self.ops_listen, "--ops-listen")[1]:
            raise BadConfiguration(
                f"--listen and --ops-listen both say port {port}; give each its own"
            )
        if self.prefer not in PREFERENCES:
            raise BadConfiguration(
                f"--prefer {self.prefer!r} is not one of {', '.join(PREFERENCES)}"
            )
        self._check_lease()
        if self.bind_timeout_s <= self.hold_s:
            raise BadConfiguration(
                f"--bind-timeout-s {self.bind_timeout_s:g} leaves no time to bind after --hold-s"
                f" {self.hold_s:g}; make it at least {self.hold_s + 15:g}"
            )

    def _check_lease(self) -> None:
        if self.lease not in LEASES:
            raise BadConfiguration(f"--lease {self.lease!r} is not one of {', '.join(LEASES)}")
        if self.lease == "scheduler" and not self.lease_name:
            raise BadConfiguration(
                "--lease scheduler needs --lease-name, the resourceName of the leaderElection in"
                " kube-scheduler's configuration"
            )
        if not 0 < self.lease_retry_s < self.lease_renew_s < self.lease_duration_s:
            raise BadConfiguration(
                f"--lease-retry-s {self.lease_retry_s:g}, --lease-renew-s {self.lease_renew_s:g}"
                f" and --lease-duration-s {self.lease_duration_s:g} must grow in this order;"
                " kube-scheduler has 2, 10 and 15"
            )


def address(text: str, flag: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadConfiguration(f"{flag} {text!r} is not HOST:PORT; write it like 127.0.0.1:8888")
    return host.strip("[]"), int(port)


def variable(name: str) -> str:
    """Name the environment variable of the field *name*."""
    return PREFIX + name.upper()


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables with our prefix that no setting reads."""
    known = {variable(each.name) for each in fields(Settings)}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise BadConfiguration(f"the variable {name} is not a setting{hint}")
