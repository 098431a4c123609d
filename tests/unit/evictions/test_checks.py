"""Which pods may be evicted, whatever the plan contains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.evictions import checks
from extender.model.gang import Gang, GangKey
from extender.model.pod import Pod, PodUid, Status
from extender.model.queue import NamespaceShare, Queue
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget
from tests.builders import pod
from tests.scene import budget, evictions, gang, snapshot

NEEDY = gang("needy", 2, status=Status.PENDING, queue="right")


def objections(
    *victims: Gang,
    action: str = "reclaim",
    only: int | None = None,
    queues: tuple[Queue, ...] = (Queue(name="left"), Queue(name="right")),
    budgets: tuple[DisruptionBudget, ...] = (),
    needy: Gang = NEEDY,
) -> set[str]:
    seen = snapshot(*victims, needy, queues=queues, budgets=budgets)
    ordered = evictions(*victims, action=action, only=only)
    return set(checks.objections(checks.find(ordered, seen), seen).values())


DONE = [pod("old-0", on="n"), pod("old-1", on="n"), pod("old-2", status=Status.SUCCEEDED)]


@pytest.mark.parametrize(
    ("victim", "only", "said"),
    [
        (gang("old", 3), None, set()),
        (gang("old", 3, min_member=2), 1, set()),
        (gang("old", 3, min_member=2), 2, {"1 of 2 needed members of a/old would be left"}),
        (gang("old", DONE, min_member=2), 1, set()),
    ],
    ids=["a whole gang", "surplus", "a needed member", "a member beside one that succeeded"],
)
def test_a_gang_is_never_left_with_fewer_members_than_it_needs(
    victim: Gang, only: int | None, said: set[str]
) -> None:
    assert objections(victim, only=only) == said


def test_a_role_is_never_left_with_fewer_members_than_it_needs() -> None:
    members = [
        pod("old-0", on="n", role="chief"),
        pod("old-1", on="n", role="hand"),
        pod("old-2", on="n", role="hand"),
    ]
    incomplete = gang("old", members, min_member=2, min_by_role={"chief": 1, "hand": 1})

    assert objections(incomplete, only=1) == {"0 of 1 needed chief members of a/old would be left"}


def test_a_reservation_does_not_replace_a_member_that_is_evicted() -> None:
    chiefs = [
        pod("old-0", on="n", role="chief"),
        pod("old-1", on="n", status=Status.ALLOCATED, role="chief"),
    ]
    incomplete = gang(
        "old", [*chiefs, pod("old-2", on="n")], min_member=2, min_by_role={"chief": 1}
    )

    assert objections(incomplete, only=1) == {"1 of 2 needed members of a/old would be left"}
    assert objections(gang("old", [*incomplete.pods, pod("old-3", on="n")], min_member=2,
                           min_by_role={"chief": 1}), only=1) == {
        "0 of 1 needed chief members of a/old would be left"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("victim", "why"),
    [
        pytest.param(
            pod("x", on="n", ours=False), "it belongs to another scheduler", id="not ours"
        ),
        pytest.param(
            pod("x", on="n", priority_class="system-node-critical"),
            "priority class system-node-critical is exempt",
            id="critical",
        ),
        pytest.param(pod("x", on="n", exempt=True), "namespace a is exempt", id="exempt namespace"),
        pytest.param(
            pod("x", on="n", preemptable=False), "it is marked as not preemptable", id="marked"
        ),
        pytest.param(
            pod("x", on="n", status=Status.RELEASING), "it is not running", id="leaves already"
        ),
    ],
)
def test_some_pods_are_never_evicted(victim: Pod, why: str) -> None:
    assert objections(gang("old", [victim])) == {why}


def test_pods_of_kube_system_are_never_evicted() -> None:
    system = pod("dns", on="n", namespace="kube-system")
    seen = snapshot(NEEDY)
    asked = evictions(gang("old", [system]))[0]
    victim = checks.Victim(asked, gang("old", [system]), system)

    assert checks.objections({system.uid: victim}, seen) == {
        system.uid: "namespace kube-system is exempt"
    }


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    queues = (Queue(name="left", reclaimable=False), Queue(name="right"))

    assert objections(gang("old"), queues=queues) == {"queue left is not reclaimable"}


def test_reclaiming_crosses_queues_and_preemption_does_not() -> None:
    assert objections(gang("old", queue="right")) == {"a queue does not reclaim from itself"}
    assert objections(gang("old"), action="preempt") == {"preemption stays inside queue right"}
    assert objections(gang("old", queue="right"), action="preempt") == set()


def test_a_namespace_may_reclaim_its_guarantee_inside_a_queue() -> None:
    shares = {
        "right/a": NamespaceShare(queue="right", namespace="a", guarantee=Resources({"cpu": 1000}))
    }
    mine = gang("old", queue="right")
    theirs = replace(mine, group=replace(mine.group, namespace="b"))

    def said(victim: Gang) -> set[str]:
        seen = replace(snapshot(NEEDY, victim), shares=shares)
        asked = {
            each.uid: checks.Victim(order, victim, each)
            for order, each in zip(evictions(victim), victim.pods, strict=True)
        }
        return set(checks.objections(asked, seen).values())

    assert said(theirs) == set()
    assert said(mine) == {"a queue does not reclaim from itself"}


def test_no_pod_is_evicted_for_a_gang_that_is_gone() -> None:
    other = gang("other", queue="right")

    assert objections(gang("old"), needy=other) == {"the gang that needs its capacity is gone"}


def test_a_disruption_budget_is_counted_over_the_whole_set() -> None:
    members = [pod(f"old-{index}", on="n", labels={"app": "web"}) for index in range(3)]

    assert objections(gang("old", members), budgets=(budget("web", 3, app="web"),)) == set()
    assert objections(gang("old", members), budgets=(budget("web", 2, app="web"),)) == {
        "PodDisruptionBudget a/web allows 2 disruptions, not 3"
    }
    assert objections(gang("old", members), budgets=(budget("db", 0, app="db"),)) == set()


def test_only_victims_beyond_a_budget_are_refused_for_it() -> None:
    members = [pod(f"old-{index}", on="n", labels={"app": "web"}) for index in range(3)]
    seen = snapshot(
        gang("old", members, min_member=0), NEEDY, budgets=[budget("web", 1, app="web")]
    )
    asked = checks.find(evictions(seen.gangs[GangKey("a/old")]), seen)

    assert set(checks.objections(asked, seen)) == {"a-old-1", "a-old-2"}


def test_earlier_evictions_count_against_a_budget_until_its_status_includes_them() -> None:
    members = [pod(f"old-{index}", on="n", labels={"app": "web"}) for index in range(3)]
    old = gang("old", members, min_member=0)

    def forbidden(web: DisruptionBudget, leaving: set[str]) -> int:
        seen = snapshot(old, NEEDY, budgets=[web])
        asked = checks.find(evictions(old, only=1), seen)
        return len(checks.objections(asked, seen, {PodUid(f"a-{name}") for name in leaving}))

    assert forbidden(budget("web", 2, app="web"), {"old-1"}) == 0
    assert forbidden(budget("web", 2, app="web"), {"old-1", "old-2"}) == 1
    shown = replace(budget("web", 1, app="web"), disrupted=frozenset({"old-1", "old-2"}))
    assert forbidden(shown, {"old-1", "old-2"}) == 0
