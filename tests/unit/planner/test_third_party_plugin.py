"""The plugin of docs/plugins.md, loaded as a third-party package."""

from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from extender.errors import InvalidConfiguration
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.planner.plugins import registry
from tests.builders import gang, node, snapshot

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found.group(1)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package of the page."""
    (tmp_path / "my_package.py").write_text(block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    name, _, value = block("toml").splitlines()[1].partition(" = ")
    point = EntryPoint(name, value.strip('"'), registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "third_party", lambda: {point.name: point})


def test_the_plugin_decides_which_gang_goes_first_and_which_node_is_not_used(
    installed: None,
) -> None:
    courtesy = policy_parser.parse(block("yaml"), "page")
    state = snapshot(
        [node("a", cpu=1), node("b-quiet", cpu=1)],
        [gang("batch/early", 1, cpu=1, created=1), gang("web/late", 1, cpu=1, created=2)],
    )

    placements = make_plan(state, courtesy).placements

    assert [(key, list(t.placements.values())) for key, t in placements.items()] == [
        ("web/late", ["a"])
    ]


def test_a_misspelt_name_is_answered_with_the_nearest_one(installed: None) -> None:
    with pytest.raises(InvalidConfiguration, match="courtesy"):
        policy_parser.parse("tiers: [{plugins: [{name: courtsey}]}]", "page")


def test_arguments_of_the_plugin_are_checked_only_if_it_names_them(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "tiers: [{plugins: [{name: courtesy, arguments: {polite-namspace: x}}]}]"
    assert policy_parser.parse(text, "page").remarks == ()

    plugin = sys.modules["my_package"].Courtesy
    monkeypatch.setattr(plugin, "known", ("polite-namespace",))
    with pytest.raises(InvalidConfiguration, match="did you mean 'polite-namespace'"):
        policy_parser.parse(text, "page")


def test_an_installed_plugin_runs_only_if_the_policy_names_it_and_replaces_no_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unasked_package.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    points = {
        name: EntryPoint(name, "unasked_package:Anything", registry.ENTRY_POINTS)
        for name in ("unasked", "gang", "drf", "binpack")
    }
    monkeypatch.setattr(registry, "third_party", lambda: points)
    policy = policy_parser.parse("tiers: [{plugins: [{name: gang}, {name: drf}]}]", "page")

    make_plan(snapshot([node("a", cpu=1)], [gang("web/late", 1, cpu=1)]), policy)

    assert "unasked_package" not in sys.modules
