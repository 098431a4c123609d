"""Traps in the extenders of a KubeSchedulerConfiguration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.doctor.facts import (
    Check,
    ClusterFacts,
    ExtenderDeployment,
    Problem,
    SchedulerConfig,
    Severity,
)
from extender.doctor.scheduler_config import Entry, entries, profiles

#: What kube-scheduler waits where nothing is said.
_USUAL_TIMEOUT_S = 5.0
EXTENDER_NOT_CONFIGURED = Check(
    "ExtenderNotConfigured",
    "the configuration names no extender: kube-scheduler schedules by itself, and gangs start one"
    " by one",
    "write the `extenders` that `gang-extender scheduler-config` prints",
)
IGNORABLE_BIND = Check(
    "IgnorableBind",
    "from 1.30 on kube-scheduler itself binds a pod whose bind we refused: gangs start in part",
    "`ignorable: false` on the entry that binds",
)
IGNORABLE_FILTER = Check(
    "IgnorableFilter",
    "while nobody of us answers, pods pass the filter unseen and fail at bind: it helps nobody,"
    " and costs a cycle each",
    "`ignorable: false` on every entry of ours",
    Severity.HINT,
)
TIMEOUT_MISSING = Check(
    "BindTimeoutMissing",
    "kube-scheduler gives a bind up after 5 s, while it still waits for the rest of its gang:"
    " gangs come apart and try again",
    "`httpTimeout` of the entry that binds, as long as `--bind-timeout-s`",
)
TIMEOUT_SHORT = Check(
    "BindTimeoutShort",
    "kube-scheduler gives a bind up before we do: it thinks the room is free while we still bind,"
    " and gives it away twice",
    "`httpTimeout` of the entry that binds, as long as `--bind-timeout-s`",
)
NODE_CACHE_OFF = Check(
    "NodeCacheOff",
    "whole nodes are sent with every call, and from 1.33 on kube-scheduler scores every node as"
    " idle: pods pile up on busy ones",
    "`nodeCacheCapable: true` on every entry of ours",
)
CA_MISSING = Check(
    "CAMissing",
    "without a CA kube-scheduler believes whoever answers, or nobody; and whoever answers decides"
    " where pods run",
    "`tlsConfig.caFile`, and no `insecure`",
)
NO_CLIENT_CERTIFICATE = Check(
    "NoClientCertificate",
    "our hooks refuse a caller that shows no certificate: nothing is scheduled",
    "`tlsConfig.certFile` and `tlsConfig.keyFile`",
)
PLAIN_HTTP = Check(
    "PlainHttp",
    "whoever is on the way may answer in our place, and whoever reaches the port may bind pods",
    "https, or an extender beside kube-scheduler on loopback",
)
SINGLE_ENTRY = Check(
    "SingleEntry",
    "httpTimeout is per entry: one that fits a filter cuts binds off, one that fits a bind lets a"
    " dead extender stop the scheduling loop for as long",
    "two entries: filter, preempt and prioritize in a quick one, bind in a slow one",
)
TWO_BINDERS = Check(
    "TwoBinders",
    "kube-scheduler refuses a configuration with two extenders that bind, and does not start",
    "`bindVerb` in one entry alone",
)
NO_BIND = Check(
    "NoBind",
    "nobody holds the members of a gang until all are there: kube-scheduler binds each when it is"
    " its turn",
    "an entry with `bindVerb: bind`",
)
NO_FILTER = Check(
    "NoFilter",
    "nobody keeps a gang back until there is room for all of it: members fill nodes and wait for"
    " each other at bind",
    "an entry with `filterVerb: filter`",
)
NO_PREEMPT = Check(
    "NoPreempt",
    "kube-scheduler evicts members of running gangs without asking, and tears them",
    "`preemptVerb: preempt` beside `filterVerb`",
)
MANAGED_RESOURCES_SET = Check(
    "ManagedResourcesSet",
    "with managedResources kube-scheduler asks about pods that request one of these alone: all"
    " others pass us by",
    "no `managedResources` on entries of ours",
)
PRIORITIZE_NOT_CALLED = Check(
    "PrioritizeNotCalled",
    "the extender is set to prefer nodes and is never asked which",
    "`prioritizeVerb: prioritize` and `weight: 1` beside `filterVerb`, or `--prefer nothing`",
    Severity.HINT,
)
LEASE_MISMATCH = Check(
    "LeaseMismatch",
    "the extender acts while kube-scheduler holds the lease that it was told of, and this one"
    " holds another or none: nobody leads",
    "`leaderElection` and `--lease-name`, `--lease-namespace` that say the same",
)
CONFIGURATION = (
    EXTENDER_NOT_CONFIGURED, IGNORABLE_BIND, IGNORABLE_FILTER, TIMEOUT_MISSING, TIMEOUT_SHORT,
    NODE_CACHE_OFF, CA_MISSING, NO_CLIENT_CERTIFICATE, PLAIN_HTTP, SINGLE_ENTRY, TWO_BINDERS,
    NO_BIND, NO_FILTER, NO_PREEMPT, MANAGED_RESOURCES_SET, PRIORITIZE_NOT_CALLED,
    LEASE_MISMATCH,
)  # fmt: skip


def of_configuration(told: SchedulerConfig) -> Iterator[Problem]:
    """Find the traps of one configuration."""
    ours = entries(told.document)
    if not ours:
        yield EXTENDER_NOT_CONFIGURED.at(told.where, "it has no extenders")
        return
    yield from _of_all(told, ours)
    for entry in ours:
        where = f"{told.where}, {entry.place}"
        yield from _of_entry(entry, where)
        yield from _of_tls(entry, where)
        if entry.has("bind"):
            yield from _of_timeout(entry, where, told)
    yield from _of_lease(told)


def _of_all(told: SchedulerConfig, ours: Sequence[Entry]) -> Iterator[Problem]:
    binders = [each.place for each in ours if each.has("bind")]
    if len(binders) > 1:
        yield TWO_BINDERS.at(
            told.where,
            f"{' and '.join(binders)} have a bindVerb",
            f"take bindVerb out of {' and '.join(binders[1:])}",
        )
    for verb, trap in (("bind", NO_BIND), ("filter", NO_FILTER), ("preempt", NO_PREEMPT)):
        if not any(each.has(verb) for each in ours):
            yield trap.at(told.where, f"no entry of ours has a {verb}Verb")
    prefers = told.settings.prefer
    if prefers != "nothing" and not any(each.has("prioritize") for each in ours):
        yield PRIORITIZE_NOT_CALLED.at(
            told.where, f"the extender has --prefer={prefers}, and no entry a prioritizeVerb"
        )


def _of_entry(entry: Entry, where: str) -> Iterator[Problem]:
    if entry.document.get("ignorable") is True:
        trap = IGNORABLE_BIND if entry.has("bind") else IGNORABLE_FILTER
        yield trap.at(where, "ignorable: true", f"write `ignorable: false` into {entry.place}")
    if entry.document.get("nodeCacheCapable") is not True:
        seen = "nodeCacheCapable: false" if "nodeCacheCapable" in entry.document else "none is said"
        mend = f"write `nodeCacheCapable: true` into {entry.place}"
        yield NODE_CACHE_OFF.at(where, seen, mend)
    quick = [verb for verb in ("filter", "prioritize", "preempt") if entry.has(verb)]
    if entry.has("bind") and quick:
        yield SINGLE_ENTRY.at(
            where,
            f"it has a bindVerb and a {quick[0]}Verb",
            f"copy {entry.place} and leave bindVerb in one, the other verbs in the other;"
            " `gang-extender scheduler-config` prints both",
        )
    if managed := entry.document.get("managedResources"):
        names = [str(each.get("name")) for each in managed if isinstance(each, dict)]
        yield MANAGED_RESOURCES_SET.at(
            where,
            f"managedResources: {', '.join(names)}",
            f"take managedResources out of {entry.place}",
        )


def _of_tls(entry: Entry, where: str) -> Iterator[Problem]:
    if not entry.is_https:
        if not entry.is_loopback:
            yield PLAIN_HTTP.at(
                where,
                f"urlPrefix: {entry.url}",
                "make certificates (`gang-extender certificates`) and write the configuration"
                f" anew: `gang-extender scheduler-config --url https://{entry.server} …`",
            )
        return
    tls = entry.tls
    if tls.get("insecure") or not (tls.get("caFile") or tls.get("caData")):
        seen = "tlsConfig.insecure: true" if tls.get("insecure") else "no tlsConfig.caFile"
        yield CA_MISSING.at(
            where, f"{entry.url}, {seen}", f"write `caFile` into tlsConfig of {entry.place}"
        )
    if not (tls.get("certFile") or tls.get("certData")):
        yield NO_CLIENT_CERTIFICATE.at(
            where,
            f"{entry.url}, no tlsConfig.certFile",
            f"write `certFile` and `keyFile` into tlsConfig of {entry.place};"
            " `gang-extender certificates` makes them",
        )


def _of_timeout(entry: Entry, where: str, told: SchedulerConfig) -> Iterator[Problem]:
    ours, hold_s = told.settings.bind_timeout_s, told.settings.hold_s
    whose = "usual, for no extender was asked" if told.is_assumed else "of the extender"
    mend = f"write `httpTimeout: {ours:g}s` into {entry.place}"
    timeout_s = entry.timeout_s
    if not timeout_s:
        yield TIMEOUT_MISSING.at(
            where,
            f"no httpTimeout, which means {_USUAL_TIMEOUT_S:g}s; a bind waits {hold_s:g}s",
            mend,
        )
    elif timeout_s < ours:
        yield TIMEOUT_SHORT.at(
            where,
            f"httpTimeout: {entry.document['httpTimeout']}; --hold-s is {hold_s:g} and"
            f" --bind-timeout-s {ours:g} ({whose})",
            f"{mend}, or give the extender --hold-s and --bind-timeout-s that are shorter",
        )


def _of_lease(told: SchedulerConfig) -> Iterator[Problem]:
    settings = told.settings
    if settings.lease != "scheduler":
        return
    election = told.document.get("leaderElection") or {}
    has = (
        f"{election.get('resourceNamespace') or 'kube-system'}/"
        f"{election.get('resourceName') or 'kube-scheduler'}"
        if election.get("leaderElect", True)
        else "none"
    )
    wanted = f"{settings.lease_namespace or settings.pod_namespace}/{settings.lease_name}"
    # Without a namespace it is that of the pod, which is not known here.
    if has.partition("/")[2] == settings.lease_name and wanted.startswith("/"):
        return
    if has != wanted:
        namespace, _, name = wanted.partition("/")
        yield LEASE_MISMATCH.at(
            f"{told.where}, leaderElection",
            f"kube-scheduler's lease is {has}, and the extender follows {wanted}",
            f"write `leaderElection: {{leaderElect: true, resourceName: {name},"
            f" resourceNamespace: {namespace}}}`",
        )


PROFILE_NOT_SERVED = Check(
    "ProfileNotServed",
    "kube-scheduler has a profile for a name that the extender does not serve: gangs of that name"
    " start one by one",
    "`--scheduler-name` for that name, or no profile of it in a kube-scheduler that asks us",
)
PROFILE_MISSING = Check(
    "ProfileMissing",
    "the extender serves a name that no profile has: no kube-scheduler ever takes its pods, and"
    " they wait for ever",
    "a profile with that `schedulerName`, or no `--scheduler-name` of it",
)
NAMES = (PROFILE_NOT_SERVED, PROFILE_MISSING)


def of_names(seen: ClusterFacts) -> Iterator[Problem]:
    """Compare each extender with the configurations that lead to it, where one is known."""
    for each in seen.installed or ():
        settings = each.settings
        configurations = [told for told in seen.configurations if told.settings is settings]
        if settings is None or not configurations:
            continue
        served = settings.scheduler_name
        for told in configurations:
            yield from _unserved(told, each, served)
        have = {name for told in configurations for name in profiles(told.document)}
        for name in served:
            if name not in have:
                where = " and ".join(told.where for told in configurations)
                yield PROFILE_MISSING.at(
                    each.where,
                    f"it serves {name}, and {where} has no such profile",
                    f"add `- schedulerName: {name}` to profiles, or name with --scheduler-name only"
                    f" what has one ({', '.join(sorted(have))})",
                )


def _unserved(
    told: SchedulerConfig, each: ExtenderDeployment, served: tuple[str, ...]
) -> Iterator[Problem]:
    for name in profiles(told.document):
        if name not in served:
            yield PROFILE_NOT_SERVED.at(
                f"{told.where}, profiles",
                f"it has {name}, and {each.where} serves {', '.join(served)}",
                f"add `--scheduler-name={name}` to the arguments of {each.where}, or take the"
                " profile out",
            )


#: By these kube-scheduler assembles gangs itself: off by default in 1.35 to 1.37.
GATES = ("GangScheduling", "GenericWorkload")
NATIVE_GANGS = Check(
    "NativeGangs",
    "kube-scheduler assembles pods with a `schedulingGroup` itself (1.35 and later): they pass us"
    " by, without our queues' order and without our hold, and one that does not fit asks our"
    " filter without end",
    "the feature gates off, in kube-scheduler and API server, or no pods with a `schedulingGroup`",
)
FEATURES = (NATIVE_GANGS,)


def of_features(seen: ClusterFacts) -> Iterator[Problem]:
    """Name everybody who has a gate of native gangs on."""
    for scheduler in seen.schedulers:
        if on := [gate for gate in GATES if scheduler.gates.get(gate)]:
            yield _caught(scheduler.where, on)
    if on := [gate for gate in GATES if gate in seen.server_gates]:
        yield _caught("the API server", on)


def _caught(where: str, gates: list[str]) -> Problem:
    off = ",".join(f"{gate}=false" for gate in gates)
    return NATIVE_GANGS.at(
        where, f"{' and '.join(gates)} on", f"write `--feature-gates={off}` into its command"
    )
