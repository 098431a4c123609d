"""Events that arrive late or twice: the newest state stays."""

from __future__ import annotations

import random

import pytest

from extender.cache.changes import Upsert
from extender.kube.decode import resources
from extender.kube.list_watch import MOST_GONE, EventOrder, ListWatch, Mode, Signal
from tests import objects
from tests.builders import NOW, cache

from .test_list_watch import begun, end_of_list, event_line, listed, page


def bound(name: str = "p") -> dict[str, object]:
    return objects.stored_pod(name, node="n1")


def test_a_deleted_pod_does_not_come_back_with_a_late_event() -> None:
    made = listed()
    made.line(event_line("ADDED", 6))
    made.line(event_line("DELETED", 8))

    assert made.line(event_line("MODIFIED", 7, **bound())) is Signal.OVERTAKEN


def test_an_older_event_about_an_object_is_ignored() -> None:
    made = listed()
    made.line(event_line("MODIFIED", 9, **bound()))

    assert made.line(event_line("MODIFIED", 7)) is Signal.OVERTAKEN


def test_a_repeated_event_is_applied_once() -> None:
    made = listed()

    assert isinstance(made.line(event_line("ADDED", 9)), Upsert)
    assert made.line(event_line("ADDED", 9)) is Signal.OVERTAKEN


def test_event_order_is_kept_for_each_object_separately() -> None:
    made = listed()
    made.line(event_line("ADDED", 9, "q"))

    assert isinstance(made.line(event_line("ADDED", 7, "p")), Upsert)


def test_a_late_event_that_a_streamed_list_already_covered_is_ignored() -> None:
    made = listed(version=5)

    assert made.line(event_line("ADDED", 4)) is Signal.OVERTAKEN


def test_a_late_event_that_a_paged_list_already_covered_is_ignored() -> None:
    made = begun(streaming=False)
    list(made.page(page("p", version=5)))
    made.next_request(60)

    assert made.line(event_line("DELETED", 4, "p")) is Signal.OVERTAKEN
    assert not isinstance(made.line(event_line("DELETED", 6, "p")), Signal)


def test_a_late_deletion_does_not_remove_a_new_node_of_the_same_name() -> None:
    made = ListWatch(resources.nodes())
    made.next_request(60)
    made.line(end_of_list(5))
    for verb, version in (("ADDED", 6), ("DELETED", 7), ("ADDED", 8)):
        assert not isinstance(
            made.line(event_line(verb, version, **objects.node("n", ready=True))), Signal
        )

    assert made.line(event_line("DELETED", 7, **objects.node("n", ready=True))) is Signal.OVERTAKEN
    assert made.line(event_line("MODIFIED", 6, **objects.node("n", ready=True))) is Signal.OVERTAKEN


def test_a_list_with_lower_versions_than_known_is_accepted() -> None:
    """After the restore of an etcd backup versions go back, and the list is correct."""
    made = listed(version=500)
    made.line(event_line("ADDED", 501))
    made.refused(410)
    assert made.next_request(60).mode is Mode.STREAM

    assert isinstance(made.line(event_line("ADDED", 40)), Upsert)
    assert made.line(end_of_list(41)) is Signal.LISTED
    assert isinstance(made.line(event_line("MODIFIED", 42)), Upsert)


def test_a_list_that_broke_off_is_applied_again_completely() -> None:
    made = begun()
    assert isinstance(made.line(event_line("ADDED", 4)), Upsert)
    made.next_request(60)

    assert isinstance(made.line(event_line("ADDED", 4)), Upsert)


@pytest.mark.parametrize("version", ["", "abc", "7f", "-7", "\u0667", "7.5", "9" * 5000])
def test_versions_that_are_not_numbers_are_applied_in_arrival_order(version: str) -> None:
    order = EventOrder()
    assert order.is_newer("p", "9", is_gone=False)

    assert order.is_newer("p", version, is_gone=False)


def test_a_late_event_does_not_move_the_resume_point_back() -> None:
    made = listed()
    made.line(event_line("ADDED", 9, "q"))
    made.line(event_line("ADDED", 7, "p"))

    assert made.next_request(60).query["resourceVersion"] == "9"


def test_the_number_of_remembered_deletions_is_limited() -> None:
    order = EventOrder()
    for version in range(1, 3 * MOST_GONE):
        assert order.is_newer(f"p{version}", str(version), is_gone=True)

    assert len(order) == MOST_GONE


@pytest.mark.parametrize("seed", range(20))
def test_events_in_any_order_end_in_the_newest_state(seed: int) -> None:
    chance = random.Random(seed)
    story, alive = [], set[str]()
    for version in range(6, 60):
        name = chance.choice("abc")
        verb = chance.choice(("MODIFIED", "DELETED")) if name in alive else "ADDED"
        alive = alive - {name} if verb == "DELETED" else alive | {name}
        story.append(event_line(verb, version, name))
    # Late by a few events, and some of them twice.
    late = sorted(range(len(story)), key=lambda at: at + 4 * chance.random())
    received = [story[at] for at in late for _ in range(chance.choice((1, 1, 2)))]
    cluster, made = cache(), listed()
    for line in received:
        change = made.line(line)
        if not isinstance(change, Signal):
            cluster.apply(change)

    assert {pod.name for gang in cluster.snapshot(NOW).gangs.values() for pod in gang.pods} == alive
