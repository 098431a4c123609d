"""Every story on the embedded cluster, and that every difference is found."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from extender.planner import policy_parser

from .compare import EMBEDDED, REAL, WRITTEN, differences, written
from .embedded import EmbeddedCluster, policy_of
from .runner import run_story
from .story import InvalidStory, Story, read, stories

STORIES = {story.name: story for story in stories()}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_the_embedded_cluster_has_the_written_outcomes(story: Story) -> None:
    told = run_story(story, EmbeddedCluster(policy_of(story)))

    assert differences(story, {WRITTEN: written(story), EMBEDDED: told}) == []


# A comparison that never fails compares nothing.


def test_a_removed_rule_of_the_policy_is_a_difference() -> None:
    story = STORIES["family"]
    without_ceilings = policy_parser.DEFAULT_TEXT.replace("  - name: proportion\n", "")
    told = {
        EMBEDDED: run_story(story, EmbeddedCluster(without_ceilings)),
        REAL: run_story(story, EmbeddedCluster()),
    }

    assert differences(story, told) == [
        "story family, step 2, second: on the embedded cluster: runs 3;"
        " on the real control plane: waits QueueAtCapability",
    ]


def test_the_order_of_identical_gangs_is_no_difference() -> None:
    story = STORIES["deadlock"]
    (nodes, gangs), first = story.steps[0].do, story.steps[0]
    verb, (red, blue) = gangs
    turned = replace(first, do=(nodes, (verb, [blue, red])))
    other = replace(story, steps=(turned, *story.steps[1:]))

    assert (
        run_story(other, EmbeddedCluster()) == run_story(story, EmbeddedCluster()) == written(story)
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("about: x\nstep: []\nsteps: []", "story s: unknown key step; write"),
        (
            "about: x\nsteps: [{do: [{nod: {}}], then: {}}]",
            "story s, step 1: unknown action 'nod'",
        ),
        (
            "about: x\nsteps: [{do: [], then: {red: waits NoRoom}}]",
            "story s, step 1: red cannot end as 'waits NoRoom'",
        ),
    ],
)
def test_an_invalid_story_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(InvalidStory, match=re.escape(complaint)):
        read("s", text)
