"""What can be set, with the reason for each: the flags, the environment and the docs say the same.

Every field becomes a flag of `gang-extender serve` (`hold_s` is `--hold-s`) and a variable
(`GANG_EXTENDER_HOLD_S`). Unknown variables with our prefix refuse to start: a typo that is
silently ignored is found in production.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from extender.errors import InvalidConfiguration

PREFIX = "GANG_EXTENDER_"
PREFERENCES = ("nothing", "pack", "spread")
LEASES = ("none", "own", "scheduler")
OPS_AUTH = ("none", "tokenreview")
UNLISTED = ("allow", "deny")
#: Variables that no setting reads, but those commands that ask a running extender.
COMMAND_LINE_VARIABLES = (f"{PREFIX}OPS_URL", f"{PREFIX}NAMESPACE", f"{PREFIX}TOKEN_FROM")
#: A tebibyte.
_MOST_RECORD_MIB = 1 << 20
LOG_LEVELS = ("debug", "info", "warning", "error")
#: Seconds that may be none at all: what they say how long to do is then not done.
_MAY_BE_NONE = frozenset({"take_back_s", "arrival_grace_s", "min_run_s", "stuck_s"})
#: A label of DNS, as the API server wants it.
_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: Whatever a profile of kube-scheduler may be called.
_SCHEDULER = re.compile("[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?")
#: What may stand in front of a port: a name or an address, one of IPv6 in brackets.
_HOST = re.compile(r"[-._A-Za-z0-9]+|\[[:.0-9A-Fa-f]+(%[-._A-Za-z0-9]+)?\]")


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
        "HOST:PORT of the hooks. Bind is privileged: anywhere but on loopback it needs"
        " --tls-cert-file and what belongs to it.",
    )
    ops_listen: str = setting(
        "127.0.0.1:8889", "HOST:PORT of probes, metrics and pages; nothing there changes anything."
    )
    tls_cert_file: str = setting(
        "",
        "The certificate the hooks show, in PEM, followed by its intermediates. With it the hooks"
        " speak TLS alone. Read again when it changes, like all files of TLS.",
    )
    tls_private_key_file: str = setting("", "The private key of that certificate, in PEM.")
    client_ca_file: str = setting(
        "",
        "The CAs, in PEM, one of which must have signed the certificate of whoever calls a hook.",
    )
    client_name: tuple[str, ...] = setting(
        ("system:kube-scheduler",),
        "Callers of the hooks must have this common name or alternative name in their certificate;"
        " a CA signs for others too. May be repeated.",
    )
    hook_secret_file: str = setting(
        "",
        "A file with a secret that whoever calls a hook must send: the password in the URL of"
        " kube-scheduler's configuration. For hooks on loopback, which everything in the pod"
        " reaches, and whoever may forward a port to it. Read once.",
    )
    ops_tls_cert_file: str = setting(
        "",
        "The certificate the operations port shows, in PEM; nobody is asked for one there. Without"
        " it that port speaks plain HTTP.",
    )
    ops_tls_private_key_file: str = setting("", "The private key of that certificate, in PEM.")
    ops_auth: str = setting(
        "none",
        "Who may read metrics and pages: `none`, whoever reaches the port; `tokenreview`, whoever"
        " sends a token that the API server knows and may `get` the page as a nonResourceURL."
        " Probes are answered to all.",
    )
    ops_audience: tuple[str, ...] = setting(
        (),
        "With --ops-auth tokenreview, tokens must be made for this audience, and open nothing else."
        " Without it they are those of the API server itself. May be repeated.",
    )
    config: str = setting(
        "", "The policy file (actions, tiers, arguments), in the format of volcano-scheduler.conf."
    )
    scheduler_name: tuple[str, ...] = setting(
        ("gang-scheduler", "volcano", "kube-batch"),
        "Pods of these schedulers are ours; all others only use up room. May be repeated.",
    )
    exempt_namespace: tuple[str, ...] = setting(
        (),
        "Pods of these namespaces never wait for us, like system-critical ones and those of"
        " kube-system: no gang, no queue and no standby keeps them. May be repeated.",
    )
    node_selector: tuple[str, ...] = setting(
        (),
        "Only nodes with one of these labels, each written key:value, are ours: no pod of ours goes"
        " to another, and shares are parts of these alone. Without any, all nodes are. May be"
        " repeated.",
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
    unlisted_namespaces: str = setting(
        "allow",
        "What namespaces may use on which nobody wrote queues (`gang-extender.io/queues` or"
        " `scheduling.volcano.sh/queue-name`): `allow` any queue, `deny` all of them.",
    )
    budgets_are_gangs: bool = setting(
        False,
        "Make pods that name no group, and that a PodDisruptionBudget of their namespace selects, a"
        " gang whose minMember is its minAvailable, as kube-batch once did.",
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
    pod_name: str = setting(
        "",
        "The name of this pod, by the downward API. With it and a lease the leader puts the label"
        ' `gang-extender.io/leader: "true"` on its pod, for a Service to select, and takes it off'
        " all others.",
    )
    pod_namespace: str = setting(
        "", "The namespace of this pod; without it, that of its service account."
    )
    record: str = setting(
        "",
        "A folder in which a recording of what was seen and decided is kept, for"
        " `gang-extender replay`. It shows everything that pages show; only we may read it.",
    )
    record_mib: int = setting(
        256,
        "How many MiB that recording has at most, in eight files of which the oldest goes. When the"
        " disk is full or fails, the recording ends, and nothing else.",
    )
    log_level: str = setting("info", "debug, info, warning or error.")

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_names()
        host, port = address(self.listen, "--listen")
        if port == address(self.ops_listen, "--ops-listen")[1]:
            raise InvalidConfiguration(
                f"--listen and --ops-listen both say port {port}; give each its own"
            )
        if self.prefer not in PREFERENCES:
            raise InvalidConfiguration(
                f"--prefer {self.prefer!r} is not one of {', '.join(PREFERENCES)}"
            )
        self._check_lease()
        if self.unlisted_namespaces not in UNLISTED:
            raise InvalidConfiguration(
                f"--unlisted-namespaces {self.unlisted_namespaces!r} is neither allow nor deny"
            )
        label_pairs(self.node_selector)
        for name in self.exempt_namespace:
            if not _NAMESPACE.fullmatch(name):
                raise InvalidConfiguration(
                    f"--exempt-namespace {name!r} is not the name of a namespace; write it like"
                    " monitoring, and repeat the flag for another"
                )
        if self.bind_timeout_s <= self.hold_s:
            raise InvalidConfiguration(
                f"--bind-timeout-s {self.bind_timeout_s:g} leaves no time to bind after --hold-s"
                f" {self.hold_s:g}; make it at least {self.hold_s + 15:g}"
            )
        self._check_tls(host)
        self._check_readers()

    @property
    def asks_readers(self) -> bool:
        """Ask whether those who read pages have to say who they are."""
        return self.ops_auth != "none"

    def _check_numbers(self) -> None:
        for each in fields(self):
            if isinstance(each.default, float):
                check_seconds(
                    getattr(self, each.name), flag(each.name), may_be_none=each.name in _MAY_BE_NONE
                )
        if self.max_holds < 1:
            raise InvalidConfiguration(
                f"--max-holds {self.max_holds} would refuse every bind of a gang; make it at"
                " least as large as the largest gang"
            )

        if not 8 <= self.record_mib <= _MOST_RECORD_MIB:
            raise InvalidConfiguration(
                f"--record-mib {self.record_mib} is not a number of MiB between 8 and"
                f" {_MOST_RECORD_MIB}"
            )

    def _check_names(self) -> None:
        if self.log_level.lower() not in LOG_LEVELS:
            raise InvalidConfiguration(
                f"--log-level {self.log_level!r} is not one of {', '.join(LOG_LEVELS)}"
            )
        if not self.default_queue.strip():
            raise InvalidConfiguration("--default-queue is empty; name a queue, like default")
        if not self.scheduler_name:
            raise InvalidConfiguration(
                "--scheduler-name is empty, so no pod would be ours; name one, like gang-scheduler"
            )
        for name in self.scheduler_name:
            if not _SCHEDULER.fullmatch(name):
                raise InvalidConfiguration(
                    f"--scheduler-name {name!r} is not the name of a scheduler; write it like"
                    " gang-scheduler, and repeat the flag for another (in the variable, a space)"
                )

    def _check_tls(self, host: str) -> None:
        together("tls_cert_file", "tls_private_key_file", "client_ca_file", of=self)
        together("ops_tls_cert_file", "ops_tls_private_key_file", of=self)
        if not self.client_name or not all(self.client_name):
            raise InvalidConfiguration(
                "--client-name is empty; name who may call the hooks, like system:kube-scheduler"
            )
        if not self.tls_cert_file and not is_loopback(host):
            raise InvalidConfiguration(
                f"--listen {self.listen} is open to others, and whoever calls a hook may bind pods;"
                " give --tls-cert-file, --tls-private-key-file and --client-ca-file, or listen on"
                " 127.0.0.1"
            )

    def _check_readers(self) -> None:
        if self.ops_auth not in OPS_AUTH:
            raise InvalidConfiguration(
                f"--ops-auth {self.ops_auth!r} is not one of {', '.join(OPS_AUTH)}"
            )
        if self.ops_audience and not self.asks_readers:
            raise InvalidConfiguration(
                "--ops-audience says for whom tokens must be, but nobody is asked for one; give"
                " --ops-auth tokenreview beside it"
            )
        if not all(self.ops_audience):
            raise InvalidConfiguration("--ops-audience is empty; name one, like gang-extender")
        host, _ = address(self.ops_listen, "--ops-listen")
        if self.asks_readers and not self.ops_tls_cert_file and not is_loopback(host):
            raise InvalidConfiguration(
                f"--ops-auth {self.ops_auth} on --ops-listen {self.ops_listen} would have tokens"
                " sent in the clear, and whoever is on the way could use them at the API server;"
                " give --ops-tls-cert-file and --ops-tls-private-key-file, or listen on 127.0.0.1"
            )

    def _check_lease(self) -> None:
        if self.lease not in LEASES:
            raise InvalidConfiguration(f"--lease {self.lease!r} is not one of {', '.join(LEASES)}")
        if self.lease == "scheduler" and not self.lease_name:
            raise InvalidConfiguration(
                "--lease scheduler needs --lease-name, the resourceName of the leaderElection in"
                " kube-scheduler's configuration"
            )
        if not 0 < self.lease_retry_s < self.lease_renew_s < self.lease_duration_s:
            raise InvalidConfiguration(
                f"--lease-retry-s {self.lease_retry_s:g}, --lease-renew-s {self.lease_renew_s:g}"
                f" and --lease-duration-s {self.lease_duration_s:g} must grow in this order;"
                " kube-scheduler has 2, 10 and 15"
            )


def address(text: str, flag: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host stands in brackets."""
    host, _, port = text.rpartition(":")
    # Port 0 is any that is free: nobody would know where to ask.
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535
    if not is_port or not _HOST.fullmatch(host):
        raise InvalidConfiguration(
            f"{flag} {text!r} is not HOST:PORT; write it like 127.0.0.1:8888"
        )
    return host.strip("[]"), int(port)


def check_seconds(value: float, flag: str, *, may_be_none: bool = False) -> None:
    """Refuse what is no span of time: below zero, without end, no number, or none at all."""
    if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_none):
        least = "0 or more" if may_be_none else "more than 0"
        raise InvalidConfiguration(
            f"{flag} {value:g} is not a number of seconds; it must be {least}"
        )


def label_pairs(written: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Read labels as Volcano's `--node-selector` has them: key:value, several with commas."""
    pairs = set()
    for text in (text for each in written for text in each.split(",")):
        key, _, value = (half.strip() for half in text.partition(":"))
        if not key or not value:
            raise InvalidConfiguration(
                f"--node-selector {text!r} is not key:value; write it like example.com/pool:batch"
            )
        pairs.add((key, value))
    return frozenset(pairs)


def is_loopback(host: str) -> bool:
    """Ask whether only this machine reaches *host*; a name but localhost may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def flag(name: str) -> str:
    """Name the flag of the field *name*."""
    return f"--{name.replace('_', '-')}"


def together(*names: str, of: Settings) -> None:
    """Refuse some of these settings without the others."""
    absent = [flag(name) for name in names if not getattr(of, name)]
    if 0 < len(absent) < len(names):
        given = [flag(name) for name in names if getattr(of, name)]
        raise InvalidConfiguration(f"{' and '.join(given)} needs {' and '.join(absent)} beside it")


def variable(name: str) -> str:
    """Name the environment variable of the field *name*."""
    return PREFIX + name.upper()


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse variables with our prefix that no setting reads."""
    known = {variable(each.name) for each in fields(Settings)} | {*COMMAND_LINE_VARIABLES}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise InvalidConfiguration(f"the variable {name} is not a setting{hint}")
