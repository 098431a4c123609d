"""`gang-extender explain`: the explanation as text, JSON and YAML."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner, Result

from extender.cli.explain import explain, page
from extender.model.gang import GangKey
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Liveness, SchedulerStatus
from extender.planner.explain.explain import explain as told_with
from extender.planner.plan import QueueFigures
from extender.status.history import GangHistory
from extender.web import api, documents
from extender.web.background import TRYING
from tests.builders import NOW
from tests.scene import evictions, gang, node_table, plan, snapshot, verdict

TRAIN = gang("train", 4, status=Status.PENDING, created=NOW - 90)
FIRST = gang("first", 2, status=Status.PENDING, created=NOW - 200)
MESSAGE = "needs 4 x 1 cpu; 2 slots free"


@pytest.fixture(autouse=True)
def record_cycle(history: GangHistory) -> None:
    said = [
        verdict("a/train", Reason.INSUFFICIENT_CAPACITY, message=MESSAGE, min_member=4),
        verdict("a/first", Reason.INSUFFICIENT_CAPACITY),
    ]
    figures = QueueFigures(name="left", weight=3, deserved=Resources({"cpu": 2000}))
    leaving = tuple(evictions(gang("old", 1), beneficiary="a/train"))
    history.note(
        snapshot(TRAIN, FIRST, nodes=node_table([2, 0])),
        plan(*said, queues={"left": figures}, evictions=leaving),
    )
    history.add_entry(
        GangKey("a/train"), NOW, 3, "VictimNotEvicted", "a/old-0 stays: a budget forbids it"
    )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(explain, list(arguments), standalone_mode=False)


def test_the_scheduler_of_the_pods_is_named_with_the_time_of_its_last_call(
    ops_url: str, history: GangHistory
) -> None:
    pods = tuple(replace(pod, scheduler="volcano") for pod in TRAIN.pods)
    heard = SchedulerStatus(name="volcano", liveness=Liveness.HEARD, called_at=NOW - 45)
    seen = snapshot(replace(TRAIN, pods=pods), nodes=node_table([2, 0]))
    others = {
        "volcano": heard,
        "kube-batch": SchedulerStatus(name="kube-batch", liveness=Liveness.UNHEARD),
    }
    said = verdict("a/train", Reason.INSUFFICIENT_CAPACITY, message=MESSAGE)
    history.note(replace(seen, now=NOW, schedulers=others), plan(said))

    told = run("a/train", "--ops-url", ops_url).output

    assert "volcano, heard, called 40 s ago" in told
    assert "kube-batch" not in told


def test_the_text_has_verdict_arithmetic_order_and_remedy(ops_url: str) -> None:
    said = run("a/train", "--ops-url", ops_url).output

    for words in (
        "a/train  waiting for 90 s",
        f"InsufficientCapacity: {MESSAGE}",
        "4 Pending; 4 needed at once",
        "left, weight 3",
        "needs nodes for 4 members of 1 cpu each; 2 fit now, 2 on an empty cluster",
        "1 node short of cpu",
        "n1 lacks 1 cpu",
        "a/first (left): it is 110 s older",
        "a/old-0 on n",
        "capacity for 2 more members of 1 cpu each",
        "VictimNotEvicted: a/old-0 stays: a budget forbids it",
    ):
        assert words in said


def test_the_wait_and_its_present_reason_have_separate_times(
    ops_url: str, history: GangHistory
) -> None:
    behind = verdict("a/train", Reason.BEHIND_IN_ORDER, message="others go first", min_member=4)
    history.note(snapshot(TRAIN, now=NOW + 7), plan(behind))
    told = json.loads(run("a/train", "--ops-url", ops_url, "-o", "json").output)
    said = run("a/train", "--ops-url", ops_url).output

    assert told["lasted_s"] > told["reason_lasted_s"]
    assert "a/train  waiting for 90 s" in said
    assert f"BehindInOrder for {told['reason_lasted_s']:.0f} s: others go first" in said


def test_an_older_extender_that_sends_fewer_fields_is_understood(ops_url: str) -> None:
    sent = json.loads(run("a/train", "--ops-url", ops_url, "-o", "json").output)
    later = {"since", "estimate", "reason_since", "reason_lasted_s", "schedulers", "is_trying"}
    later.add("needs_count")
    older = {name: value for name, value in sent.items() if name not in later}

    assert later <= {*sent}
    head, *_ = page(msgspec.convert(older, documents.Explanation))
    assert str(head).startswith("a/train  waiting for 90 s")


def test_the_name_of_a_job_finds_its_gang_if_no_other_owner_has_the_name(
    ops_url: str, history: GangHistory
) -> None:
    names = ("job:short", "job:twice", "replicaset:twice")
    gangs = [gang(name, 1, status=Status.PENDING, dialect="") for name in names]
    said = [verdict(f"a/{name}", Reason.INSUFFICIENT_CAPACITY) for name in names]
    history.note(snapshot(*gangs, nodes=node_table([2, 0])), plan(*said))

    assert run("a/short", "--ops-url", ops_url).output.startswith("a/job:short  waiting")
    for name in ("a/twice", "b/short", "pod/a/short"):
        result = CliRunner().invoke(explain, [name, "--ops-url", ops_url])
        assert (result.exit_code, "there is no" in result.output) == (1, True)


def test_a_gang_that_does_not_exist_exits_with_one(ops_url: str) -> None:
    result = CliRunner().invoke(explain, ["a/none", "--ops-url", ops_url])

    assert result.exit_code == 1
    assert "there is no gang and no pod of our schedulers named a/none" in result.output


@pytest.mark.parametrize("name", ["", "a/", "/train", "a/b/c", "pod/", "a b", "A/train", "a/-"])
def test_an_invalid_gang_name_is_invalid_input(name: str) -> None:
    assert "write it like train, podgroup/train or team-a/train" in str(run(name).exception)


@pytest.mark.parametrize(
    "words",
    [
        ["train", "-n", "a"],
        ["a/train", "-n", "a"],
        ["podgroup/train", "-n", "a"],
        ["pg/a/train"],
        ["train-3", "--namespace=a"],
        ["pod/train-0", "-n", "a"],
        ["pods/a/train-0"],
    ],
)
def test_a_gang_can_be_named_as_in_kubectl(ops_url: str, words: list[str]) -> None:
    assert run(*words, "--ops-url", ops_url).output.startswith("a/train  waiting for 90 s\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pod/train", "there is no pod of our schedulers a/train"),
        ("podgroup/train-0", "there is no gang a/train-0"),
    ],
)
def test_a_named_kind_restricts_the_search(ops_url: str, name: str, told: str) -> None:
    result = CliRunner().invoke(explain, [name, "-n", "a", "--ops-url", ops_url])

    assert result.exit_code == 1
    assert told in result.output


def test_an_unfinished_explanation_is_requested_again(
    ops_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [TRYING, TRYING, ("nodes",)]
    monkeypatch.setattr(
        api, "explain", lambda *case: told_with(*case[:4], lambda *_: answers.pop(0))
    )
    monkeypatch.setattr(time, "sleep", lambda _: None)

    told = json.loads(run("a/train", "--ops-url", ops_url, "-o", "json").output)

    assert (told["would_start_with"], told["is_trying"], answers) == (["nodes"], False, [])


def test_an_explanation_that_takes_too_long_is_reported_as_unfinished(
    ops_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "explain", lambda *case: told_with(*case[:4], lambda *_: TRYING))
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    result = run("a/train", "--ops-url", ops_url)

    assert f"would start with\n  {TRYING[0]}" in result.output
    assert len(pauses) == 30
