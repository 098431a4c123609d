"""Where two tellings of a story differ, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .story import Outcome, Story

#: How the three are called.
WRITTEN = "as it is written"
EMBEDDED = "on the embedded cluster"
REAL = "on the real control plane"


def differences(story: Story, tellings: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Say for every step who did not end in the same way everywhere, and how it ended where."""
    found = []
    for number, step in enumerate(story.steps):
        outcomes = {where: told[number] for where, told in tellings.items()}
        for who in _everybody(outcomes.values(), step.then):
            ends = {where: outcome.get(who, "not there") for where, outcome in outcomes.items()}
            if len(set(ends.values())) > 1:
                said = "; ".join(f"{where}: {end}" for where, end in ends.items())
                found.append(f"story {story.name}, step {number + 1}, {who}: {said}")
    return found


def written(story: Story) -> list[Outcome]:
    """Give what the story itself says."""
    return [step.then for step in story.steps]


def _everybody(outcomes: Iterable[Outcome], then: Outcome) -> list[str]:
    return list(dict.fromkeys([*then, *(who for outcome in outcomes for who in outcome)]))
