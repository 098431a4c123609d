"""The tables of docs/jobs.md match the code, and its samples do what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import yaml

from extender.errors import InvalidConfiguration
from extender.kube.decode import limits, podgroups
from extender.kube.decode.raw import RawGroupAnnotations, RawPodAnnotations, RawQueueAnnotations
from extender.model.gang import MOST_TRUSTED_FIRST, Membership
from extender.planner import policy_parser
from tests import objects
from tests.unit.docs.pages import DOCS, blocks, text
from tests.unit.kube.decode.stored import read_group, read_pod, read_queue

PAGE = text(DOCS / "jobs.md")
SAMPLES = [
    list(yaml.safe_load_all(each.text))
    for each in blocks(DOCS / "jobs.md")
    if each.language == "yaml"
]


def made_from(template: dict[str, Any], **meta: Any) -> Membership:
    """The membership of a pod that a controller makes from *template*."""
    about = {"name": "p", "namespace": "a", **template.get("metadata", {}), **meta}
    pod = {"metadata": about, "spec": template.get("spec", {})}
    return read_pod(pod)[1]


def assert_groups_are_named_by(keys: Sequence[str]) -> None:
    """Assert that each of *keys* names the group of a pod if no earlier one does."""
    for kind in ("annotations", "labels"):
        for first in range(len(keys)):
            written = {key: f"g{number}" for number, key in enumerate(keys) if number >= first}
            assert made_from({"metadata": {kind: written}}).key == f"a/g{first}"


def test_the_page_lists_the_keys_we_read_in_order() -> None:
    table = PAGE[PAGE.index("| key | written by |") : PAGE.index("The group is the PodGroup")]

    keys = re.findall(r"^ +\| `([^`]+)`", table, re.MULTILINE)
    assert len(keys) == 5
    assert_groups_are_named_by(keys)
    assert all(key in PAGE for key in names_of(RawPodAnnotations) if re.search("/.*min-", key))


def test_the_page_lists_the_size_limits_of_the_code() -> None:
    _, _, table = PAGE.partition("## Size limits")
    listed = set(map(int, re.findall(r"\b(\d+)\b", table.partition("\n## ")[0])))
    held = {getattr(limits, name) for name in dir(limits) if name.startswith(("MOST", "LONGEST"))}

    assert listed == held | {limits.DEEPEST}


def test_the_page_lists_the_dialects_we_read_in_order() -> None:
    table = PAGE[PAGE.index("| API | PodGroup |") : PAGE.index("Our manifests install")]

    assert re.findall(r"^\| `([^/`]+)/", table, re.MULTILINE) == [
        name for name in MOST_TRUSTED_FIRST if name
    ]


def test_the_job_sample_of_the_page_makes_one_gang() -> None:
    job = SAMPLES[0][0]
    owner = {"kind": job["kind"], "name": job["metadata"]["name"], "uid": "u", "controller": True}
    made = made_from(job["spec"]["template"], ownerReferences=[owner])

    assert (made.key, made.named, made.min_member) == ("a/job:train", True, 8)
    assert job["spec"]["parallelism"] == made.min_member


def test_the_jobset_sample_of_the_page_makes_one_gang_of_all_its_jobs() -> None:
    jobs = [{"kind": "Job", "name": name, "uid": name, "controller": True} for name in ("x", "y")]
    gangs = [made_from(SAMPLES[2][0]["template"], ownerReferences=[job]) for job in jobs]

    assert [(made.key, made.min_member) for made in gangs] == [("a/train", 9)] * 2


#: The names in Volcano's API types, at 1.16.
GROUP_FIELDS = {
    "minMember", "minTaskMember", "minResources", "queue", "priorityClassName", "networkTopology",
    "subGroupPolicy",
}  # fmt: skip
QUEUE_FIELDS = {
    "weight", "capability", "reclaimable", "extendClusters", "guarantee", "affinity", "type",
    "parent", "deserved", "priority", "dequeueStrategy",
}  # fmt: skip


def table(head: str) -> dict[str, str]:
    """Return the class of each field in the table with that head: honoured, refused, ..."""
    text = PAGE[PAGE.index(f"| {head} | here |") :].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in text.splitlines()[2:]]
    return {name: here.strip() for names, here in rows for name in re.findall("`([^`]+)`", names)}


def honoured(head: str) -> set[str]:
    return {name for name, here in table(head).items() if here == "honoured"}


def warned(head: str) -> set[str]:
    return {name for name, here in table(head).items() if here == "warned"}


def names_of(raw: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(raw)}


def test_the_page_classifies_each_volcano_field() -> None:
    assert table("PodGroup `spec`").keys() == GROUP_FIELDS
    assert table("Queue `spec`").keys() == QUEUE_FIELDS
    heads = re.findall(r"^\| (.+) \| here \|", PAGE, re.MULTILINE)
    said = {here for head in heads for here in table(head).values()}
    assert (len(heads), said) == (6, {"honoured", "refused", "warned", "no meaning"})


def test_the_fields_listed_as_honoured_are_those_we_read() -> None:
    refused = {name for name, here in table("PodGroup `spec`").items() if here == "refused"}

    assert honoured("PodGroup `spec`") | refused == names_of(podgroups.RawGroupSpec)
    assert honoured("Queue `spec`") | warned("Queue `spec`") == names_of(podgroups.RawQueueSpec)


def test_the_labels_and_annotations_listed_as_honoured_are_those_we_read() -> None:
    others = {"gang-extender.io", "scheduling.x-k8s.io", "pod-group.scheduling.sigs.k8s.io"}
    read = {name for name in names_of(RawPodAnnotations) if name.partition("/")[0] not in others}

    # kube-batch's, which Volcano does not know.
    assert honoured("annotation of a pod") == read - {"scheduling.k8s.io/group-min-member"}


def test_the_annotations_listed_as_honoured_or_warned_are_those_we_read() -> None:
    for head, marks in (
        ("PodGroup annotation", RawGroupAnnotations),
        ("Queue annotation", RawQueueAnnotations),
    ):
        volcanos = {name for name in names_of(marks) if name.startswith("volcano.sh/")}
        assert honoured(head) | warned(head) == volcanos


@pytest.mark.parametrize(
    ("field", "written"),
    [("networkTopology", {"highestTierAllowed": 2}), ("subGroupPolicy", [{"subGroupSize": 2}])],
)
def test_a_pod_group_with_a_field_listed_as_refused_is_invalid(field: str, written: object) -> None:
    read = read_group(objects.pod_group("train", min_member=2, **{field: written}))

    assert table("PodGroup `spec`")[field] == "refused"
    assert f"{field} " in read.problem


@pytest.mark.parametrize("field", sorted(warned("Queue `spec`")))
def test_a_queue_with_a_field_listed_as_warned_reports_it(field: str) -> None:
    written = {"extendClusters": [{"name": "far"}], "affinity": {"nodeGroupAffinity": {}}}
    read = read_queue(objects.queue("gold", **{field: written.get(field, "fifo")}))

    assert read.ignored_fields == (f"spec.{field}",)


def test_annotations_listed_as_warned_are_reported() -> None:
    group, queue = objects.pod_group("train", min_member=2), objects.queue("gold")
    group["metadata"]["annotations"] = dict.fromkeys(warned("PodGroup annotation"), "x")
    queue["metadata"]["annotations"] = dict.fromkeys(warned("Queue annotation"), "x")
    said = read_group(group).remark
    idle = read_queue(queue).ignored_fields

    assert all(f"annotation {name} " in said for name in warned("PodGroup annotation"))
    assert idle == tuple(f"annotation {name}" for name in warned("Queue annotation"))


@pytest.mark.parametrize(
    "plugin", sorted(set(re.findall(r"\| (?:no meaning|warned) \| plugin `(\w+)`", PAGE)))
)
def test_a_policy_that_names_a_volcano_plugin_without_meaning_here_is_refused(plugin: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"'{plugin}' is Volcano's"):
        policy_parser.parse(f"tiers: [{{plugins: [{{name: {plugin}}}]}}]")
