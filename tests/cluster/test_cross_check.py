"""The same stories on the real control plane and the embedded cluster: who starts, who waits, why.

What is compared after each step of a story is in `tests/unit/stories`. Nothing is compared that
hangs
on time, on the node that was chosen, or on which of several gangs that are alike was first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from extender.planner import policy_parser
from tests.unit.stories.cluster import SCHEDULER
from tests.unit.stories.compare import EMBEDDED, REAL, WRITTEN, differences, written
from tests.unit.stories.embedded import EmbeddedCluster, policy_of
from tests.unit.stories.runner import run_story
from tests.unit.stories.story import Outcome, Story, stories

from .control_plane import ControlPlane
from .stage import GangScheduler, running_pair
from .story_stage import PlaneStage

STORIES = {story.name: story for story in stories()}


@dataclass(frozen=True, slots=True)
class Theatre:
    """A pair, and the policy file that it reads before every plan."""

    pair: GangScheduler
    policy: Path


@pytest.fixture(scope="module")
def theatre(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(policy_parser.DEFAULT_TEXT)
    with running_pair(plane, f"--config={policy}", scheduler_name=SCHEDULER) as pair:
        yield Theatre(pair, policy)


def on_the_real_one(
    plane: ControlPlane, theatre: Theatre, namespace: str, story: Story
) -> list[Outcome]:
    # Before any node is there: the plans that see those have read it.
    theatre.policy.write_text(policy_of(story))
    with PlaneStage(plane, theatre.pair, namespace) as stage:
        return run_story(story, stage)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_the_embedded_cluster_and_the_real_one_tell_the_same_story(
    plane: ControlPlane, theatre: Theatre, namespace: str, story: Story
) -> None:
    found = differences(
        story,
        {
            WRITTEN: written(story),
            EMBEDDED: run_story(story, EmbeddedCluster(policy_of(story))),
            REAL: on_the_real_one(plane, theatre, namespace, story),
        },
    )

    assert not found, "\n".join(found)


def test_an_embedded_cluster_that_decides_otherwise_is_found_out(
    plane: ControlPlane, theatre: Theatre, namespace: str
) -> None:
    story = STORIES["family"]
    without_ceilings = policy_parser.DEFAULT_TEXT.replace("  - name: proportion\n", "")

    found = differences(
        story,
        {
            EMBEDDED: run_story(story, EmbeddedCluster(without_ceilings)),
            REAL: on_the_real_one(plane, theatre, namespace, story),
        },
    )

    assert found == [
        "story family, step 2, second: on the embedded cluster: runs 3;"
        " on the real control plane: waits QueueAtCapability",
    ]
