"""Lines that come late or twice: what is newer stays."""

from __future__ import annotations

import random

import pytest

from extender.cache.changes import Kind, Upsert
from extender.kube.decode import resources
from extender.kube.decode.decoder import ObjectDecoder
from extender.kube.list_watch import MOST_GONE, EventOrder, ListWatch, Mode, Signal
from tests import objects
from tests.builders import NOW, cache, node

from .test_list_watch import end_of_list, listed, page, progress, said


def bound(name: str = "p") -> dict[str, object]:
    return objects.stored_pod(name, node="n1")


def test_a_pod_that_is_gone_does_not_come_back_with_a_late_line() -> None:
    made = listed()
    made.line(said("ADDED", 6))
    made.line(said("DELETED", 8))

    assert made.line(said("MODIFIED", 7, **bound())) is Signal.OVERTAKEN


def test_a_late_line_leaves_no_ghost_that_takes_up_room() -> None:
    mirror, made = cache(node("n1")), listed()
    for line in (said("ADDED", 6), said("DELETED", 8), said("MODIFIED", 7, **bound())):
        heard = made.line(line)
        if not isinstance(heard, Signal):
            mirror.apply(heard)

    assert mirror.snapshot(NOW).nodes.used.sum() == 0


def test_an_older_line_about_an_object_is_not_taken() -> None:
    made = listed()
    made.line(said("MODIFIED", 9, **bound()))

    assert made.line(said("MODIFIED", 7)) is Signal.OVERTAKEN


def test_a_line_that_comes_twice_is_taken_once() -> None:
    made = listed()

    assert isinstance(made.line(said("ADDED", 9)), Upsert)
    assert made.line(said("ADDED", 9)) is Signal.OVERTAKEN


def test_of_two_objects_the_older_line_is_news_whatever_was_heard_of_the_other() -> None:
    made = listed()
    made.line(said("ADDED", 9, "q"))

    assert isinstance(made.line(said("ADDED", 7, "p")), Upsert)


def test_what_the_list_has_told_is_not_told_again_by_a_late_line() -> None:
    made = listed(version=5)

    assert made.line(said("ADDED", 4)) is Signal.OVERTAKEN


def test_what_pages_have_told_is_not_told_again_by_a_late_line() -> None:
    made = progress(streaming=False)
    made.next_request(60)
    list(made.page(page("p", version=5)))
    made.next_request(60)

    assert made.line(said("DELETED", 4, "p")) is Signal.OVERTAKEN
    assert not isinstance(made.line(said("DELETED", 6, "p")), Signal)


def test_a_late_end_of_a_node_does_not_take_the_new_one_of_its_name() -> None:
    made = ListWatch(resources.nodes())
    made.next_request(60)
    made.line(end_of_list(5))
    for verb, version in (("ADDED", 6), ("DELETED", 7), ("ADDED", 8)):
        assert not isinstance(
            made.line(said(verb, version, **objects.node("n", ready=True))), Signal
        )

    assert made.line(said("DELETED", 7, **objects.node("n", ready=True))) is Signal.OVERTAKEN
    assert made.line(said("MODIFIED", 6, **objects.node("n", ready=True))) is Signal.OVERTAKEN


def test_a_list_is_believed_though_its_versions_are_lower_than_those_we_know() -> None:
    """A backup of etcd was restored: versions go back, and what they say is true."""
    made = listed(version=500)
    made.line(said("ADDED", 501))
    made.refused(410)
    assert made.next_request(60).mode is Mode.STREAM

    assert isinstance(made.line(said("ADDED", 40)), Upsert)
    assert made.line(end_of_list(41)) is Signal.LISTED
    assert isinstance(made.line(said("MODIFIED", 42)), Upsert)


def test_a_list_that_broke_off_is_told_again_as_a_whole() -> None:
    made = progress()
    made.next_request(60)
    assert isinstance(made.line(said("ADDED", 4)), Upsert)
    made.next_request(60)

    assert isinstance(made.line(said("ADDED", 4)), Upsert)


@pytest.mark.parametrize("version", ["", "abc", "7f", "-7", "\u0667", "7.5", "9" * 5000])
def test_what_is_no_number_is_taken_as_it_comes(version: str) -> None:
    order = EventOrder()
    assert order.is_newer("p", "9", is_gone=False)

    assert order.is_newer("p", version, is_gone=False)


def test_we_go_on_where_we_were_and_not_where_a_late_line_was() -> None:
    made = listed()
    made.line(said("ADDED", 9, "q"))
    made.line(said("ADDED", 7, "p"))

    assert made.next_request(60).query["resourceVersion"] == "9"


def test_only_so_many_of_the_gone_are_remembered() -> None:
    order = EventOrder()
    for version in range(1, 3 * MOST_GONE):
        assert order.is_newer(f"p{version}", str(version), is_gone=True)

    assert len(order._gone) == MOST_GONE
    assert not order._known


@pytest.mark.parametrize("seed", range(20))
def test_lines_in_any_order_end_in_what_the_newest_ones_say(seed: int) -> None:
    chance = random.Random(seed)
    codec: ObjectDecoder[object] = resources.pods(frozenset({"gang-scheduler"}))
    story, alive = [], set[str]()
    for version in range(6, 60):
        name = chance.choice("abc")
        verb = chance.choice(("MODIFIED", "DELETED")) if name in alive else "ADDED"
        alive = alive - {name} if verb == "DELETED" else alive | {name}
        story.append(said(verb, version, name))
    # Late by some lines, and some of them twice.
    late = sorted(range(len(story)), key=lambda at: at + 4 * chance.random())
    heard = [story[at] for at in late for _ in range(chance.choice((1, 1, 2)))]
    mirror, made = cache(), listed()
    for line in heard:
        change = made.line(line)
        if not isinstance(change, Signal):
            mirror.apply(change)

    assert codec.kind is Kind.POD
    assert {pod.name for gang in mirror.snapshot(NOW).gangs.values() for pod in gang.pods} == alive
