"""What a scenario says in vain: words that would be passed over, and what comes too late."""

from __future__ import annotations

from collections.abc import Iterator

from extender.errors import BadInput
from extender.sim.chance import seconds
from extender.sim.scenario import Given, Scenario, Stream, jobs_of, span_s


def check(scenario: Scenario, name: str) -> None:
    """Raise `BadInput` for arrivals of which a part would silently do nothing."""
    for stream in scenario.arrivals:
        if wrong := _wrong(stream):
            raise BadInput(f"{name}: arrivals {stream.name}: {wrong}")


def _wrong(stream: Stream) -> str:
    if stream.plain and (stream.size != 1 or stream.least is not None):
        return "plain pods have no gang, so no size and no least; give count, or leave out plain"
    if stream.before is None:
        return ""
    if stream.every is not None:
        return "both every and before; leave one of them out"
    if seconds(stream.before, "before") < seconds(stream.after, "after"):
        return f"before {stream.before} is earlier than after {stream.after}; give the later one"
    return ""


def remarks(scenario: Scenario, given: Given) -> Iterator[str]:
    """Say what comes after the end; of a trace that is said where it is read."""
    span, of_trace = span_s(scenario), {id(job) for job in given.jobs}
    jobs = [job for job in jobs_of(scenario, given) if id(job) not in of_trace]
    if late := sum(job.arrives_s > span for job in jobs):
        yield f"arrivals: {late} of {len(jobs)} gangs would come after the span"
    at = [seconds(mishap.at, "at") for mishap in scenario.mishaps]
    if late := sum(each > span for each in at):
        yield f"mishaps: {late} of {len(at)} would come after the span"
