"""Traps between the profiles of kube-scheduler and the names that the extender serves."""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.entries import profiles
from extender.doctor.seen import Installed, SchedulerConfig, Seen
from extender.doctor.trap import Caught, Trap

PROFILE_UNSERVED = Trap(
    "ProfileUnserved",
    "kube-scheduler has a profile for a name that the extender does not serve: gangs of that name"
    " start one by one",
    "`--scheduler-name` for that name, or no profile of it in a kube-scheduler that asks us",
)
NAME_WITHOUT_PROFILE = Trap(
    "NameWithoutProfile",
    "the extender serves a name that no profile has: no kube-scheduler ever takes its pods, and"
    " they wait for ever",
    "a profile with that `schedulerName`, or no `--scheduler-name` of it",
)

TRAPS = (PROFILE_UNSERVED, NAME_WITHOUT_PROFILE)


def of_names(seen: Seen) -> Iterator[Caught]:
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
                yield NAME_WITHOUT_PROFILE.at(
                    each.where,
                    f"it serves {name}, and {where} has no such profile",
                    f"add `- schedulerName: {name}` to profiles, or name with --scheduler-name only"
                    f" what has one ({', '.join(sorted(have))})",
                )


def _unserved(told: SchedulerConfig, each: Installed, served: tuple[str, ...]) -> Iterator[Caught]:
    for name in profiles(told.document):
        if name not in served:
            yield PROFILE_UNSERVED.at(
                f"{told.where}, profiles",
                f"it has {name}, and {each.where} serves {', '.join(served)}",
                f"add `--scheduler-name={name}` to the arguments of {each.where}, or take the"
                " profile out",
            )
