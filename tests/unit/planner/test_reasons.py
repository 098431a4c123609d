"""Every word of the closed list, with its whole sentence and the arithmetic in it."""

from __future__ import annotations

import pytest

from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from tests.builders import nodes, snapshot
from tests.unit.planner.reason_cases import SENTENCES, Told, waiting


@pytest.mark.parametrize("told", SENTENCES, ids=lambda told: told.reason.value)
def test_the_sentence_of_every_reason(told: Told) -> None:
    plan = make_plan(told.before(), policy_parser.parse(told.policy))
    verdict = plan.verdicts[next(key for key in plan.verdicts if key == "a/train")]

    assert (verdict.reason, verdict.message) == (told.reason, told.message)


def test_no_word_of_the_list_is_left_out() -> None:
    assert {told.reason for told in SENTENCES} == set(Reason)


def test_a_gang_that_was_given_its_nodes_before_says_so() -> None:
    promised = waiting(2, on=["n1", "n1"], each={"status": Status.ALLOCATED})
    verdict = next(iter(make_plan(snapshot(nodes(1, cpu=4), [promised])).verdicts.values()))

    assert verdict.reason is Reason.ADMITTED
    assert verdict.message.startswith("2 members have nodes")
