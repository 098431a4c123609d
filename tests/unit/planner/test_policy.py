"""Policy files: Volcano's work unchanged; mistakes are named with the word that would work."""

from __future__ import annotations

import inspect
import re

import pytest

from extender.errors import InvalidConfiguration
from extender.planner import policy_parser
from extender.planner.plugins import registry
from extender.planner.policy import OURS, VOLCANO, PluginOption

INSTALLERS = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""


def test_the_file_of_volcanos_installer_works_as_it_is() -> None:
    read = policy_parser.parse(INSTALLERS, "volcano-scheduler.conf")

    assert read.actions == ("enqueue", "allocate", "backfill")
    assert [option.name for option in read.tiers[0]] == ["priority", "gang", "conformance"]
    assert read.tiers[0][1].silenced == {"Preemptable"}
    assert read.rules is OURS


def test_kube_batchs_sample_works_as_it_is() -> None:
    read = policy_parser.parse(
        """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
    )

    assert read.actions[0] == "reclaim"
    assert not read.remarks


def test_arguments_flags_and_configurations_are_read() -> None:
    read = policy_parser.parse(
        """
actions: allocate, preempt
tiers:
- plugins:
  - name: capacity
    enableHierarchy: true
    enabledAllocatable: false
    enableQueueOrder: "true"
    arguments: {ancestorReclaimLevel: 2}
configurations:
- name: preempt
  arguments: {enableTopologyAwarePreemption: true}
metrics: {type: prometheus}
"""
    )
    capacity = read.tiers[0][0]

    assert capacity.hierarchy
    assert capacity.silenced == {"Allocatable"}
    assert capacity.arguments == {"ancestorReclaimLevel": 2}
    assert read.weighs_nodes


def test_an_empty_file_means_the_default() -> None:
    read = policy_parser.parse("")

    assert read.actions == policy_parser.DEFAULT.actions
    assert read.tiers == policy_parser.DEFAULT.tiers


def test_compatibility_turns_all_differences_back() -> None:
    assert policy_parser.parse("compatibility: volcano").rules is VOLCANO


def test_starvation_settings_are_read_as_durations() -> None:
    read = policy_parser.parse(
        "starvation: {after: 1h30m, hold: 90s, gangs: 3, backfill: 20m}"
    ).starvation

    assert (read.after_s, read.hold_s, read.gangs) == (5400.0, 90.0, 3)
    assert read.backfill_s == 1200.0
    assert policy_parser.parse("starvation: {backfill: 0s}").starvation.backfill_s == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acions: allocate", "unknown key 'acions'; did you mean 'actions'?"),
        ("actions: allocat", "actions: unknown action 'allocat'; did you mean 'allocate'?"),
        ("actions: ''", "actions is empty"),
        ("actions: {a: b}", "actions must be a list"),
        ("tiers: [{plugins: [{name: gnag}]}]", "unknown plugin 'gnag'; did you mean 'gang'?"),
        ("tiers: [{plugin: []}]", "tier 1: unknown key 'plugin'; did you mean 'plugins'?"),
        ("tiers: gang", "tiers must be a list"),
        (
            "tiers: [{plugins: [{name: gang, enablePremptable: false}]}]",
            "unknown key 'enablePremptable'; did you mean 'enablePreemptable'?",
        ),
        (
            "tiers: [{plugins: [{name: gang, enableJobOrder: maybe}]}]",
            "plugin gang: enableJobOrder is 'maybe'; write true or false",
        ),
        (
            "tiers: [{plugins: [{name: overcommit, arguments: {overcommit-factor: lots}}]}]",
            "plugin overcommit: overcommit-factor is 'lots'; write a number",
        ),
        (
            "tiers: [{plugins: [{name: sla, arguments: {sla-waiting-time: soon}}]}]",
            "sla-waiting-time is 'soon'; write a duration like 90s or 1h30m",
        ),
        (
            "tiers: [{plugins: [{name: drf, enableHierarchy: true}, {name: proportion}]}]",
            "both divide among queues",
        ),
        (
            "tiers: [{plugins: [{name: gang}]}, {plugins: [{name: binpack, arguments:"
            " {binpack.wieght: 2}}]}]",
            "tier 2: plugin binpack has no argument 'binpack.wieght'; did you mean"
            " 'binpack.weight'?",
        ),
        (
            "tiers: [{plugins: [{name: proportion, arguments: {weight: 2}}]}]",
            "plugin proportion has no argument 'weight'; it takes none",
        ),
        (
            "configurations: [{name: preempt, arguments: {enableTopologyAwarePremption: true}}]",
            "action preempt has no argument 'enableTopologyAwarePremption'; did you mean"
            " 'enableTopologyAwarePreemption'?",
        ),
        ("configurations: [{name: alocate}]", "did you mean 'allocate'?"),
        ("compatibility: kubernetes", "the only one is volcano"),
        ("starvation: {afer: 1m}", "did you mean 'after'?"),
        ("starvation: {backfil: 1m}", "did you mean 'backfill'?"),
        ("starvation: {backfill: soon}", "backfill is 'soon'; write a duration like 90s or 1h30m"),
        ("starvation: {gangs: .inf}", "gangs is inf; write a number of ordinary size"),
        ("starvation: {gangs: .nan}", "gangs is nan; write a number of ordinary size"),
        ("starvation: {gangs: 1e300}", "write a number of ordinary size"),
        (f"starvation: {{after: {'9' * 400}h}}", "write a duration like 90s or 1h30m"),
        (
            "tiers: [{plugins: [{name: overcommit, arguments: {overcommit-factor: inf}}]}]",
            "plugin overcommit: overcommit-factor is 'inf'; write a number of ordinary size",
        ),
        (
            "tiers: [{plugins: [{name: binpack, arguments: {binpack.weight: -.inf}}]}]",
            "plugin binpack: binpack.weight is -inf; write a number of ordinary size",
        ),
        (f"starvation: {{gangs: {'9' * 400}}}", "write a number"),
        (f"starvation: {{gangs: {'9' * 5000}}}", "not YAML"),
        ("actions: 2026-13-45", "not YAML: month must be in 1..12"),
        (f"actions: {'[' * 5000}{']' * 5000}", "nested too deeply"),
        ("[1, 2]", "expected names with values"),
        ("a: [", "not YAML"),
    ],
)
def test_mistakes_name_the_place_and_the_nearest_word(text: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        policy_parser.parse(text, "conf")

    message = str(caught.value)
    assert message.startswith("conf: ")
    assert said in message
    assert "\n" not in message


def test_plugins_and_actions_that_only_volcano_has_are_refused_by_name() -> None:
    plugins = (
        "tdm", "task-topology", "tasktopology", "numaaware", "nodegroup", "usage", "rescheduling",
        "deviceshare", "cdp", "extender", "network-topology-aware", "resource-strategy-fit",
    )  # fmt: skip
    for name in plugins:
        with pytest.raises(InvalidConfiguration, match=f"plugin '{name}' is Volcano's"):
            policy_parser.parse(f"tiers: [{{plugins: [{{name: {name}}}]}}]")
    for name in ("shuffle", "gangpreempt", "gangreclaim", "elect", "reserve"):
        with pytest.raises(InvalidConfiguration, match=f"action '{name}' is Volcano's"):
            policy_parser.parse(f"actions: {name}")


def test_arguments_of_volcano_without_effect_here_are_accepted_with_a_remark() -> None:
    read = policy_parser.parse(
        "tiers: [{plugins: [{name: predicates, arguments: {predicate.VolumeBindingEnable: true,"
        " predicate.NodeAffinityEnable: false}}]}]\n"
        "configurations: [{name: allocate, arguments: {predicateErrorCacheEnable: true}}]",
        "conf",
    )

    assert read.remarks == (
        "conf: tier 1: plugin predicates: argument 'predicate.VolumeBindingEnable' is Volcano's and"
        " has no effect here",
        "conf: configurations: action allocate: argument 'predicateErrorCacheEnable' is Volcano's"
        " and has no effect here",
    )


def test_with_the_rules_of_volcano_an_unknown_argument_is_accepted_with_a_remark() -> None:
    read = policy_parser.parse(
        "{compatibility: volcano, tiers: [{plugins: [{name: binpack, arguments:"
        " {binpack.wieght: 2}}]}]}",
        "conf",
    )

    assert read.remarks == (
        "conf: tier 1: plugin binpack has no argument 'binpack.wieght', so it has no"
        " effect; did you mean 'binpack.weight'?",
    )


def test_the_default_policy_has_nothing_without_effect() -> None:
    assert policy_parser.DEFAULT.remarks == ()


@pytest.mark.parametrize("name", registry.names())
def test_every_built_in_plugin_declares_all_the_arguments_it_reads(name: str) -> None:
    known, _ = registry.declared(name)
    text = inspect.getsource(type(registry.make(PluginOption(name=name), "test")))
    read = re.findall(r"arguments\.\w+\(\s*f?\"([^\"{]+)", text)

    assert known is not None
    assert {word for word in read if not word.endswith(".")} <= set(known)


def test_a_weight_for_any_resource_may_be_given_to_binpack() -> None:
    read = policy_parser.parse(
        "tiers: [{plugins: [{name: binpack, arguments: {binpack.resources: a.b/gpu,"
        " binpack.resources.a.b/gpu: 3}}]}]"
    )

    assert read.remarks == ()


def test_volcanos_two_spellings_of_a_flag_mean_the_same() -> None:
    for flag in ("enableOverused", "enabledOverused"):
        read = policy_parser.parse(f"tiers: [{{plugins: [{{name: proportion, {flag}: false}}]}}]")
        assert read.tiers[0][0].silenced == {"Overused"}


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
