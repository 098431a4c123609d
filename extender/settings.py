"""The settings: each field with the reason that the flag, the variable and the docs print.

Every field becomes a flag of `gang-extender serve` (`hold_s` is `--hold-s`) and a variable
(`GANG_EXTENDER_HOLD_S`). Unknown variables with our prefix are an error at start: a misspelled one
that is ignored would be found in production.
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
#: Variables of the commands that query a running extender, not of a setting.
COMMAND_LINE_VARIABLES = (f"{PREFIX}OPS_URL", f"{PREFIX}NAMESPACE", f"{PREFIX}TOKEN_FROM")
#: A tebibyte.
_MAX_RECORD_MIB = 1 << 20
LOG_LEVELS = ("debug", "info", "warning", "error")
#: Durations that may be 0, which turns off what they limit.
_MAY_BE_ZERO = frozenset({"evict_partial_s", "arrival_grace_s", "min_run_s", "stuck_s"})
#: A DNS label, as the API server requires it.
NAMESPACE_NAME = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: The names that a profile of kube-scheduler may have.
SCHEDULER_NAME = re.compile("[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?")
#: The host before a port: a name or an address, an IPv6 address in brackets.
_HOST = re.compile(r"[-._A-Za-z0-9]+|\[[:.0-9A-Fa-f]+(%[-._A-Za-z0-9]+)?\]")


def setting(default: Any, why: str) -> Any:
    """Return the field of a setting with the reason that `--help` and the docs print."""
    return field(default=default, metadata={"why": why})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings, fixed at start; the policy file has what may change while the extender runs."""

    kubeconfig: str = setting(
        "",
        "The kubeconfig. Without it: $KUBECONFIG, then the pod's service account, then the file in"
        " the home directory.",
    )
    listen: str = setting(
        "127.0.0.1:8888",
        "HOST:PORT of the hooks. Bind is privileged: any address but loopback requires"
        " --tls-cert-file, --tls-private-key-file and --client-ca-file.",
    )
    ops_listen: str = setting(
        "127.0.0.1:8889",
        "HOST:PORT of probes, metrics and pages; no request there changes anything.",
    )
    tls_cert_file: str = setting(
        "",
        "The certificate of the hooks, in PEM, followed by its intermediates. With it the hooks"
        " speak only TLS. Read again when it changes, like all TLS files.",
    )
    tls_private_key_file: str = setting("", "The private key of that certificate, in PEM.")
    client_ca_file: str = setting(
        "",
        "The CAs, in PEM, one of which must have signed the client certificate of a hook's caller.",
    )
    client_name: tuple[str, ...] = setting(
        ("system:kube-scheduler",),
        "The client certificate of a hook's caller must have this common name or alternative name;"
        " its CA signs certificates of others too. May be repeated.",
    )
    hook_secret_file: str = setting(
        "",
        "A file with a secret that every call of a hook must send: the password in the URL of"
        " kube-scheduler's configuration. For hooks on loopback, which every container of the pod"
        " and every user with the right to forward ports can reach. Read once.",
    )
    ops_tls_cert_file: str = setting(
        "",
        "The certificate of the operations port, in PEM; that port asks for no client certificate."
        " Without it that port speaks plain HTTP.",
    )
    ops_tls_private_key_file: str = setting("", "The private key of that certificate, in PEM.")
    ops_auth: str = setting(
        "none",
        "Authentication for metrics and pages: `none`, no authentication; `tokenreview`, a token"
        " that the API server accepts and whose user may `get` the page as a nonResourceURL."
        " Probes need no authentication.",
    )
    ops_audience: tuple[str, ...] = setting(
        (),
        "With --ops-auth tokenreview, the required audience of tokens, which then are valid for"
        " nothing else. Without it they have the API server's audience. May be repeated.",
    )
    config: str = setting(
        "", "The policy file (actions, tiers, arguments), in the format of volcano-scheduler.conf."
    )
    scheduler_name: tuple[str, ...] = setting(
        ("gang-scheduler", "volcano", "kube-batch"),
        "The schedulerNames whose pods the extender schedules; all other pods only use capacity."
        " May be repeated.",
    )
    exempt_namespace: tuple[str, ...] = setting(
        (),
        "Namespaces whose pods are always admitted, like system-critical pods and those of"
        " kube-system: no gang, queue or standby delays them. May be repeated.",
    )
    node_selector: tuple[str, ...] = setting(
        (),
        "The extender manages only nodes with one of these labels, each written key:value: its"
        " pods go to no other node, and shares are parts of these alone. Without it, it manages"
        " all nodes. May be repeated.",
    )
    hold_s: float = setting(
        30.0,
        "How long a bind waits for the rest of its gang. The first waiting bind sets the deadline.",
    )
    bind_timeout_s: float = setting(
        45.0,
        "httpTimeout of the bind entry in kube-scheduler's configuration: --hold-s, plus the time"
        " to bind a whole gang, plus a margin. If kube-scheduler times out first, the capacity"
        " stays reserved unused.",
    )
    filter_timeout_s: float = setting(
        2.0, "httpTimeout of the other entry; its calls run in the serial scheduling loop."
    )
    reservation_s: float = setting(
        20.0,
        "How long a reservation waits for its pods to be filtered before it is released.",
    )
    evict_partial_s: float = setting(
        0.0,
        "After this time, a gang of which only a part could be bound is evicted, if all its pods"
        " have a controller. 0: never; the rest is bound when it comes.",
    )
    arrival_grace_s: float = setting(
        3.0,
        "How long capacity stays reserved for members of an arriving gang that do not exist yet,"
        " after its last pod was created. If no more follow, all of it is released.",
    )
    max_holds: int = setting(
        10_000, "The limit of waiting binds; one above it is refused, and kube-scheduler retries."
    )
    default_queue: str = setting(
        "default", "The queue of gangs that name no queue and whose namespace has none."
    )
    namespaces_are_queues: bool = setting(
        False,
        "Make every namespace without a queue of its own an implicit queue of weight 1, instead of"
        " using the default queue.",
    )
    unlisted_namespaces: str = setting(
        "allow",
        "The queues open to namespaces without an annotation of queues (`gang-extender.io/queues`"
        " or `scheduling.volcano.sh/queue-name`): `allow` all of them, `deny` all of them.",
    )
    budgets_are_gangs: bool = setting(
        False,
        "Make pods without a group that a PodDisruptionBudget of their namespace selects a gang"
        " whose minMember is its minAvailable, as kube-batch did.",
    )
    prefer: str = setting(
        "nothing",
        "The nodes preferred for single pods and surplus members: `pack` fills nodes up, `spread`"
        " evens them out, `nothing` leaves the choice to kube-scheduler's own scores.",
    )
    dry_run: bool = setting(
        False, "Evict no pod; only report in log, events and metrics which pods would be evicted."
    )
    min_run_s: float = setting(0.0, "How long a gang runs before it may be preempted or reclaimed.")
    stuck_s: float = setting(
        60.0,
        "How long after the end of its grace period a deleted pod is expected to terminate. Then no"
        " gang waits for its capacity any more: a finalizer may keep the pod for ever.",
    )
    lease: str = setting(
        "none",
        "Which replica acts: the holder of the extender's `own` Lease, or the one in the pod of the"
        " `scheduler` that holds kube-scheduler's Lease; `none`: there is one replica.",
    )
    lease_name: str = setting(
        "",
        "The name of that Lease. For `own` it is gang-extender by default. For `scheduler` it is"
        " required: the resourceName of kube-scheduler's leaderElection.",
    )
    lease_namespace: str = setting("", "Its namespace; by default the namespace of this pod.")
    lease_identity: str = setting(
        "",
        "The identity of this replica in its own Lease, before a random suffix; the holder in"
        " kube-scheduler's Lease must begin with it. By default the host name, which the containers"
        " of a pod share.",
    )
    lease_duration_s: float = setting(
        15.0, "Another replica may take the Lease this long after it saw the last renewal."
    )
    lease_renew_s: float = setting(
        10.0,
        "Without a renewal the leader stops acting after this time. The rest of the lease duration"
        " covers requests in flight and clocks of different speed.",
    )
    lease_retry_s: float = setting(
        2.0, "How often the own Lease is renewed; another holder's is read twice as often."
    )
    pod_name: str = setting(
        "",
        "The name of this pod, from the downward API. With it and a lease the leader sets the label"
        ' `gang-extender.io/leader: "true"` on its pod, for a Service to select, and removes it'
        " from all others.",
    )
    pod_namespace: str = setting(
        "", "The namespace of this pod; by default that of its service account."
    )
    record: str = setting(
        "",
        "A directory for a recording of every cycle's input and decision, for `gang-extender"
        " replay`. It has all that pages show; only the extender's user can read it.",
    )
    record_mib: int = setting(
        256,
        "The size limit of the recording in MiB; of its eight files the oldest is deleted first."
        " When the disk is full or fails, only the recording ends.",
    )
    log_level: str = setting("info", "debug, info, warning or error.")

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_names()
        host, port = address(self.listen, "--listen")
        if port == address(self.ops_listen, "--ops-listen")[1]:
            raise InvalidConfiguration(
                f"--listen and --ops-listen both have port {port}; give each its own"
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
            if not NAMESPACE_NAME.fullmatch(name):
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
    def needs_token(self) -> bool:
        """Return whether metrics and pages need authentication."""
        return self.ops_auth != "none"

    def _check_numbers(self) -> None:
        for each in fields(self):
            if isinstance(each.default, float):
                check_seconds(
                    getattr(self, each.name), flag(each.name), may_be_zero=each.name in _MAY_BE_ZERO
                )
        if self.max_holds < 1:
            raise InvalidConfiguration(
                f"--max-holds {self.max_holds} would refuse every bind of a gang; make it at"
                " least as large as the largest gang"
            )

        if not 8 <= self.record_mib <= _MAX_RECORD_MIB:
            raise InvalidConfiguration(
                f"--record-mib {self.record_mib} is not a number of MiB between 8 and"
                f" {_MAX_RECORD_MIB}"
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
                "--scheduler-name is empty, so no pod would be scheduled; name one, like"
                " gang-scheduler"
            )
        for name in self.scheduler_name:
            if not SCHEDULER_NAME.fullmatch(name):
                raise InvalidConfiguration(
                    f"--scheduler-name {name!r} is not the name of a scheduler; write it like"
                    " gang-scheduler, and repeat the flag for another (in the variable, a space)"
                )

    def _check_tls(self, host: str) -> None:
        require_together("tls_cert_file", "tls_private_key_file", "client_ca_file", of=self)
        require_together("ops_tls_cert_file", "ops_tls_private_key_file", of=self)
        if not self.client_name or not all(self.client_name):
            raise InvalidConfiguration(
                "--client-name is empty; name the caller of the hooks, like system:kube-scheduler"
            )
        if not self.tls_cert_file and not is_loopback(host):
            raise InvalidConfiguration(
                f"--listen {self.listen} is reachable from other machines, and a caller of a hook"
                " may bind pods; give --tls-cert-file, --tls-private-key-file and --client-ca-file,"
                " or listen on 127.0.0.1"
            )

    def _check_readers(self) -> None:
        if self.ops_auth not in OPS_AUTH:
            raise InvalidConfiguration(
                f"--ops-auth {self.ops_auth!r} is not one of {', '.join(OPS_AUTH)}"
            )
        if self.ops_audience and not self.needs_token:
            raise InvalidConfiguration(
                "--ops-audience needs authentication by token; give --ops-auth tokenreview too"
            )
        if not all(self.ops_audience):
            raise InvalidConfiguration("--ops-audience is empty; name one, like gang-extender")
        host, _ = address(self.ops_listen, "--ops-listen")
        if self.needs_token and not self.ops_tls_cert_file and not is_loopback(host):
            raise InvalidConfiguration(
                f"--ops-auth {self.ops_auth} on --ops-listen {self.ops_listen} would let clients"
                " send tokens in plain text, readable on the network; give --ops-tls-cert-file and"
                " --ops-tls-private-key-file, or listen on 127.0.0.1"
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
    """Split HOST:PORT; an IPv6 host is in brackets."""
    host, _, port = text.rpartition(":")
    # Port 0 is any free port, which no client could know.
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535
    if not is_port or not _HOST.fullmatch(host):
        raise InvalidConfiguration(
            f"{flag} {text!r} is not HOST:PORT; write it like 127.0.0.1:8888"
        )
    return host.strip("[]"), int(port)


def check_seconds(value: float, flag: str, *, may_be_zero: bool = False) -> None:
    """Raise unless *value* is a finite duration above 0, or 0 where *may_be_zero*."""
    if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
        least = "0 or more" if may_be_zero else "more than 0"
        raise InvalidConfiguration(
            f"{flag} {value:g} is not a number of seconds; it must be {least}"
        )


def label_pairs(written: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Parse labels as Volcano's `--node-selector` has them: key:value, separated by commas."""
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
    """Return whether only this machine reaches *host*; names but localhost may lead elsewhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def flag(name: str) -> str:
    """Return the flag of the field *name*."""
    return f"--{name.replace('_', '-')}"


def require_together(*names: str, of: Settings) -> None:
    """Raise if only some of these settings are given."""
    absent = [flag(name) for name in names if not getattr(of, name)]
    if 0 < len(absent) < len(names):
        given = [flag(name) for name in names if getattr(of, name)]
        raise InvalidConfiguration(f"{' and '.join(given)} needs {' and '.join(absent)} too")


def variable(name: str) -> str:
    """Return the environment variable of the field *name*."""
    return PREFIX + name.upper()


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise if no setting has one of our variables."""
    known = {variable(each.name) for each in fields(Settings)} | {*COMMAND_LINE_VARIABLES}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}" if near else ""
            raise InvalidConfiguration(f"the variable {name} is not a setting{hint}")
