"""What the manual shows is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.kube.decode import membership
from extender.plan.policy import policies
from extender.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)


def test_the_policy_of_the_manual_is_the_one_in_force_without_a_file() -> None:
    shown, _ = yaml_blocks("configuration.md")

    parsed = policies.parse(shown, "manual")
    assert parsed.actions == policies.DEFAULT.actions
    assert parsed.tiers == policies.DEFAULT.tiers


def test_the_flat_file_of_the_manual_is_read() -> None:
    _, flat = yaml_blocks("configuration.md")

    (tier,) = policies.parse(flat, "manual").tiers
    assert " ".join(option.name for option in tier) == "gang priority drf predicates proportion"


def test_the_concepts_name_the_keys_of_groups_in_the_order_in_which_they_win() -> None:
    text = (DOCS / "concepts.md").read_text().partition("## What a pod sets")[2]
    named, _, rest = text.partition("Without any PodGroup")

    assert tuple(re.findall(r"`([^`]+)`", named)) == membership._GROUP_KEYS
    ours = re.search(r"one of ours\n\(([^)]*)\)", rest)
    assert ours is not None
    assert tuple(re.findall(r"`([^`]+)`", ours[1])) == Settings().scheduler_name


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target
