"""PodDisruptionBudgets as gangs of pods that name no PodGroup, with the setting for it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from extender.cache import budget_gangs
from extender.cache.changes import Delete, Kind, SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.model.budgets import selects
from extender.model.gang import Gang, GangKey, Membership
from extender.model.pod import Requirement
from extender.model.queue import Namespace, Queue
from extender.model.reason import Reason
from extender.model.snapshot import DisruptionBudget
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from extender.sim.clock import VirtualClock
from tests.builders import NOW, node, pod, pod_group, seen, uid

WEB = GangKey("a/poddisruptionbudget:web")
SAYS = "its minimum is minAvailable of PodDisruptionBudget web"


def budget(name: str = "web", least: int | None = 3, **rest: Any) -> DisruptionBudget:
    selector = (Requirement("app", "In", ("web",)),)
    return DisruptionBudget(
        **{"namespace": "a", "name": name, "least": least, "selector": selector} | rest
    )


def single(name: str, app: str = "web", queue: str = "", **rest: Any) -> SeenPod:
    """A pod that names no gang."""
    said = Membership(key=GangKey(f"{rest.get('namespace', 'a')}/pod:{name}"), queue=queue)
    return SeenPod(pod(name, labels={"app": app}, **rest), said)


def cluster(*items: Any, budgets_are_gangs: bool = True) -> Cluster:
    made = Cluster(VirtualClock(), budgets_are_gangs=budgets_are_gangs)
    for item in items:
        made.apply(Upsert(item))
    return made


def gangs(made: Cluster) -> dict[GangKey, Gang]:
    return dict(made.snapshot(NOW).gangs)


WEBS = [single("w0"), single("w1"), single("w2")]


@pytest.mark.parametrize("order", [1, -1], ids=["the budget first", "the pods first"])
def test_the_pods_that_a_budget_selects_are_a_gang_of_its_size(order: int) -> None:
    found = gangs(cluster(*[budget(), *WEBS, single("db", "db")][::order]))

    assert set(found) == {WEB, "a/pod:db"}
    assert (len(found[WEB].pods), found[WEB].group.min_member) == (3, 3)
    assert found[WEB].remark == SAYS


def test_a_budget_does_not_change_pods_with_a_group_or_of_other_schedulers() -> None:
    named = seen("p0", labels={"app": "web"})
    native = SeenPod(
        pod("n0", labels={"app": "web"}, on="n1"),
        Membership(key=GangKey("a/native:x"), named=True, native=True),
    )
    foreign = single("f0", ours=False)
    elsewhere = single("e0", namespace="b")
    found = gangs(cluster(budget(), pod_group(), named, native, foreign, elsewhere))

    assert set(found) == {"a/train", "a/native:x", "b/pod:e0"}


def test_a_gang_of_a_budget_starts_whole_or_not_at_all() -> None:
    made = cluster(budget(), node("n1"), *WEBS[:2])
    short = make_plan(made.snapshot(NOW))
    made.apply(Upsert(WEBS[2]))
    whole = make_plan(made.snapshot(NOW))

    assert short.verdicts[WEB].reason is Reason.NOT_ENOUGH_MEMBERS
    assert short.verdicts[WEB].message.endswith(f"; {SAYS}")
    assert not short.placements
    assert set(whole.placements[WEB].placements) == {uid("w0"), uid("w1"), uid("w2")}


PERCENTAGE = (
    "PodDisruptionBudget web makes no gang of it: its minAvailable is 50%, and only a whole number"
    " makes one"
)


@pytest.mark.parametrize(("part", "remark"), [("50%", PERCENTAGE), ("", "")])
def test_a_percentage_or_max_unavailable_makes_no_gang(part: str, remark: str) -> None:
    found = gangs(cluster(budget(least=None, part=part), WEBS[0]))

    assert found[GangKey("a/pod:w0")].remark == remark


def test_of_two_budgets_the_larger_counts_and_of_two_equal_ones_the_first_by_name() -> None:
    larger = budget("api", 4)
    unequal, equal = (
        gangs(cluster(*budgets, *WEBS))
        for budgets in ([budget(), larger], [budget(), budget("all", 3)])
    )

    assert set(unequal) == {"a/poddisruptionbudget:api"}
    assert unequal[GangKey("a/poddisruptionbudget:api")].remark == (
        "its minimum is minAvailable of PodDisruptionBudget api,"
        " the largest that selects its pods beside web"
    )
    assert set(equal) == {"a/poddisruptionbudget:all"}


def test_the_reservations_of_a_budgets_gang_end_when_the_budget_is_deleted() -> None:
    made = cluster(budget(), node("n1"), *WEBS)
    made.reservations.reserve(WEBS[0].pod, WEB, "n1", 0.0)
    made.apply(Delete(Kind.BUDGET, "a/web"))

    assert made.reservations.of(uid("w0")) is None


def test_the_reservation_of_a_single_pod_ends_when_a_budget_makes_it_a_member() -> None:
    made = cluster(node("n1"), budget())
    made.reservations.reserve(WEBS[0].pod, GangKey("a/pod:w0"), "n1", 0.0)
    made.apply(Upsert(WEBS[0]))

    assert made.reservations.of(uid("w0")) is None


def test_a_change_of_the_allowed_disruptions_changes_no_gang() -> None:
    made = cluster(budget(), *WEBS)
    before = gangs(made)[WEB]
    made.apply(Upsert(budget(allowed=1)))

    assert gangs(made)[WEB] is before


def test_a_running_gang_counts_in_its_queue_whatever_happens_to_its_budget() -> None:
    """A running gang counts in the queue in which it started, whatever happens to its budget."""
    running = [single(f"w{n}", on="n1", queue="small", started_in="small") for n in range(3)]
    made = cluster(node("n1"), Namespace(name="a"), Queue(name="small"), budget(), *running)

    def used() -> int:
        return make_plan(made.snapshot(NOW)).queues["small"].allocated["cpu"]

    assert make_plan(made.snapshot(NOW)).verdicts[WEB].status is GangStatus.RUNNING
    tricks = [
        Upsert(budget(least=100)),
        Upsert(budget(least=None, part="100%")),
        Upsert(budget(selector=())),
        Delete(Kind.BUDGET, "a/web"),
        Upsert(budget()),
    ]
    for trick in tricks:
        made.apply(trick)
        assert used() == 3000, trick


def test_a_pod_that_the_watch_has_not_shown_yet_is_in_the_gang_for_filter_too() -> None:
    made = cluster(budget())
    seen = WEBS[0]

    assert made.membership(seen.pod, seen.membership).key == WEB
    assert cluster(budget(), budgets_are_gangs=False).membership(seen.pod, seen.membership) is (
        seen.membership
    )


def of_app(name: str, app: str = "web", **rest: Any) -> DisruptionBudget:
    return budget(name, selector=(Requirement("app", "In", (app,)), *rest.pop("also", ())), **rest)


def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every comparison of a budget with a pod."""
    seen: list[str] = []

    def look(*asked: Any) -> bool:
        seen.append("looked")
        return selects(*asked)

    monkeypatch.setattr(budget_gangs, "selects", look)
    return seen


def test_a_budget_is_compared_only_with_pods_that_it_may_select(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each event compared all pods of the namespace with all its budgets, under the lock."""
    made, seen = cluster(*(single(f"p{n}", f"app{n}") for n in range(60))), looks(monkeypatch)
    for number in range(60):
        made.apply(Upsert(of_app(f"b{number}", f"app{number}")))

    assert len(seen) == 60
    assert len(gangs(made)) == 60
    assert all(f"a/poddisruptionbudget:b{n}" in gangs(made) for n in range(60))


@pytest.mark.parametrize("label", [Requirement("app", "In", ("web",)), Requirement("x", "Exists")])
def test_the_number_of_budgets_compared_with_a_pod_is_bounded(
    monkeypatch: pytest.MonkeyPatch, label: Requirement
) -> None:
    made, seen = cluster(*(single(f"p{n}") for n in range(5))), looks(monkeypatch)
    for number in range(200):
        selector = (label, Requirement("y", "Exists"))
        made.apply(Upsert(budget(f"b{number}", selector=selector)))

    assert len(seen) <= 5 * 64 * 65 / 2


def test_a_pod_with_too_many_candidate_budgets_waits_until_there_are_fewer() -> None:
    web, other = single("w0"), single("d0", "db")
    budgets = [of_app(f"b{n:02}", least=n + 1) for n in range(64)]
    made = cluster(web, other, *budgets)
    before = gangs(made)
    assert set(before) == {"a/poddisruptionbudget:b63", "a/pod:d0"}

    # It selects no pod. That it has to be compared is enough, in any order of arrival.
    one_more = of_app("more", also=(Requirement("x", "Exists"),))
    made.apply(Upsert(one_more))
    crowded, afresh = gangs(made), gangs(cluster(one_more, *budgets, web, other))
    made.apply(Delete(Kind.BUDGET, "a/more"))

    for found in (crowded, afresh):
        assert set(found) == {"a/pod:w0", "a/pod:d0"}
        problem = found[GangKey("a/pod:w0")].problem
        assert problem is not None
        assert problem.message == (
            "more PodDisruptionBudgets may select one of its pods than are checked (64, with 1,000"
            " words); write fewer, or selectors that name different labels"
        )
        assert found[GangKey("a/pod:d0")].problem is None
    assert set(gangs(made)) == set(before)


def test_a_pod_with_candidate_budgets_of_too_many_selector_terms_waits_too() -> None:
    wordy = (Requirement("x", "NotIn", tuple(f"v{n}" for n in range(400))),)
    made = cluster(single("w0"), *(of_app(f"b{n}", also=wordy) for n in range(2)))
    assert set(gangs(made)) == {"a/poddisruptionbudget:b0"}

    made.apply(Upsert(of_app("b2", also=wordy)))

    assert gangs(made)[GangKey("a/pod:w0")].problem is not None


def test_of_many_budgets_that_select_a_pod_a_few_are_named_and_the_rest_counted() -> None:
    found = gangs(cluster(single("w0"), *(of_app(f"b{n:02}") for n in range(20))))

    assert found[GangKey("a/poddisruptionbudget:b00")].remark == (
        "its minimum is minAvailable of PodDisruptionBudget b00,"
        " the largest that selects its pods beside b01, b02, b03 and 16 more"
    )


SELECTORS = (
    (),
    (Requirement("app", "In", ("web",)),),
    (Requirement("app", "In", ("web", "db")),),
    (Requirement("app", "In", ()),),
    (Requirement("app", "NotIn", ("db",)), Requirement("app", "In", ("api", "web"))),
    (Requirement("tier", "DoesNotExist"),),
)


@pytest.mark.parametrize("seed", range(5))
def test_after_any_changes_the_gangs_are_the_same_as_in_a_new_cache(seed: int) -> None:
    random, made = Random(seed), cluster()
    there: dict[str, Any] = {}
    for turn in range(200):
        name, is_pod = f"n{random.randrange(8)}", random.random() < 0.5
        key = f"{'pod' if is_pod else 'budget'}/{name}"
        if key in there and random.random() < 0.3:
            del there[key]
            gone = (Kind.POD, uid(name)) if is_pod else (Kind.BUDGET, f"a/{name}")
            made.apply(Delete(*gone))
            continue
        if is_pod:
            there[key] = single(name, random.choice(["web", "db", "api"]))
        else:
            least, part = random.choice([(1, ""), (2, ""), (3, ""), (None, "50%"), (None, "")])
            chosen = random.choice(SELECTORS)
            there[key] = budget(name, least, part=part, selector=chosen)
        made.apply(Upsert(there[key]))
        if turn % 5:
            continue
        told, heard = gangs(made), gangs(cluster(*random.sample([*there.values()], len(there))))

        assert told.keys() == heard.keys()
        for gang, other in zip(told.values(), heard.values(), strict=True):
            assert (gang.group, gang.remark, gang.problem) == (
                other.group,
                other.remark,
                other.problem,
            )
            assert {each.name for each in gang.pods} == {each.name for each in other.pods}
