"""The flat form of kube-batch until 0.3: plugins in one row, without tiers."""

from __future__ import annotations

import pytest

from extender.errors import InvalidConfiguration
from extender.planner import policy_parser

#: What was in force there without a file, as the data of a ConfigMap.
WHOLE = """
actions: "reclaim, allocate, backfill, preempt"
plugins: "gang, priority, drf, predicates, proportion"
plugin.gang.jobready: "true"
plugin.gang.joborder: "true"
plugin.gang.preemptable: "true"
plugin.priority.joborder: "true"
plugin.priority.taskorder: "true"
plugin.drf.preemptable: "true"
plugin.drf.joborder: "true"
"""


def silenced(text: str) -> dict[str, set[str]]:
    (tier,) = policy_parser.parse(text, "kube-batch.conf").tiers
    return {option.name: set(option.silenced) for option in tier}


def test_the_plugins_are_one_tier_in_the_order_of_the_row() -> None:
    read = policy_parser.parse(WHOLE, "kube-batch.conf")

    assert read.actions == ("reclaim", "allocate", "backfill", "preempt")
    assert [[option.name for option in tier] for tier in read.tiers] == [
        ["gang", "priority", "drf", "predicates", "proportion"]
    ]


def test_where_switches_are_named_a_callback_without_one_is_off() -> None:
    assert silenced(WHOLE) == {
        "gang": {"TaskOrder"},
        "priority": {"JobReady", "Preemptable"},
        "drf": {"JobReady", "TaskOrder"},
        "predicates": {"JobReady", "JobOrder", "TaskOrder", "Preemptable"},
        "proportion": {"JobReady", "JobOrder", "TaskOrder", "Preemptable"},
    }


@pytest.mark.parametrize("row", ['"gang, drf"', "[gang, drf]", "[{name: gang}, {name: drf}]"])
def test_where_no_switch_is_named_all_are_on(row: str) -> None:
    assert silenced(f"plugins: {row}") == {"gang": set(), "drf": set()}


def test_the_rest_of_the_file_is_read_as_ever() -> None:
    read = policy_parser.parse("plugins: gang\nstarvation: {after: 90s}", "kube-batch.conf")

    assert read.starvation.after_s == 90


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plugins: gang\ntiers: []", "plugins beside tiers; move them into a tier"),
        ("plugins: gangs", "unknown plugin 'gangs'; did you mean 'gang'?"),
        ("plugins: ' , '", "plugins is empty"),
        ("plugins: 7", "plugins must be a list, found 7"),
        (
            "plugins: gang\nplugin.gang.jobredy: 'true'",
            "unknown key 'plugin.gang.jobredy'; did you mean 'plugin.gang.jobready'?",
        ),
        (
            "plugins: gang\nplugin.drf.joborder: 'true'",
            "unknown key 'plugin.drf.joborder'; did you mean 'plugin.gang.joborder'?",
        ),
        ("plugins: gang\nplugin.gang.jobready: maybe", "enableJobReady is 'maybe'; write true or"),
        ("plugin.gang.jobready: 'true'", "unknown key 'plugin.gang.jobready'"),
    ],
)
def test_mistakes_name_the_nearest_word(text: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"kube-batch\.conf: ") as refused:
        policy_parser.parse(text, "kube-batch.conf")

    assert said in str(refused.value)
