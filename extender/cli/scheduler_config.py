"""`gang-extender scheduler-config`: print the KubeSchedulerConfiguration that fits the settings."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from extender.cli.connect import check
from extender.cli.options import Seconds
from extender.errors import InvalidInput
from extender.settings import PREFERENCES, SCHEDULER_NAME, Settings, is_loopback
from extender.tls import hook_secret

_HEAD = """\
# Two entries, because httpTimeout is per entry: filter and preempt run in the serial
# scheduling loop and must be quick; a bind may wait for the rest of its gang.
"""
_DEFAULTS_NOTE = """\
# All other fields keep their defaults: qps and burst, percentageOfNodesToScore, plugins.
# kube-scheduler ignores its flag --kubeconfig beside a file, so that is set here.
"""
_SETTINGS = Settings()
_URL = f"http://{_SETTINGS.listen}"
#: A directory of ours beside the files that kubeadm's kube-scheduler reads.
FOLDER = "/etc/kubernetes/gang-extender"
_SECOND, _DEFAULT = "second-scheduler", "default-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults of a deployment."""

    url: str = _URL
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    kubeconfig: str = ""
    scheduler_names: tuple[str, ...] = _SETTINGS.scheduler_name
    leader_elect: bool = False
    lease_name: str = ""
    lease_namespace: str = "gang-system"
    #: Whether to tune it for gangs: only a kube-scheduler of our own, never the cluster's.
    tuned: bool = True


DEPLOYMENTS = {
    _SECOND: Defaults(),
    _DEFAULT: Defaults(
        url="",
        ca_file=f"{FOLDER}/ca.crt",
        cert_file=f"{FOLDER}/client.crt",
        key_file=f"{FOLDER}/client.key",
        server_name="gang-extender.gang-system.svc",
        kubeconfig="/etc/kubernetes/scheduler.conf",
        scheduler_names=("default-scheduler", *_SETTINGS.scheduler_name),
        leader_elect=True,
        lease_name="kube-scheduler",
        lease_namespace="kube-system",
        tuned=False,
    ),
}


@click.command("scheduler-config")
@click.option(
    "--deployment",
    type=click.Choice(sorted(DEPLOYMENTS)),
    default=_SECOND,
    show_default=True,
    help="The kube-scheduler to configure: one of our own, or the cluster's; the defaults of all"
    " flags below depend on it.",
)
@click.option(
    "--url",
    help=f"The URL of the hooks for kube-scheduler; {_URL} for a {_SECOND}; the {_DEFAULT}"
    " requires one.",
)
@click.option("--ca-file", help="The CA that signed the certificate of the hooks.")
@click.option("--cert-file", help="The client certificate of kube-scheduler.")
@click.option("--key-file", help="Its private key.")
@click.option(
    "--server-name",
    help="The name in the certificate of the hooks, if it differs from the host of the URL.",
)
@click.option(
    "--hook-secret-file",
    default="",
    help="The file of `serve`'s setting of that name. Its secret is printed, in the URL: protect"
    " the output.",
)
@click.option(
    "--kubeconfig",
    help="The kubeconfig of kube-scheduler, which ignores its own flag beside a configuration."
    " Without it, as in a pod, the service account.",
)
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    help="The scheduler names of the profiles, by default"
    f" {', '.join(_SETTINGS.scheduler_name)}, and {_DEFAULT} in the deployment of that name; must"
    " match the setting of `serve`. May be repeated.",
)
@click.option(
    "--bind-timeout-s",
    default=_SETTINGS.bind_timeout_s,
    show_default=True,
    type=Seconds(min=0, min_open=True),
    help="Must match the setting of `serve`.",
)
@click.option(
    "--filter-timeout-s",
    default=_SETTINGS.filter_timeout_s,
    show_default=True,
    type=Seconds(min=0, min_open=True),
    help="Must match the setting of `serve`.",
)
@click.option(
    "--prefer",
    type=click.Choice(PREFERENCES),
    default=_SETTINGS.prefer,
    show_default=True,
    help="Must match the setting of `serve`; with `nothing`, prioritize is not called.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help="Use leader election among several kube-schedulers, as the cluster's do.",
)
@click.option(
    "--lease-namespace",
    help="The namespace of the lease, gang-system by default; it is named like the first scheduler."
    " The cluster's own is kube-scheduler in kube-system.",
)
def scheduler_config(
    deployment: str,
    bind_timeout_s: float,
    filter_timeout_s: float,
    prefer: str,
    hook_secret_file: str,
    **given: Any,
) -> None:
    """Print a configuration that kube-scheduler accepts unchanged, from 1.28 on.

    TLS files are named by their absolute paths on the machine of kube-scheduler.
    """
    options = replace(
        DEPLOYMENTS[deployment],
        **{name: value for name, value in given.items() if value not in (None, ())},
    )
    if not all(map(SCHEDULER_NAME.fullmatch, options.scheduler_names)):
        raise InvalidInput(
            f"--scheduler-name {' '.join(map(repr, options.scheduler_names))}: a name consists of"
            " letters, digits, -, _ and ., as pods write it"
        )
    if not options.url:
        raise InvalidInput(
            f"--deployment {deployment} needs --url, the ClusterIP of the Service, like"
            " https://10.96.0.77:8888; a node does not resolve names of Services"
        )
    url = _plain(options.url)
    if deployment == _DEFAULT and not url.startswith("https"):
        raise InvalidInput(f"--url {url} leaves the node, so it must be https")
    election: dict[str, Any] = {"leaderElect": False}
    if options.leader_elect and options.lease_namespace:
        election = {
            "leaderElect": True,
            "resourceName": options.lease_name or options.scheduler_names[0],
            "resourceNamespace": options.lease_namespace,
        }
        if options.tuned:
            # A released lease stays free until another replica retries: by default two seconds,
            # and up to 2.2 times as long.
            election["retryPeriod"] = "500ms"
    connection: dict[str, Any] = {}
    if options.kubeconfig:
        # A shell does not expand `--kubeconfig=~/…`, and kube-scheduler does not either.
        connection["kubeconfig"] = os.path.expanduser(options.kubeconfig)
    if options.tuned:
        connection |= {"qps": 1000, "burst": 2000}
    # Never ignorable: on 1.30 and later kube-scheduler would perform a bind that was refused.
    # Always nodeCacheCapable: without it 1.33 and later score every node as idle.
    quick, slow = (
        {
            "urlPrefix": _with_secret(url, hook_secret_file),
            **_tls(url, options),
            "nodeCacheCapable": True,
            "ignorable": False,
        }
        for _ in range(2)
    )
    # Filter leaves one node for a gang member, and by default other pods have no preference: a
    # call for each of them would be wasted.
    prioritize = {"prioritizeVerb": "prioritize", "weight": 1} if prefer != "nothing" else {}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": election,
        # The extender chooses among nodes, so 100 feasible ones are enough. The cluster's own
        # scheduler keeps its value, which decides the score of its own pods.
        **({"percentageOfNodesToScore": 1} if options.tuned else {}),
        # A profile for every name: no kube-scheduler schedules a pod without a profile.
        "profiles": [{"schedulerName": name} for name in options.scheduler_names],
        "extenders": [
            {
                **quick,
                "filterVerb": "filter",
                "preemptVerb": "preempt",
                **prioritize,
                "httpTimeout": _duration(filter_timeout_s, "--filter-timeout-s"),
            },
            {
                **slow,
                "bindVerb": "bind",
                "httpTimeout": _duration(bind_timeout_s, "--bind-timeout-s"),
            },
        ],
    }
    head = _HEAD if options.tuned else _HEAD + _DEFAULTS_NOTE
    click.echo(head + yaml.safe_dump(configuration, sort_keys=False), nl=False)


def _plain(url: str) -> str:
    """Return *url* if it has no secret; other users can see a command line."""
    if hook_secret.masked(url) != url:
        raise InvalidInput(
            "--url has a secret in it, which others can see; give --hook-secret-file"
        )
    return check(url, "--url", _URL)


def _with_secret(url: str, path: str) -> str:
    secret = hook_secret.read(path)
    if not secret:
        return url
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InvalidInput(
            f"{hook_secret.FLAG} {path}: the secret would be sent in plain text to {url}; use"
            " https, or an address on loopback"
        )
    return hook_secret.into(url, secret)


def _duration(seconds: float, flag: str) -> str:
    """Format a duration in Go's notation: without an exponent, and to the nanosecond."""
    if not 1e-9 <= seconds < 1e9:
        raise InvalidInput(f"{flag} is {seconds:g}; write seconds, more than 0 and less than 1e9")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _tls(url: str, options: Defaults) -> dict[str, Any]:
    """Return the TLS fields of an entry; raise if some are missing.

    Without a CA kube-scheduler trusts any server, and without a client certificate the hooks refuse
    it.
    """
    files = {
        "--ca-file": options.ca_file,
        "--cert-file": options.cert_file,
        "--key-file": options.key_file,
    }
    if not url.startswith("https"):
        if given := [flag for flag, path in files.items() if path]:
            raise InvalidInput(f"{given[0]} is for an https URL, and --url is {url}")
        return {}
    if absent := [flag for flag, path in files.items() if not path]:
        raise InvalidInput(
            f"{url} needs {', '.join(absent)}; `gang-extender certificates` makes them"
        )
    fields = {"caFile": options.ca_file, "certFile": options.cert_file, "keyFile": options.key_file}
    if options.server_name:
        fields["serverName"] = options.server_name
    return {"enableHTTPS": True, "tlsConfig": fields}
