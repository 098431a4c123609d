"""The table of a walk: how often each fault was injected at each call, and the breaches."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from tests.nightly.faults.fault_points import Fault

from .walk import TOO_MUCH, Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with a row per site and a column per fault; breaches as `3 of 12`."""
    tried: Counter[tuple[str, Fault]] = Counter()
    broken: Counter[tuple[str, Fault]] = Counter()
    for each in outcomes:
        if each.tried.point is not None and each.was_met:
            cell = each.tried.point.site, each.tried.point.fault
            tried[cell] += 1
            broken[cell] += bool(each.breaches)
    sites = sorted({site for site, _ in tried})
    faults = [fault for fault in Fault if any((site, fault) in tried for site in sites)]
    rows = [
        "| call | " + " | ".join(faults) + " | points | breaches |",
        "|---" * (len(faults) + 3) + "|",
    ]
    for site in sites:
        cells = [_cell(tried[site, fault], broken[site, fault]) for fault in faults]
        points = sum(tried[site, fault] for fault in faults)
        breaches = sum(broken[site, fault] for fault in faults)
        rows.append(f"| {site} | " + " | ".join(cells) + f" | {points} | {breaches} |")
    rows.append(
        "| all | "
        + " | ".join(
            _cell(sum(tried[s, f] for s in sites), sum(broken[s, f] for s in sites)) for f in faults
        )
        + f" | {sum(tried.values())} | {sum(broken.values())} |"
    )
    return "\n".join(rows)


def figures(outcomes: Sequence[Outcome]) -> str:
    """Return a summary of the walk."""
    met = [each for each in outcomes if each.was_met]
    lines = [
        f"{len(met)} points in {len({each.tried.scene.name for each in met})} scenes,"
        f" {sum(bool(each.breaches) for each in outcomes)} with a breach;"
        f" {len(outcomes) - len(met)} more did not reach their call",
        f"longest in part: {max((each.partial_s for each in outcomes), default=0.0):.2f} s;"
        f" a point took {statistics.median(each.took_s for each in outcomes):.1f} s,"
        f" at most {max(each.took_s for each in outcomes):.1f} s",
    ]
    if disturbed := sum(bool(each.disturbed) for each in outcomes):
        lines.append(
            f"{disturbed} broke while the host took more than {TOO_MUCH:.0%} of the processors,"
            " and were repeated"
        )
    for only_killed, what in (
        (True, "ready again after SIGKILL, with its modules imported before"),
        (False, "with a failed call at its start"),
    ):
        if again := [
            (seconds, str(each.tried))
            for each in outcomes
            if each.tried.is_only_killed is only_killed
            for seconds in each.ready_again_s
        ]:
            median = statistics.median(seconds for seconds, _ in again)
            longest, where = max(again)
            lines.append(
                f"{what}: {len(again)} times, median {median:.1f} s,"
                f" at most {longest:.1f} s ({where})"
            )
    return "\n".join(lines)


def _cell(tried: int, broken: int) -> str:
    if not tried:
        return ""
    return f"**{broken} of {tried}**" if broken else str(tried)
