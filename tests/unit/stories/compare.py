"""Differences between runs of a story, as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .story import Outcome, Story

#: Names of the three sources of outcomes.
WRITTEN = "as it is written"
EMBEDDED = "on the embedded cluster"
REAL = "on the real control plane"


def differences(story: Story, runs: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Describe every workload whose outcome differs in some step."""
    found = []
    for number, step in enumerate(story.steps):
        outcomes = {where: outcomes_there[number] for where, outcomes_there in runs.items()}
        for name in _workloads(outcomes.values(), step.then):
            ends = {where: outcome.get(name, "not there") for where, outcome in outcomes.items()}
            if len(set(ends.values())) > 1:
                ends_text = "; ".join(f"{where}: {end}" for where, end in ends.items())
                found.append(f"story {story.name}, step {number + 1}, {name}: {ends_text}")
    return found


def written(story: Story) -> list[Outcome]:
    """Return the outcomes that the story expects."""
    return [step.then for step in story.steps]


def _workloads(outcomes: Iterable[Outcome], then: Outcome) -> list[str]:
    return list(dict.fromkeys([*then, *(name for outcome in outcomes for name in outcome)]))
