"""`gang-extender scheduler-config`: the KubeSchedulerConfiguration that matches our settings."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from extender.cli.connect import check
from extender.cli.options import Seconds
from extender.errors import InvalidInput
from extender.settings import PREFERENCES, Settings, is_loopback
from extender.tls import hook_secret

_HEAD = """\
# Two entries, because httpTimeout is per entry: filter and preempt sit in the serial
# scheduling loop and must be quick; a bind may wait for the rest of its gang.
"""
_UNTOUCHED = """\
# All that is not written here is as it is without this file: qps and burst, how many nodes are
# looked at, the plugins. A flag --kubeconfig is not read beside a file, so that is in here.
"""
_USUAL = Settings()
_URL = f"http://{_USUAL.listen}"
#: Where kubeadm keeps what its kube-scheduler reads, and a folder of ours beside it.
FOLDER = "/etc/kubernetes/gang-extender"
#: Whatever a profile of kube-scheduler may be called.
_SCHEDULER = re.compile("[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?")
_SECOND, _DEFAULT = "second-scheduler", "default-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a deployment has where nothing else is said."""

    url: str = _URL
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    kubeconfig: str = ""
    scheduler_names: tuple[str, ...] = _USUAL.scheduler_name
    leader_elect: bool = False
    lease_name: str = ""
    lease_namespace: str = "gang-system"
    #: What a kube-scheduler of our own is better off with. The cluster's keeps what it has.
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
        scheduler_names=("default-scheduler", *_USUAL.scheduler_name),
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
    help="Whose configuration it is: that of a kube-scheduler of our own, or of the cluster's;"
    " everything below has its default by that.",
)
@click.option(
    "--url",
    help=f"Where kube-scheduler reaches the hooks; {_URL} for a {_SECOND}, and for the"
    f" {_DEFAULT} it must be said.",
)
@click.option("--ca-file", help="The CA that signed the certificate of the hooks.")
@click.option("--cert-file", help="The certificate kube-scheduler shall show.")
@click.option("--key-file", help="Its private key.")
@click.option(
    "--server-name",
    help="The name in the certificate of the hooks, where it is not the host of the URL.",
)
@click.option(
    "--hook-secret-file",
    default="",
    help="The file of `serve`'s setting of that name. Its secret is printed, in the URL: keep what"
    " is printed from other eyes.",
)
@click.option(
    "--kubeconfig",
    help="The kubeconfig kube-scheduler shall use; its own flag is not read beside a configuration."
    " Without it, as in a pod, the service account.",
)
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    help="Pods of these schedulers are scheduled, by default of"
    f" {', '.join(_USUAL.scheduler_name)}, and of {_DEFAULT} in the deployment of that name; must"
    " match the setting of `serve`. May be repeated.",
)
@click.option(
    "--bind-timeout-s",
    default=_USUAL.bind_timeout_s,
    show_default=True,
    type=Seconds(min=0, min_open=True),
    help="Must match the setting of `serve`.",
)
@click.option(
    "--filter-timeout-s",
    default=_USUAL.filter_timeout_s,
    show_default=True,
    type=Seconds(min=0, min_open=True),
    help="Must match the setting of `serve`.",
)
@click.option(
    "--prefer",
    type=click.Choice(PREFERENCES),
    default=_USUAL.prefer,
    show_default=True,
    help="Must match the setting of `serve`; with `nothing` we are not asked to prioritize.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help="Let several kube-schedulers agree on one that acts, as the cluster's do.",
)
@click.option(
    "--lease-namespace",
    help="Where the lease of the leader lies, gang-system; it is named like the first scheduler."
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
    """Print a configuration that kube-scheduler takes as it is, from 1.28 on.

    The files of TLS are named as kube-scheduler sees them: where it runs, by absolute paths.
    """
    about = replace(
        DEPLOYMENTS[deployment],
        **{name: value for name, value in given.items() if value not in (None, ())},
    )
    if not all(map(_SCHEDULER.fullmatch, about.scheduler_names)):
        raise InvalidInput(
            f"--scheduler-name {' '.join(map(repr, about.scheduler_names))}: a name is made of"
            " letters, digits, -, _ and ., as pods write it"
        )
    if not about.url:
        raise InvalidInput(
            f"--deployment {deployment} needs --url, the ClusterIP of the Service as the node"
            " reaches it, like https://10.96.0.77:8888; names of Services are not known there"
        )
    url = _plain(about.url)
    if deployment == _DEFAULT and not url.startswith("https"):
        raise InvalidInput(f"--url {url} leads away from the node, so it must be https")
    election: dict[str, Any] = {"leaderElect": False}
    if about.leader_elect and about.lease_namespace:
        election = {
            "leaderElect": True,
            "resourceName": about.lease_name or about.scheduler_names[0],
            "resourceNamespace": about.lease_namespace,
        }
        if about.tuned:
            # A lease that was given back lies there until somebody looks: by default two seconds,
            # and up to 2.2 times as long.
            election["retryPeriod"] = "500ms"
    connection: dict[str, Any] = {}
    if about.kubeconfig:
        # A shell does not expand `--kubeconfig=~/…`, and kube-scheduler takes a tilde for a name.
        connection["kubeconfig"] = os.path.expanduser(about.kubeconfig)
    if about.tuned:
        connection |= {"qps": 1000, "burst": 2000}
    # Never ignorable: on 1.30 and later a bind we refuse would be done behind our back.
    # Always nodeCacheCapable: without it 1.33 and later score every node as idle.
    quick, slow = (
        {
            "urlPrefix": _with_secret(url, hook_secret_file),
            **_tls(url, about),
            "nodeCacheCapable": True,
            "ignorable": False,
        }
        for _ in range(2)
    )
    # A member of a gang is left with one node, and of others we have no opinion by default: a
    # call for each ordinary pod that only says so would be wasted.
    prioritize = {"prioritizeVerb": "prioritize", "weight": 1} if prefer != "nothing" else {}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": election,
        # We choose among the nodes ourselves, so 100 feasible ones are enough to look at. Not so
        # for pods of the cluster's scheduler: among how many theirs is the best stays as it was.
        **({"percentageOfNodesToScore": 1} if about.tuned else {}),
        # One for every name: a pod whose scheduler's name has no profile is nobody's.
        "profiles": [{"schedulerName": name} for name in about.scheduler_names],
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
    head = _HEAD if about.tuned else _HEAD + _UNTOUCHED
    click.echo(head + yaml.safe_dump(configuration, sort_keys=False), nl=False)


def _plain(url: str) -> str:
    """Give *url* if nothing stands before its host; a command line is read by many."""
    if hook_secret.masked(url) != url:
        raise InvalidInput(
            "--url has a secret in it, which others can see; give --hook-secret-file"
        )
    return check(url, "--url", _URL)


def _with_secret(url: str, path: str) -> str:
    told = hook_secret.read(path)
    if not told:
        return url
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise InvalidInput(
            f"{hook_secret.FLAG} {path}: on the way to {url} everybody could read the secret;"
            " take https, or an address on loopback"
        )
    return hook_secret.into(url, told)


def _duration(seconds: float, flag: str) -> str:
    """Write a duration as Go reads it: without an exponent, and to the nanosecond."""
    if not 1e-9 <= seconds < 1e9:
        raise InvalidInput(f"{flag} is {seconds:g}; write seconds, more than 0 and less than 1e9")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _tls(url: str, about: Defaults) -> dict[str, Any]:
    """Give what an entry says of TLS; half of it would be worse than nothing.

    Without a CA kube-scheduler believes whoever answers, and without a certificate of its own our
    port refuses it.
    """
    files = {
        "--ca-file": about.ca_file,
        "--cert-file": about.cert_file,
        "--key-file": about.key_file,
    }
    if not url.startswith("https"):
        if given := [flag for flag, path in files.items() if path]:
            raise InvalidInput(f"{given[0]} is for an https URL, and --url is {url}")
        return {}
    if absent := [flag for flag, path in files.items() if not path]:
        raise InvalidInput(
            f"{url} needs {', '.join(absent)}; `gang-extender certificates` makes them"
        )
    told = {"caFile": about.ca_file, "certFile": about.cert_file, "keyFile": about.key_file}
    if about.server_name:
        told["serverName"] = about.server_name
    return {"enableHTTPS": True, "tlsConfig": told}
