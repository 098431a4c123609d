"""`gang-extender scheduler-config`: the KubeSchedulerConfiguration that matches our settings."""

from __future__ import annotations

from typing import Any

import click
import yaml

from extender.cli.ask import check
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
    kubeconfig: str,
    scheduler_names: tuple[str, ...],
    bind_timeout_s: float,
    filter_timeout_s: float,
    prefer: str,
    leader_elect: bool,
    lease_namespace: str,
) -> None:
    """Print a configuration that kube-scheduler takes as it is."""
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
    entry = {"urlPrefix": url, "nodeCacheCapable": True, "ignorable": False}
    if url.startswith("https"):
        entry["enableHTTPS"] = True
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
