"""Checks of a KubeSchedulerConfiguration, its scheduler names and its feature gates."""

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

#: kube-scheduler's default timeout.
_DEFAULT_TIMEOUT_S = 5.0
EXTENDER_NOT_CONFIGURED = Check(
    "ExtenderNotConfigured",
    "the configuration has no extender: kube-scheduler schedules alone, and gangs start one by one",
    "add the `extenders` that `gang-extender scheduler-config` prints",
)
IGNORABLE_BIND = Check(
    "IgnorableBind",
    "from 1.30 on kube-scheduler binds a pod itself whose bind was refused: gangs start in part",
    "`ignorable: false` on the entry that binds",
)
IGNORABLE_FILTER = Check(
    "IgnorableFilter",
    "while no extender answers, filter admits all pods and their binds fail: this starts no pod,"
    " and costs a cycle each",
    "`ignorable: false` on every entry of ours",
    Severity.HINT,
)
TIMEOUT_MISSING = Check(
    "BindTimeoutMissing",
    "kube-scheduler times out a bind after 5 s, while it still waits for the rest of its gang:"
    " gangs fail and are retried",
    "`httpTimeout` of the entry that binds, as long as `--bind-timeout-s`",
)
TIMEOUT_SHORT = Check(
    "BindTimeoutShort",
    "kube-scheduler times out a bind before the extender does: it counts the capacity as free"
    " while the pod is still bound, and uses it twice",
    "`httpTimeout` of the entry that binds, as long as `--bind-timeout-s`",
)
NODE_CACHE_OFF = Check(
    "NodeCacheOff",
    "every call has whole nodes, and from 1.33 on kube-scheduler scores every node as idle: pods"
    " are packed on busy ones",
    "`nodeCacheCapable: true` on every entry of ours",
)
CA_MISSING = Check(
    "CAMissing",
    "without a CA kube-scheduler trusts any server, or none; and the server decides where pods run",
    "`tlsConfig.caFile`, and no `insecure`",
)
NO_CLIENT_CERTIFICATE = Check(
    "NoClientCertificate",
    "the hooks refuse a client without a certificate: nothing is scheduled",
    "`tlsConfig.certFile` and `tlsConfig.keyFile`",
)
PLAIN_HTTP = Check(
    "PlainHttp",
    "a machine on the network may answer for the extender, and any client of the port may bind"
    " pods",
    "https, or an extender in kube-scheduler's pod on loopback",
)
SINGLE_ENTRY = Check(
    "SingleEntry",
    "httpTimeout is per entry: a short one for filter cuts binds off, a long one for bind lets an"
    " unreachable extender block the scheduling loop",
    "two entries: filter, preempt and prioritize with a short timeout, bind with a long one",
)
TWO_BINDERS = Check(
    "TwoBinders",
    "kube-scheduler refuses a configuration with two extenders that bind, and does not start",
    "`bindVerb` in one entry alone",
)
NO_BIND = Check(
    "NoBind",
    "no bind waits for the other members of its gang: kube-scheduler binds each pod as it is"
    " scheduled",
    "an entry with `bindVerb: bind`",
)
NO_FILTER = Check(
    "NoFilter",
    "no gang waits for capacity for all of it: members fill nodes and wait for each other at bind",
    "an entry with `filterVerb: filter`",
)
NO_PREEMPT = Check(
    "NoPreempt",
    "kube-scheduler preempts members of running gangs, which then run in part",
    "`preemptVerb: preempt` beside `filterVerb`",
)
MANAGED_RESOURCES_SET = Check(
    "ManagedResourcesSet",
    "with managedResources kube-scheduler calls the extender only for pods that request one of"
    " these: all others are scheduled without it",
    "no `managedResources` on entries of ours",
)
PRIORITIZE_NOT_CALLED = Check(
    "PrioritizeNotCalled",
    "the extender is set to prefer nodes and prioritize is never called",
    "`prioritizeVerb: prioritize` and `weight: 1` beside `filterVerb`, or `--prefer nothing`",
    Severity.HINT,
)
LEASE_MISMATCH = Check(
    "LeaseMismatch",
    "the extender acts while kube-scheduler holds the configured lease, and this one holds"
    " another or none: no replica leads",
    "the same lease in `leaderElection` and in `--lease-name`, `--lease-namespace`",
)
CONFIGURATION = (
    EXTENDER_NOT_CONFIGURED, IGNORABLE_BIND, IGNORABLE_FILTER, TIMEOUT_MISSING, TIMEOUT_SHORT,
    NODE_CACHE_OFF, CA_MISSING, NO_CLIENT_CERTIFICATE, PLAIN_HTTP, SINGLE_ENTRY, TWO_BINDERS,
    NO_BIND, NO_FILTER, NO_PREEMPT, MANAGED_RESOURCES_SET, PRIORITIZE_NOT_CALLED,
    LEASE_MISMATCH,
)  # fmt: skip


def of_configurations(facts: ClusterFacts) -> Iterator[Problem]:
    """Check every configuration."""
    for config in facts.configurations:
        yield from _of_configuration(config)


def _of_configuration(config: SchedulerConfig) -> Iterator[Problem]:
    our_entries = entries(config.document)
    if not our_entries:
        yield EXTENDER_NOT_CONFIGURED.at(config.where, "it has no extenders")
        return
    yield from _of_all(config, our_entries)
    for entry in our_entries:
        where = f"{config.where}, {entry.place}"
        yield from _of_entry(entry, where)
        yield from _of_tls(entry, where)
        if entry.has("bind"):
            yield from _of_timeout(entry, where, config)
    yield from _of_lease(config)


def _of_all(config: SchedulerConfig, our_entries: Sequence[Entry]) -> Iterator[Problem]:
    binders = [each.place for each in our_entries if each.has("bind")]
    if len(binders) > 1:
        yield TWO_BINDERS.at(
            config.where,
            f"{' and '.join(binders)} have a bindVerb",
            f"take bindVerb out of {' and '.join(binders[1:])}",
        )
    for verb, check in (("bind", NO_BIND), ("filter", NO_FILTER), ("preempt", NO_PREEMPT)):
        if not any(each.has(verb) for each in our_entries):
            yield check.at(config.where, f"no entry of ours has a {verb}Verb")
    prefers = config.settings.prefer
    if prefers != "nothing" and not any(each.has("prioritize") for each in our_entries):
        yield PRIORITIZE_NOT_CALLED.at(
            config.where, f"the extender has --prefer={prefers}, and no entry a prioritizeVerb"
        )


def _of_entry(entry: Entry, where: str) -> Iterator[Problem]:
    if entry.document.get("ignorable") is True:
        check = IGNORABLE_BIND if entry.has("bind") else IGNORABLE_FILTER
        yield check.at(where, "ignorable: true", f"write `ignorable: false` into {entry.place}")
    if entry.document.get("nodeCacheCapable") is not True:
        seen = "nodeCacheCapable: false" if "nodeCacheCapable" in entry.document else "not set"
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


def _of_timeout(entry: Entry, where: str, config: SchedulerConfig) -> Iterator[Problem]:
    timeout_setting, hold_s = config.settings.bind_timeout_s, config.settings.hold_s
    origin = (
        "the defaults, because no extender was found" if config.is_assumed else "of the extender"
    )
    mend = f"write `httpTimeout: {timeout_setting:g}s` into {entry.place}"
    timeout_s = entry.timeout_s
    if not timeout_s:
        yield TIMEOUT_MISSING.at(
            where,
            f"no httpTimeout, which means {_DEFAULT_TIMEOUT_S:g}s; a bind waits {hold_s:g}s",
            mend,
        )
    elif timeout_s < timeout_setting:
        yield TIMEOUT_SHORT.at(
            where,
            f"httpTimeout: {entry.document['httpTimeout']}; --hold-s is {hold_s:g} and"
            f" --bind-timeout-s {timeout_setting:g} ({origin})",
            f"{mend}, or give the extender --hold-s and --bind-timeout-s that are shorter",
        )


def _of_lease(config: SchedulerConfig) -> Iterator[Problem]:
    settings = config.settings
    if settings.lease != "scheduler":
        return
    election = config.document.get("leaderElection") or {}
    has = (
        f"{election.get('resourceNamespace') or 'kube-system'}/"
        f"{election.get('resourceName') or 'kube-scheduler'}"
        if election.get("leaderElect", True)
        else "none"
    )
    configured = f"{settings.lease_namespace or settings.pod_namespace}/{settings.lease_name}"
    # The default namespace is that of the pod, which is not known here.
    if has.partition("/")[2] == settings.lease_name and configured.startswith("/"):
        return
    if has != configured:
        namespace, _, name = configured.partition("/")
        yield LEASE_MISMATCH.at(
            f"{config.where}, leaderElection",
            f"kube-scheduler's lease is {has}, and the extender follows {configured}",
            f"write `leaderElection: {{leaderElect: true, resourceName: {name},"
            f" resourceNamespace: {namespace}}}`",
        )


PROFILE_NOT_SERVED = Check(
    "ProfileNotServed",
    "kube-scheduler has a profile for a name that the extender does not serve: gangs of that name"
    " start one by one",
    "`--scheduler-name` for that name, or no profile of it in a kube-scheduler with the extender",
)
PROFILE_MISSING = Check(
    "ProfileMissing",
    "the extender serves a name without a profile: no kube-scheduler schedules its pods, and they"
    " wait for ever",
    "a profile with that `schedulerName`, or no `--scheduler-name` of it",
)
NAMES = (PROFILE_NOT_SERVED, PROFILE_MISSING)


def of_names(facts: ClusterFacts) -> Iterator[Problem]:
    """Compare each extender with the configurations that name it, where one is known."""
    for each in facts.installed or ():
        settings = each.settings
        configurations = [config for config in facts.configurations if config.settings is settings]
        if settings is None or not configurations:
            continue
        served = settings.scheduler_name
        for config in configurations:
            yield from _unserved(config, each, served)
        have = {name for config in configurations for name in profiles(config.document)}
        for name in served:
            if name not in have:
                where = " and ".join(config.where for config in configurations)
                yield PROFILE_MISSING.at(
                    each.where,
                    f"it serves {name}, and {where} has no such profile",
                    f"add `- schedulerName: {name}` to profiles, or name with --scheduler-name only"
                    f" what has one ({', '.join(sorted(have))})",
                )


def _unserved(
    config: SchedulerConfig, each: ExtenderDeployment, served: tuple[str, ...]
) -> Iterator[Problem]:
    for name in profiles(config.document):
        if name not in served:
            yield PROFILE_NOT_SERVED.at(
                f"{config.where}, profiles",
                f"it has {name}, and {each.where} serves {', '.join(served)}",
                f"add `--scheduler-name={name}` to the arguments of {each.where}, or take the"
                " profile out",
            )


#: The gates with which kube-scheduler schedules gangs itself: off by default in 1.35 to 1.37.
GATES = ("GangScheduling", "GenericWorkload")
NATIVE_GANGS = Check(
    "NativeGangs",
    "kube-scheduler itself schedules pods with a `schedulingGroup` as a gang (1.35 and later):"
    " they ignore the order of our queues and waiting binds, and one that does not fit is filtered"
    " without end",
    "the feature gates off, in kube-scheduler and API server, or no pods with a `schedulingGroup`",
)
FEATURES = (NATIVE_GANGS,)


def of_features(facts: ClusterFacts) -> Iterator[Problem]:
    """Find feature gates of native gangs that are on."""
    for scheduler in facts.schedulers:
        if on := [gate for gate in GATES if scheduler.gates.get(gate)]:
            yield _native_gangs(scheduler.where, on)
    if on := [gate for gate in GATES if gate in facts.server_gates]:
        yield _native_gangs("the API server", on)


def _native_gangs(where: str, gates: list[str]) -> Problem:
    off = ",".join(f"{gate}=false" for gate in gates)
    return NATIVE_GANGS.at(
        where, f"{' and '.join(gates)} on", f"write `--feature-gates={off}` into its command"
    )
