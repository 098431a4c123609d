"""The pages of nodes, waiting binds, evictions, policy and health."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from extender.cache.reservation_table import Reservation, Stage
from extender.findings.finding import Finding
from extender.model.gang import Gang, GangKey
from extender.model.node import Node
from extender.model.pod import PodUid, Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import (
    GangPlacement,
    GangStatus,
    HeldCapacity,
    HoldReason,
    QueueFigures,
    ShareFigures,
)
from extender.policy_file import PolicyFile
from extender.status.history import RecordedEviction
from extender.web.dashboard import cluster
from extender.web.dashboard.format import QueryFields
from tests.builders import NOW, pod
from tests.scene import gang, node_table, plan, snapshot, verdict
from tests.unit.web.pages.conftest import DashboardReader

TOTAL = Resources({"cpu": 12_000, "memory": 128 << 30})


def names(page: str) -> list[str]:
    return re.findall(r'class="node-name" title="([^"]+)"', page)


@pytest.fixture
def mapped(reader: DashboardReader) -> DashboardReader:
    """Two nodes of 8 and 4 cpus: 3 of n0 are used, 1 of them reserved, and 2 more are held."""
    table = node_table([8, 4])
    table.used[0, 0] = 3000
    members = [pod("g-0", on="n0"), pod("g-1", on="n0", status=Status.BINDING)]
    old, new = gang("g", members), gang("new", 2, status=Status.PENDING)
    placed = {each.uid: "n0" for each in new.pods}
    reader.sees(
        snapshot(old, new, nodes=table),
        plan(
            verdict("a/g"),
            verdict("a/new", Reason.ADMITTED),
            total=TOTAL,
            placements={new.key: GangPlacement(gang=new.key, placements=placed)},
            held_on_nodes={"n1": Resources({"cpu": 1000})},
        ),
    )
    return reader


def test_capacity_of_a_node_is_used_reserved_held_or_free(mapped: DashboardReader) -> None:
    assert mapped.history.last is not None
    told = cluster.nodes_page(mapped.history.last, QueryFields({}, *cluster.NODES_FIELDS))
    first, second = told["shown"].items

    assert (first.used, first.reserved, first.held, first.free) == (2000, 3000, 0, 3000)
    assert (second.used, second.reserved, second.held, second.free) == (0, 0, 1000, 3000)
    assert told["sums"] == [2000, 3000, 1000]
    assert told["free"] == 6000


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["n0", "n1"]),
        ("?find=N1", ["n1"]),
        ("?sort=used&resource=cpu", ["n0", "n1"]),
        ("?sort=reserved&resource=cpu", ["n0", "n1"]),
        ("?sort=free&resource=memory", ["n0", "n1"]),
        ("?resource=nonsense&sort=nonsense", ["n0", "n1"]),
    ],
)
def test_the_node_map_shows_what_the_query_selects(
    mapped: DashboardReader, query: str, found: list[str]
) -> None:
    assert names(mapped.page(f"/nodes{query}")) == found


def test_a_node_that_accepts_no_pods_shows_the_reason_and_has_no_free_capacity(
    reader: DashboardReader,
) -> None:
    table = node_table([8, 8, 8, 16])
    one, two, three, four = table.nodes
    shut: tuple[Node, ...] = (
        replace(one, ready=False),
        replace(two, unschedulable=True),
        replace(three, managed=False),
        four,
    )
    table = replace(table, facts=replace(table.facts, nodes=shut))
    reader.sees(snapshot(nodes=table), plan(total=TOTAL))
    page = reader.page("/nodes?sort=free")

    assert re.findall(r'bad-text">([^<]+)<', page) == ["not ready", "cordoned", "not ours"]
    assert "4 nodes, 3 unavailable" in page
    assert "of 40 · 16 free" in page
    assert names(page) == ["n3", "n0", "n1", "n2"]


def reservations(owner: Gang, stage: Stage, since: float) -> list[Reservation]:
    return [Reservation(each, owner.key, "n0", stage, since) for each in owner.pods]


def test_waiting_binds_show_the_stage_of_members_and_the_oldest_first(
    reader: DashboardReader,
) -> None:
    fresh = gang("fresh", [pod("f-0", on="n", status=Status.BINDING)])
    slow = gang(
        "slow",
        [pod("s-0", on="n", status=Status.BINDING), pod("s-1", on="n", status=Status.ALLOCATED)],
    )
    seated = gang("seated")
    reader.sees(
        snapshot(fresh, slow, seated),
        plan(*(verdict(f"a/{name}", Reason.ADMITTED) for name in ("fresh", "slow", "seated"))),
    )
    reader.reserved = {
        fresh.key: reservations(fresh, Stage.WAITING, 990.0),
        slow.key: [
            reservations(slow, Stage.WAITING, 900.0)[0],
            reservations(slow, Stage.FILTERED, 910.0)[1],
        ],
    }
    page = reader.page("/holds")

    assert re.findall(r'href="\./gangs/a/(\w+)"', page) == ["slow", "fresh"]
    assert "2 gangs with reservations, <b>2 waiting binds</b>" in page
    assert "1 admitted by filter, 1 waiting" in page
    assert "s-0</bdi> on <bdi>n0</bdi>: waiting for 1 min" in page


def test_evictions_show_victim_beneficiary_reason_and_outcome(reader: DashboardReader) -> None:
    reader.sees(snapshot(), plan())
    assert "There were no evictions" in reader.page("/evictions")

    kept = reader.history.evictions
    for number in range(60):
        told = RecordedEviction(
            at=NOW - 60,
            pod=f"a/old-{number}",
            gang=GangKey("a/old"),
            node="n0",
            action="reclaim",
            beneficiary=GangKey("b/new"),
            why="queue right reclaims its deserved share",
        )
        kept.note(PodUid(str(number)), told)
    kept.settled(PodUid("59"), "evicted")
    kept.settled(PodUid("nobody"), "evicted")
    page = reader.page("/evictions")

    assert page.count("<tr>") == 51
    assert "a/old-59" in page
    assert "queue right reclaims its deserved share" in page
    assert page.count(">evicted<") == 1
    assert 'href="./gangs/b/new"' in page
    assert "old-0<" in reader.page("/evictions?page=2")


def test_the_eviction_history_is_limited(reader: DashboardReader) -> None:
    kept = reader.history.evictions
    for number in range(2000):
        at = float(number)
        told = RecordedEviction(
            at, "a/p", GangKey("a/g"), "n", "preempt", GangKey("a/h"), "x" * 9999
        )
        kept.note(PodUid(str(number)), told)

    assert len(kept.all()) == 500
    assert kept.all()[0].at == 1999.0
    assert len(kept.all()[0].why) == 500


def test_the_loaded_policy_is_shown_as_it_was_parsed(reader: DashboardReader) -> None:
    page = reader.page("/policy")

    for word in ("allocate", "backfill", "drf", "proportion", "after 10 min", "<dd>gang-extender<"):
        assert word in page


def test_a_policy_file_that_was_not_loaded_is_reported(
    reader: DashboardReader, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("policy") / "policy.conf"
    path.write_text('actions: "allocate, backfill"\ntiers:\n- plugins:\n  - name: gang\n')
    object.__setattr__(reader.context, "policies", PolicyFile(str(path)))
    page = reader.page("/policy")
    assert "reclaim" not in page
    assert "tier 1" in page

    path.write_text("actions: [")
    assert "The current file is not in force" in reader.page("/policy")


def test_health_shows_watches_latencies_and_findings(reader: DashboardReader) -> None:
    page = reader.page("/health")
    assert "kube-scheduler has not called yet" in page
    assert "This instance leads" in page

    for _ in range(99):
        reader.metrics.hook_seconds.labels("filter").observe(0.0004)
    reader.metrics.hook_seconds.labels("filter").observe(99)
    reader.said, reader.missing = ["binds: kube-scheduler gives up"], ["pods: not complete"]
    reader.leader = ["other-1 leads"]
    page = reader.page("/health")
    assert "filter" in page
    assert "not ready" in page
    assert "pods: not complete" in page
    assert "binds: kube-scheduler gives up" in page
    assert "other-1 leads" in page
    assert "1.5 s ago" in page


def test_latencies_are_upper_limits_for_a_share_of_the_calls(reader: DashboardReader) -> None:
    for seconds in (0.0004, 0.0004, 99.0):
        reader.metrics.hook_seconds.labels("bind").observe(seconds)
    (bind,) = cluster.latencies(reader.metrics.hook_seconds, "verb")

    assert (bind.name, bind.count) == ("bind", 3)
    assert bind.half_s is not None
    assert 0.0004 <= bind.half_s < 0.01
    assert bind.nearly_all_s is None
    assert 33 < bind.mean_s < 34


def test_a_standby_shows_no_findings_of_an_earlier_lease(reader: DashboardReader) -> None:
    found = [Finding("Queue", "left", "ParentUnknown", "its parent is not there")]
    object.__setattr__(reader.context, "findings", lambda: found)
    assert "ParentUnknown" in reader.page("/health")

    reader.leader = ["standby: another one leads"]
    assert "ParentUnknown" not in reader.page("/health")


def test_the_overview_counts_match_the_pages(reader: DashboardReader) -> None:
    shares = [
        ShareFigures(queue="left", namespace=f"team-{number}", limit=TOTAL) for number in range(25)
    ]
    reader.sees(
        snapshot(gang("late"), gang("odd"), gang("wrong")),
        plan(
            verdict("a/late", Reason.INSUFFICIENT_CAPACITY),
            verdict("a/odd", Reason.QUEUE_NOT_FOUND, GangStatus.INVALID),
            verdict("a/wrong", Reason.QUEUE_NOT_FOUND, GangStatus.INVALID),
            queues={"left": QueueFigures(name="left", weight=1)},
            shares={f"left/{each.namespace}": each for each in shares},
            held=tuple(
                HeldCapacity(HoldReason.GUARANTEED, each.namespace, TOTAL) for each in shares
            ),
        ),
    )
    page = reader.page("/")

    assert "25 namespaces with limits" in page
    assert "25 amounts of unused capacity are held" in page
    assert page.count("<li>and 5 more</li>") == 2
    for path, count in re.findall(r'href="\./(gangs\?queue=[^"]+status=\w+)"><b>(\d+)</b>', page):
        listed = reader.page(f"/{html.unescape(path)}")
        assert len(re.findall(r'<a class="name"', listed)) == int(count), path
    assert "<b>2</b> invalid" in page
