"""One look at everything that was named: a cluster, an extender, a configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from extender.doctor.looking import files, installation, pages, server
from extender.doctor.looking.eyes import Eyes
from extender.doctor.seen import Clocks, Document, SchedulerConfig, Seen, Unseen
from extender.errors import BadInput
from extender.kube.api.client import Access

_CLUSTER = "the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where to look."""

    #: Gives the way to the cluster; None when nobody shall look there.
    access: Callable[[], Access] | None = None
    namespace: str = ""
    #: Of which file, read.
    configurations: Sequence[tuple[Path, Document]] = ()
    ca_file: Path | None = None
    cert_file: Path | None = None
    #: Finds the operations port of the extender, and says where that is; None when nobody shall.
    ops: Callable[[], tuple[pages.Read, str]] | None = None


def look(wanted: Wanted, now: Callable[[], float] = time.time) -> Seen:
    """Look everywhere; what could not be seen is in `Seen.unseen`."""
    seen = Seen(clocks=Clocks(here=now()))
    if wanted.access is not None:
        seen = _cluster(seen, wanted, wanted.access, now)
    else:
        seen = replace(seen, configurations=_assumed(wanted))
    missed: list[Unseen] = list(seen.unseen)
    callers = tuple(
        files.callers(
            seen.configurations,
            lambda what, why: missed.append(Unseen(what, why)),
            wanted.ca_file,
            wanted.cert_file,
        )
    )
    # Without the other side there is nothing to compare them with, and nothing is missed.
    unseen = tuple(dict.fromkeys(missed)) if seen.hooks else seen.unseen
    seen = replace(seen, callers=callers, unseen=unseen)
    return _extender(seen, wanted)


def _assumed(wanted: Wanted) -> tuple[SchedulerConfig, ...]:
    return tuple(
        SchedulerConfig(where=str(path), document=document, is_assumed=True)
        for path, document in wanted.configurations
    )


def _cluster(
    seen: Seen, wanted: Wanted, access: Callable[[], Access], now: Callable[[], float]
) -> Seen:
    try:
        way = access()
        eyes = Eyes(way, now)
    except BadInput as error:
        missed = Unseen(_CLUSTER, str(error))
        return replace(seen, configurations=_assumed(wanted), unseen=(missed,))
    seen = replace(seen, unprotected=way.warnings)
    if not eyes.get("/version", _CLUSTER):
        if not eyes.unseen:
            eyes.miss(_CLUSTER, "what the kubeconfig names is not a Kubernetes API server")
        return replace(seen, configurations=_assumed(wanted), unseen=tuple(eyes.unseen))
    found = installation.deployments(eyes, wanted.namespace)
    kinds = server.kinds(eyes)
    installed = None if found is None else tuple(each.installed for each in found)
    found = found or []
    return replace(
        seen,
        is_cluster=True,
        configurations=(
            *installation.configurations(eyes, found),
            *_named(eyes, wanted, found),
        ),
        schedulers=tuple(installation.schedulers(eyes, found)),
        installed=installed,
        leases=tuple(installation.leases(eyes, found)),
        services=tuple(installation.services(eyes, found)),
        kinds=kinds,
        lacking=server.lacking(eyes, installed or (), kinds or ()),
        server_gates=server.gates(eyes),
        admission_policies=server.admission_policies(eyes),
        hooks=tuple(installation.hook_files(eyes, found)),
        clocks=replace(seen.clocks, here=now(), api_server_s=eyes.ahead_s),
        unseen=tuple(eyes.unseen),
    )


def _named(
    eyes: Eyes, wanted: Wanted, found: list[installation.Found]
) -> tuple[SchedulerConfig, ...]:
    """Give each file to the extender that has no kube-scheduler beside it, or else to any."""
    alone = [each.installed for each in found if not each.installed.is_pair]
    asked = next((each.settings for each in alone or [e.installed for e in found]), None)
    if not wanted.configurations:
        for each in alone:
            eyes.miss(
                f"the configuration of the kube-scheduler that asks {each.where}",
                "it is a file of a control-plane node; give it with --scheduler-config",
            )
    if asked is None:
        return _assumed(wanted)
    return tuple(
        SchedulerConfig(where=str(path), document=document, settings=asked)
        for path, document in wanted.configurations
    )


def _extender(seen: Seen, wanted: Wanted) -> Seen:
    if wanted.ops is None:
        return seen
    try:
        told = pages.ask(*wanted.ops())
    except BadInput as error:
        missed = Unseen("what the extender says", str(error))
        return replace(seen, unseen=(*seen.unseen, missed))
    if told.closed:
        missed = Unseen("what the extender finds", told.closed)
        seen = replace(seen, unseen=(*seen.unseen, missed))
    if seen.installed == ():
        why = "no Deployment has the label app.kubernetes.io/name: gang-extender and runs `serve`"
        missed = Unseen("how the extender that answers is deployed", why)
        seen = replace(seen, unseen=(*seen.unseen, missed))
    return replace(
        seen,
        said=told.said,
        findings=told.findings,
        clocks=replace(seen.clocks, extender_s=told.ahead_s),
    )
