"""Runs the same stories on the real control plane and the embedded cluster.

After each step, what started and the reasons of what waits must be equal (`tests/unit/stories`).
Times, chosen nodes and the order of equal gangs are not compared.
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
from .story_cluster import RealCluster
from .train_gang import GangScheduler, running_pair

STORIES = {story.name: story for story in stories()}


@dataclass(frozen=True, slots=True)
class StoryPair:
    """A pair, and the policy file that it reads before each plan."""

    pair: GangScheduler
    policy: Path


@pytest.fixture(scope="module")
def story_pair(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoryPair]:
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(policy_parser.DEFAULT_TEXT)
    with running_pair(plane, f"--config={policy}", scheduler_name=SCHEDULER) as pair:
        yield StoryPair(pair, policy)


def run_on_real_cluster(
    plane: ControlPlane, story_pair: StoryPair, namespace: str, story: Story
) -> list[Outcome]:
    # Before any node exists: the plans with nodes have read it.
    story_pair.policy.write_text(policy_of(story))
    with RealCluster(plane, story_pair.pair, namespace) as cluster:
        return run_story(story, cluster)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_embedded_and_real_cluster_have_the_same_outcomes(
    plane: ControlPlane, story_pair: StoryPair, namespace: str, story: Story
) -> None:
    found = differences(
        story,
        {
            WRITTEN: written(story),
            EMBEDDED: run_story(story, EmbeddedCluster(policy_of(story))),
            REAL: run_on_real_cluster(plane, story_pair, namespace, story),
        },
    )

    assert not found, "\n".join(found)
