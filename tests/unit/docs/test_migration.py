"""What the pages for those who come from elsewhere promise is kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extender.errors import BadConfiguration
from extender.kube.decode import dialects, membership, pods
from extender.model.gang import Gang
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.plan.decision import Plan
from extender.plan.planner import make_plan
from extender.plan.policy import policies
from tests.builders import amounts, cluster, gang, nodes, queue

PAGES = Path(__file__).parents[3] / "docs" / "migration"
VOLCANO = (PAGES / "from-volcano.md").read_text()


def samples(page: str) -> list[str]:
    """Give the YAML that *page* shows, also inside a list."""
    shown = re.findall(r"^( *)```yaml\n(.*?)^ *```$", (PAGES / page).read_text(), re.M | re.S)
    return [re.sub(f"^{indent}", "", text, flags=re.M) for indent, text in shown]


def named(kind: str) -> list[str]:
    """Give the words that a row of the page on Volcano begins with *kind*."""
    (row,) = re.findall(rf"^\| {kind} (.+?) \|", VOLCANO, re.M)
    return re.findall(r"`([^`]+)`", row)


@pytest.mark.parametrize("plugin", named("plugins"))
def test_a_policy_with_a_plugin_of_volcano_that_is_missing_here_is_refused(plugin: str) -> None:
    with pytest.raises(BadConfiguration, match=f"'{plugin}' is Volcano's"):
        policies.parse(f"tiers: [{{plugins: [{{name: {plugin}}}]}}]")


@pytest.mark.parametrize("action", named("actions"))
def test_a_policy_with_an_action_of_volcano_that_is_missing_here_is_refused(action: str) -> None:
    with pytest.raises(BadConfiguration, match=f"'{action}' is Volcano's"):
        policies.parse(f"actions: {action}")


def test_no_plugin_or_action_of_volcano_that_we_refuse_is_left_out() -> None:
    # The last is an older spelling of another.
    assert {*named("plugins"), "tasktopology"} == set(policies._FOREIGN_PLUGINS)
    assert set(named("actions")) == set(policies._FOREIGN_ACTIONS)


def test_kube_batchs_own_policy_is_read_and_evicts_nobody() -> None:
    (written,) = samples("from-kube-batch.md")

    policy = policies.parse(written)
    assert policy.actions == ("allocate", "backfill")
    assert not policy.remarks


def test_the_job_that_kueue_lets_in_is_a_gang() -> None:
    job = yaml.safe_load(samples("from-kueue.md")[0])
    template = job["spec"]["template"]
    owner = {"kind": "Job", "name": job["metadata"]["name"], "uid": "u", "controller": True}
    about = {**template["metadata"], "name": "p", "namespace": "a", "ownerReferences": [owner]}
    made = membership.membership_of(
        pods.pod(json.dumps({"metadata": about, "spec": template["spec"]}).encode())
    )

    assert (made.key, made.min_member) == ("a/job:train", job["spec"]["parallelism"])


class Shared:
    """12 cpus and two queues: one as the page writes it, one without limits."""

    def __init__(self) -> None:
        _, written, policy = samples("from-kueue.md")
        raw = msgspec.convert(yaml.safe_load(written), dialects.RawQueue)
        self.research: Queue = dialects.to_queue(raw)
        self.policy = policies.parse(policy)

    def plan(self, *gangs: Gang) -> Plan:
        other = queue("other", deserved=amounts(cpu=6))
        return make_plan(cluster(nodes(3, cpu=4), gangs, [self.research, other]), self.policy)


def singles(name: str, count: int, **about: Any) -> list[Gang]:
    return [gang(f"a/{name}-{n}", 1, cpu=1, created=float(n), **about) for n in range(count)]


def started(plan: Plan, name: str) -> int:
    found = [each.reason for key, each in plan.verdicts.items() if key.startswith(f"a/{name}-")]
    return found.count(Reason.ADMITTED)


def test_a_queue_with_kueues_numbers_borrows_up_to_its_limit() -> None:
    assert started(Shared().plan(*singles("mine", 12, queue="research")), "mine") == 8


def test_a_queue_with_kueues_numbers_lends_up_to_its_limit() -> None:
    assert started(Shared().plan(*singles("theirs", 12, queue="other")), "theirs") == 10


def test_a_queue_with_kueues_numbers_takes_back_what_it_lacks_of_its_quota() -> None:
    homes = ["n1"] * 4 + ["n2"] * 4 + ["n3"] * 2
    theirs = [
        gang(f"a/theirs-{n}", 1, cpu=1, queue="other", on=[home], created=float(n))
        for n, home in enumerate(homes)
    ]
    decided = Shared().plan(*theirs, *singles("mine", 6, queue="research"))

    # Two find the room that was kept for them; for the others as many leave as are above their due.
    assert started(decided, "mine") == 2
    assert len(decided.evictions) == 4
