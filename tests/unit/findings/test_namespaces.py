"""Findings about policies of namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.findings.audit import Audit, audit
from extender.findings.finding import Finding
from extender.findings.namespaces import of_namespaces
from extender.model.budgets import MOST_BUDGETS
from extender.model.gang import VOLCANO, GangKey, Membership
from extender.model.pod import Requirement
from extender.model.queue import Namespace, NamespaceShare, PriorityClass, Queue
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget
from tests.builders import NOW, cache, node, pod, pod_group

QUEUES = [Queue(name="research", capability=Resources({"cpu": 8000})), Queue(name="nightly")]


def cpu(number: int) -> Resources:
    return Resources({"cpu": number * 1000})


def share(queue: str, namespace: str = "b", **rest: Any) -> NamespaceShare:
    return NamespaceShare(queue=queue, namespace=namespace, **rest)


def found(*namespaces: Namespace, classes: tuple[str, ...] = ()) -> list[Finding]:
    """Return the findings about *namespaces* in a live cluster."""
    made = cache(
        node("n1", cpu=16), *QUEUES, *namespaces, *(PriorityClass(name=name) for name in classes)
    )
    return list(audit(made.snapshot(NOW)))


def test_a_queue_that_many_namespaces_miss_costs_one_search_and_many_queues_bounded_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search among 1,500 names takes 40 ms, and delays every status write."""
    searched: list[str] = []

    def search(word: str, names: list[str], n: int) -> list[str]:
        searched.append(word)
        return ["research"]

    monkeypatch.setattr("difflib.get_close_matches", search)
    queues = {each.name: each for each in QUEUES}

    def look(*missing: str) -> list[Finding]:
        spaces = [Namespace(name=f"n-{at}", queue=name) for at, name in enumerate(missing)]
        named = {each.name: each for each in spaces}
        return of_namespaces(named, queues, {}, (), Resources())

    assert len({each.message.partition("; did")[2] for each in look(*["vanished"] * 300)}) == 1
    assert searched == ["vanished"]
    # The next audit reuses the result, whatever else changes.
    look("vanished")
    assert searched == ["vanished"]
    assert len(look(*(f"vanished-{at}" for at in range(300)))) == 300
    assert len(searched) <= 51


def test_a_correct_policy_has_no_finding() -> None:
    policy = Namespace(
        name="b",
        queue="research",
        allowed=frozenset({"research", "nightly", "default"}),
        classes=frozenset({"high"}),
        shares=(share("research", limit=cpu(4), guarantee=cpu(2)),),
    )

    assert found(policy, classes=("high", "low")) == []


@pytest.mark.parametrize(
    ("policy", "reason", "message"),
    [
        (
            {"allowed": frozenset({"reserch", "nightly"})},
            "QueueUnknown",
            "namespace b may use unknown queue reserch; fix the annotation"
            " gang-extender.io/queues or create what it names; did you mean research?",
        ),
        (
            {"queue": "nightl"},
            "HomeQueueMissing",
            "the home queue nightl of namespace b does not exist; fix the annotation"
            " scheduling.volcano.sh/queue-name or create it; did you mean nightly?",
        ),
        (
            {"classes": frozenset({"hgih", "low"})},
            "PriorityClassUnknown",
            "namespace b may use unknown priority class hgih; fix the annotation"
            " gang-extender.io/priority-classes or create what it names; did you mean high?",
        ),
        (
            {"problem": "the annotation gang-extender.io/at-most of namespace b cannot be read"},
            "Unreadable",
            "no gang of namespace b can start: the annotation gang-extender.io/at-most of"
            " namespace b cannot be read",
        ),
        (
            {"shares": (share("Research", limit=cpu(1)),)},
            "ShareOfUnknownQueue",
            "namespace b has a share of unknown queue Research; fix its annotation"
            " gang-extender.io/at-most or gang-extender.io/at-least; did you mean research?",
        ),
        (
            {"allowed": frozenset({"nightly"}), "shares": (share("research", limit=cpu(1)),)},
            "ShareOfForbiddenQueue",
            "namespace b has a share of queue research, which it may not use; fix its annotation"
            " gang-extender.io/at-most or gang-extender.io/at-least, or allow the queue by"
            " gang-extender.io/queues",
        ),
        (
            {"shares": (share("research", limit=cpu(1), guarantee=cpu(2)),)},
            "NamespaceGuaranteeAboveLimit",
            "namespace b is guaranteed 2 cpu in queue research and limited to 1; lower its"
            " annotation gang-extender.io/at-least or raise gang-extender.io/at-most",
        ),
    ],
)
def test_each_kind_of_mistake_is_a_finding_that_names_the_fix(
    policy: dict[str, Any], reason: str, message: str
) -> None:
    assert found(Namespace(name="b", **policy), classes=("high", "low")) == [
        Finding("Namespace", "b", reason, message)
    ]


def test_several_typos_in_one_list_are_one_finding() -> None:
    (one,) = found(Namespace(name="b", allowed=frozenset({"reserch", "nightli"})))

    assert "queue nightli, reserch" in one.message
    assert one.message.endswith("; did you mean nightly?; did you mean research?")


def test_guarantees_above_a_queue_are_a_finding_about_the_queue() -> None:
    both = [
        Namespace(name=name, shares=(share("research", name, guarantee=cpu(5)),)) for name in "bc"
    ]

    assert found(*both) == [
        Finding(
            "Queue",
            "research",
            "NamespaceGuaranteesAboveQueue",
            "by gang-extender.io/at-least b, c are guaranteed 10 cpu of queue research together,"
            " and its capability is 8; lower the guarantees or raise spec.capability",
        )
    ]


def test_guarantees_above_the_cluster_are_a_finding_about_the_queue() -> None:
    (one,) = found(Namespace(name="b", shares=(share("nightly", guarantee=cpu(17)),)))

    assert (one.kind, one.reason) == ("Queue", "NamespaceGuaranteesAboveCluster")
    assert one.message.endswith(
        "17 cpu of queue nightly together, and the cluster has 16; lower the guarantees"
    )


def test_objects_that_are_not_listed_yet_cause_no_finding() -> None:
    policy = Namespace(
        name="b",
        classes=frozenset({"high"}),
        shares=(share("nightly", guarantee=cpu(99)),),
    )
    queues = {each.name: each for each in QUEUES}
    shares = {each.name: each for each in policy.shares}

    assert of_namespaces({"b": policy}, queues, shares, (), Resources()) == []


def test_a_priority_class_that_is_created_ends_the_finding() -> None:
    made = cache(PriorityClass(name="low"), Namespace(name="b", classes=frozenset({"high"})))
    look = Audit()

    assert [each.reason for each in look(made.snapshot(NOW))] == ["PriorityClassUnknown"]
    made.apply(Upsert(PriorityClass(name="high")))
    assert look(made.snapshot(NOW)) == ()


def test_pod_groups_of_exempt_namespaces_are_findings_because_they_have_no_effect() -> None:
    made = cache(node("n1"), pod_group("train", exempt=True), pod_group("tune", exempt=True))
    look = Audit()

    (one,) = look(made.snapshot(NOW))
    assert (one.kind, one.name, one.reason) == ("Namespace", "a", "ExemptGang")
    assert one.message == (
        "namespace a is exempt, so PodGroup train, like 1 more, there forms no gang and its pods"
        " start one by one; move it to a namespace that is not exempt"
    )
    made.apply(Delete(Kind.GROUP, "a/train", VOLCANO))
    made.apply(Delete(Kind.GROUP, "a/tune", VOLCANO))
    assert look(made.snapshot(NOW)) == ()


def test_namespaces_with_oversized_objects_are_findings_that_name_one_of_them() -> None:
    large = Membership(key=GangKey("a/pod:p"), excess="more than 256 host ports")
    made = cache(node("n1"), pod_group("wide", excess="more than 256 roles in minTaskMember"))
    made.apply(Upsert(SeenPod(pod("p"), large)))
    budget = DisruptionBudget(namespace="b", name="web", excess="more labels than are read")
    made.apply(Upsert(budget))
    look = Audit()

    one, other = look(made.snapshot(NOW))
    assert (one.kind, one.name, one.reason) == ("Namespace", "a", "TooLarge")
    assert one.message == (
        "Pod p of namespace a has more than 256 host ports, and 1 more object is too large;"
        " write fewer"
    )
    assert (other.name, other.message) == (
        "b",
        "PodDisruptionBudget web of namespace b has more labels than are read; write fewer",
    )
    assert made.snapshot(NOW).too_large is made.snapshot(NOW).too_large
    made.apply(Upsert(pod_group("wide")))
    made.apply(Delete(Kind.POD, "a-p"))
    made.apply(Delete(Kind.BUDGET, "b/web"))
    assert look(made.snapshot(NOW)) == ()


def test_a_namespace_with_more_budgets_for_one_pod_than_are_checked_is_a_finding() -> None:
    made, look = cache(node("n1")), Audit()
    every = (Requirement("k", "Exists"),)
    for number in range(MOST_BUDGETS + 1):
        own = (Requirement("app", "In", (f"a{number}",)),)
        made.apply(Upsert(DisruptionBudget(namespace="fine", name=f"b{number}", selector=own)))
        made.apply(Upsert(DisruptionBudget(namespace="a", name=f"b{number}", selector=every)))

    (found,) = look(made.snapshot(NOW))
    assert (found.kind, found.name, found.reason) == ("Namespace", "a", "TooManyBudgets")
    assert found.message == (
        "namespace a has more PodDisruptionBudgets for one pod than are checked (64, with 1,000"
        " selector terms), so pods that they may cover are not evicted; write fewer, or"
        " selectors that name different labels"
    )
    made.apply(Delete(Kind.BUDGET, "a/b0"))
    assert look(made.snapshot(NOW)) == ()
