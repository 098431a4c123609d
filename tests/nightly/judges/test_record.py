"""Saving, loading and ordering of records."""

from __future__ import annotations

from pathlib import Path

from tests.nightly.faults import record as seen
from tests.nightly.faults.excluded_spans import Spans
from tests.nightly.faults.record import Record


def one_of_each() -> list[seen.Moment]:
    room = {"cpu": 4000}
    return [
        seen.NodeSet(at=1, version=1, name="n1", room=room),
        seen.QueueSet(at=1, version=2, name="q", ceiling=room, open=False),
        seen.GroupSet(at=1, version=3, gang="a/train", uid="g", minimum=3, queue="q"),
        seen.PodCreated(
            at=2, version=4, uid="u", namespace="a", name="p", gang="a/train", request=room
        ),
        seen.PodBound(at=3, version=5, uid="u", node="n1"),
        seen.PodLeaving(at=4, version=6, uid="u", by_scheduler=True),
        seen.PodEnded(at=5, version=7, uid="u"),
        seen.GroupGone(at=6, version=8, gang="a/train", uid="g"),
        seen.NodeGone(at=6, version=9, name="n1"),
        seen.QueueGone(at=6, version=10, name="q"),
        seen.Asked(at=7, call=1, hook="bind", to="a", uid="u", node="n1"),
        seen.Answered(at=8, call=1, error="no"),
        seen.CutOff(at=8, call=2, by_caller=True),
        seen.BindingAnswered(at=8, uid="u", node="n1", status=201, delivered=False),
        seen.Away(at=9, who=seen.API_SERVER),
        seen.Back(at=10, who=seen.API_SERVER),
        seen.Killed(at=11, who="a"),
        seen.Ready(at=12, who="a"),
        seen.Promised(at=13, who="a", taken={"n1": room}),
        seen.Line(at=14, text="over"),
    ]


def test_every_kind_of_moment_survives_save_and_load(tmp_path: Path) -> None:
    moments = one_of_each()
    Record(moments).save(tmp_path / "record.jsonl")

    assert list(Record.load(tmp_path / "record.jsonl")) == moments
    assert {type(moment).__name__ for moment in moments} == set(seen.KINDS)


def test_changes_are_ordered_by_version() -> None:
    late = seen.NodeGone(at=1, version=7, name="n")
    early = seen.NodeGone(at=2, version=5, name="n")

    assert Record([late, early]).changes() == [early, late]


def test_numbers_of_calls_are_unique() -> None:
    record = Record()

    assert [record.next_call(), record.next_call()] == [1, 2]


def test_time_without_the_api_server_is_not_counted() -> None:
    record = Record([seen.Away(at=10, who=seen.API_SERVER), seen.Back(at=18, who=seen.API_SERVER)])
    spans = Spans.of(record, settle_s=2)

    assert spans.counted_s(8, 25) == 7
    assert spans.counted_s(12, 15) == 0
    assert spans.back_from(22, 3) == 9
    assert spans.back_from(30, 3) == 27
    assert spans.back_from(9, 3) == 6
    assert spans.total_s == 10


def test_absence_without_an_end_lasts_to_the_end() -> None:
    record = Record([seen.Away(at=10, who=seen.API_SERVER), seen.Line(at=40, text="over")])

    assert Spans.of(record).counted_s(0, 40) == 10
