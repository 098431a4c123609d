"""`gang-extender scheduler-config`: the KubeSchedulerConfiguration that matches our settings."""

from __future__ import annotations

from typing import Any

import click
import yaml

from extender.cli.ask import check
from extender.errors import BadInput
from extender.settings import PREFERENCES, Settings

_HEAD = """\
# Two entries, because httpTimeout is per entry: filter and preempt sit in the serial
# scheduling loop and must be quick; a bind may wait for the rest of its gang.
"""
_USUAL = Settings()
_URL = f"http://{_USUAL.listen}"


@click.command("scheduler-config")
@click.option(
    "--url", default=_URL, show_default=True, help="Where kube-scheduler reaches the hooks."
)
@click.option("--ca-file", default="", help="The CA that signed the certificate of the hooks.")
@click.option("--cert-file", default="", help="The certificate kube-scheduler shall show.")
@click.option("--key-file", default="", help="Its private key.")
@click.option(
    "--server-name",
    default="",
    help="The name in the certificate of the hooks, where it is not the host of the URL.",
)
@click.option("--kubeconfig", default="", help="The kubeconfig kube-scheduler shall use.")
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    default=_USUAL.scheduler_name,
    show_default=True,
    help="Pods of these schedulers are scheduled; must match the setting of `serve`. May be"
    " repeated.",
)
@click.option(
    "--bind-timeout-s",
    default=_USUAL.bind_timeout_s,
    show_default=True,
    help="Must match the setting of `serve`.",
)
@click.option(
    "--filter-timeout-s",
    default=_USUAL.filter_timeout_s,
    show_default=True,
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
    default=False,
    show_default=True,
    help="Let several kube-schedulers agree on one that acts.",
)
@click.option(
    "--lease-namespace",
    default="gang-system",
    show_default=True,
    help="Where the lease of the leader lies; it is named like the first scheduler.",
)
def scheduler_config(
    url: str,
    ca_file: str,
    cert_file: str,
    key_file: str,
    server_name: str,
    kubeconfig: str,
    scheduler_names: tuple[str, ...],
    bind_timeout_s: float,
    filter_timeout_s: float,
    prefer: str,
    leader_elect: bool,
    lease_namespace: str,
) -> None:
    """Print a configuration that kube-scheduler takes as it is.

    The files of TLS are named as kube-scheduler sees them: where it runs, by absolute paths.
    """
    url = check(url, "--url", _URL)
    election: dict[str, Any] = {"leaderElect": False}
    if leader_elect and lease_namespace:
        election = {
            "leaderElect": True,
            "resourceName": scheduler_names[0],
            "resourceNamespace": lease_namespace,
        }
    connection: dict[str, Any] = {"qps": 1000, "burst": 2000}
    if kubeconfig:
        connection = {"kubeconfig": kubeconfig, **connection}
    # Never ignorable: on 1.30 and later a bind we refuse would be done behind our back.
    # Always nodeCacheCapable: without it 1.33 and later score every node as idle.
    entry = {
        "urlPrefix": url,
        **_tls(url, ca_file, cert_file, key_file, server_name),
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    # A member of a gang is left with one node, and of others we have no opinion by default: a
    # call for each ordinary pod that only says so would be wasted.
    prioritize = {"prioritizeVerb": "prioritize", "weight": 1} if prefer != "nothing" else {}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "leaderElection": election,
        # We choose among the nodes ourselves, so 100 feasible ones are enough to look at.
        "percentageOfNodesToScore": 1,
        # One for every name: a pod whose scheduler's name has no profile is nobody's.
        "profiles": [{"schedulerName": name} for name in scheduler_names],
        "extenders": [
            {
                **entry,
                "filterVerb": "filter",
                "preemptVerb": "preempt",
                **prioritize,
                "httpTimeout": f"{filter_timeout_s:g}s",
            },
            {**entry, "bindVerb": "bind", "httpTimeout": f"{bind_timeout_s:g}s"},
        ],
    }
    click.echo(_HEAD + yaml.safe_dump(configuration, sort_keys=False), nl=False)


def _tls(url: str, ca: str, certificate: str, key: str, server_name: str) -> dict[str, Any]:
    """Give what an entry says of TLS; half of it would be worse than nothing.

    Without a CA kube-scheduler believes whoever answers, and without a certificate of its own our
    port refuses it.
    """
    files = {"--ca-file": ca, "--cert-file": certificate, "--key-file": key}
    if not url.startswith("https"):
        if given := [flag for flag, path in files.items() if path]:
            raise BadInput(f"{given[0]} is for an https URL, and --url is {url}")
        return {}
    if absent := [flag for flag, path in files.items() if not path]:
        raise BadInput(f"{url} needs {', '.join(absent)}; `gang-extender certificates` makes them")
    told = {"caFile": ca, "certFile": certificate, "keyFile": key}
    if server_name:
        told["serverName"] = server_name
    return {"enableHTTPS": True, "tlsConfig": told}
