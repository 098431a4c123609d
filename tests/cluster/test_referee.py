"""The judge of acts and terms, on records that were made up; it needs no cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from .referee import Referee

START = datetime(2026, 1, 1, tzinfo=UTC)


class Record:
    """An audit log, in seconds."""

    def __init__(self) -> None:
        self.referee = Referee(Path("none"), "home/lease", {"user-a": "a_", "user-b": "b_"})

    def lease(self, holder: str, at: float, *, took: float = 0.01, code: int = 200) -> None:
        about = {"resource": "leases", "namespace": "home", "name": "lease"}
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15 if holder else 1}
        self._hear("any", at, took, code, objectRef=about, requestObject={"spec": spec})

    def act(self, user: str, at: float, message: str = "", code: int = 201) -> None:
        about = {"resource": "pods", "subresource": "binding"}
        self._hear(user, at, 0.01, code, objectRef=about, message=message)

    def still(self, since: float, until: float) -> None:
        self.referee.stood_still(*(START + timedelta(seconds=each) for each in (since, until)))

    def _hear(
        self, user: str, at: float, took: float, code: int, *, message: str = "", **more: Any
    ) -> None:
        moments = [(START + timedelta(seconds=each)).isoformat() for each in (at, at + took)]
        self.referee.hear(
            {
                "user": {"username": user},
                "verb": "create",
                "requestURI": f"/at/{at:g}",
                "requestReceivedTimestamp": moments[0],
                "stageTimestamp": moments[1],
                "responseStatus": {"code": code, "message": message},
                **more,
            }
        )

    def strays(self) -> list[str]:
        judge = self.referee
        judge._read_on = lambda: None  # type: ignore[method-assign]
        return [told.rpartition("/")[2] for told in judge.strays(START)]


@pytest.fixture
def record() -> Record:
    return Record()


def test_whoever_holds_the_lease_may_act(record: Record) -> None:
    record.lease("a_1", 0)
    record.act("user-a", 1)
    record.lease("a_1", 2)
    record.act("user-a", 16)

    assert record.strays() == []


def test_whoever_holds_none_may_not(record: Record) -> None:
    record.act("user-a", 1)
    record.lease("a_1", 2)
    record.act("user-b", 3)

    assert record.strays() == ["1", "3"]


def test_nobody_may_act_with_a_lease_that_has_run_out(record: Record) -> None:
    record.lease("a_1", 0)
    record.act("user-a", 15.5)

    assert record.strays() == ["15.5"]


def test_nobody_may_act_after_giving_it_back(record: Record) -> None:
    record.lease("a_1", 0)
    record.lease("", 5)
    record.act("user-a", 5.5)

    assert record.strays() == ["5.5"]


def test_the_old_leader_may_not_act_once_another_has_it(record: Record) -> None:
    record.lease("a_1", 0)
    record.lease("b_1", 10)
    record.act("user-a", 10.5)
    record.act("user-b", 10.5)

    assert record.strays() == ["10.5"]


def test_while_the_lease_changes_hands_both_are_in_the_right(record: Record) -> None:
    record.lease("a_1", 0)
    record.lease("b_1", 10, took=1)
    record.act("user-a", 10.5)
    record.act("user-b", 10.5)

    assert record.strays() == []


def test_a_word_that_was_refused_counts_for_nothing(record: Record) -> None:
    record.lease("a_1", 0)
    record.lease("b_1", 1, code=409)
    record.act("user-a", 2)

    assert record.strays() == []


def test_a_request_whose_body_was_held_back_is_no_act(record: Record) -> None:
    record.act("user-a", 1, message="unexpected EOF")

    assert record.strays() == []


def test_what_a_server_that_stood_still_reads_late_was_sent_in_time(record: Record) -> None:
    record.lease("a_1", 0)
    record.still(10, 18)
    record.act("user-a", 18.5)
    record.act("user-a", 19.5)

    assert record.strays() == ["19.5"]


def test_whose_term_had_ended_when_it_stood_still_was_late(record: Record) -> None:
    record.lease("a_1", 0)
    record.still(16, 18)
    record.act("user-a", 18.5)

    assert record.strays() == ["18.5"]


def test_where_another_leads_nothing_that_was_sent_before_is_forgiven(record: Record) -> None:
    record.lease("a_1", 0)
    record.still(10, 18)
    record.lease("b_1", 18.1)
    record.act("user-a", 18.5)

    assert record.strays() == ["18.5"]


@pytest.mark.parametrize(("code", "strays"), [(401, []), (403, []), (409, ["16"]), (500, ["16"])])
def test_what_is_refused_by_its_head_is_no_act(
    record: Record, code: int, strays: list[str]
) -> None:
    record.lease("a_1", 0)
    record.act("user-a", 16, code=code)

    assert record.strays() == strays
