"""The verdict on made-up records: every rule fails and passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.nightly.faults import bindings, calls, partial_gangs, record as seen, waits
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.record import LEADERS_LINK, RESTED
from tests.nightly.faults.record_builder import Story
from tests.nightly.faults.verdict import RULES, judge

QUICK = Bounds(patience_s=10)
MANIFESTS = Path(__file__).parents[3] / "manifests"


# ── partial gangs ─────────────────────────────────────────────────────────────────────────


def test_gang_that_starts_whole_breaks_no_rule() -> None:
    story = Story().gang("t", 3, 3).after(1).bind("t-0").after(4).bind("t-1", "t-2").after(60)

    assert story.broken() == []
    verdict = judge(story.record)
    assert (verdict.gangs_started, verdict.pods_bound) == (1, 3)
    assert verdict.longest_partial_s == 4


def test_gang_that_is_partial_for_too_long_is_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(5.5).bind("t-1", "t-2")

    assert story.broken() == [partial_gangs.RULE]


def test_gang_that_is_partial_at_the_end_is_a_breach() -> None:
    assert Story().gang("t", 3, 3).bind("t-0", "t-1").after(30).broken() == [partial_gangs.RULE]


def test_limit_of_a_large_gang_grows_with_its_size() -> None:
    story = Story().gang("t", 4, 4).bind("t-0").after(7).bind("t-1", "t-2", "t-3")

    assert story.broken(Bounds(each_binding_s=0.6)) == []
    assert story.broken(Bounds(each_binding_s=0.4)) == [partial_gangs.RULE]


def test_time_without_the_api_server_does_not_count_against_a_gang() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(1).away(20).after(4)

    assert story.bind("t-1", "t-2").broken() == []


def test_time_without_the_leader_does_not_count_against_a_gang() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(1).away(6, who=LEADERS_LINK).after(4)

    assert story.bind("t-1", "t-2").broken() == []


def test_gang_that_is_partial_for_long_after_that_is_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(1).away(6, who=LEADERS_LINK).after(7)

    assert story.bind("t-1", "t-2").broken() == [partial_gangs.RULE]


def test_disconnected_leader_must_answer_hooks() -> None:
    story = Story().gang("t", 1, 1)
    story.ask("t-0")

    assert calls.UNANSWERED in story.away(70, who=LEADERS_LINK).broken()


def test_gang_that_loses_members_to_others_is_listed_as_apart() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9).leave("t-1").end("t-1")

    assert story.after(60).broken() == []
    assert judge(story.record).apart == ["a/t"]


def test_member_deleted_while_bindings_are_sent_excuses_only_itself() -> None:
    story = Story().gang("t", 3, 3).leave("t-2").end("t-2").after(0.5).bind("t-0")

    assert story.after(30).broken() == [partial_gangs.RULE]
    assert story.bind("t-1").after(30).broken() == [partial_gangs.RULE]
    other = Story().gang("t", 3, 3).leave("t-2").end("t-2").after(0.5).bind("t-0", "t-1")
    assert other.after(30).broken() == []


def test_a_member_deleted_long_before_excuses_nothing() -> None:
    story = Story().gang("t", 3, 3).end("t-2").after(10).bind("t-0", "t-1")

    assert story.after(30).broken() == [partial_gangs.RULE]


def test_evicting_some_members_is_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9)

    assert story.leave("t-1", by_scheduler=True).after(30).broken() == [partial_gangs.BY_US]


def test_evicting_a_whole_gang_is_no_breach() -> None:
    names = ("t-0", "t-1", "t-2")
    story = Story().gang("t", 3, 3).bind(*names).after(9).leave(*names, by_scheduler=True)

    assert story.after(30).broken() == []


def _edited(story: Story) -> Story:
    return story.group("t", 1).after(60).group("t", 3).after(60)


def _made_anew(story: Story) -> Story:
    return story.lose_group("t").after(0.1).group("t", 3).after(60)


def _lost_one_to_others(story: Story) -> Story:
    story.pods("t-3", gang="t").bind("t-3").after(9)
    return story.leave("t-3").end("t-3").after(60)


def _raised(story: Story) -> Story:
    story.pods("t-3", gang="t").bind("t-3").after(9)
    return story.group("t", 4).after(60)


LONG_AGO = pytest.mark.parametrize("before", [_edited, _made_anew, _lost_one_to_others, _raised])


@LONG_AGO
def test_earlier_changes_do_not_excuse_evicting_some_members(
    before: Callable[[Story], Story],
) -> None:
    story = before(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))

    assert story.after(9).broken() == []
    assert story.leave("t-1", by_scheduler=True).after(30).broken() == [partial_gangs.BY_US]
    assert len(judge(story.record).breaches) == 1


@LONG_AGO
def test_evicting_a_whole_gang_after_earlier_changes_is_no_breach(
    before: Callable[[Story], Story],
) -> None:
    story = before(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))
    for name in ("t-0", "t-1", "t-2", "t-3"):
        if name in {moment.uid for moment in story.record.of(seen.PodBound)}:
            story.leave(name, by_scheduler=True).after(1)

    assert story.after(60).broken() == []


def test_gang_that_others_made_partial_may_lose_more() -> None:
    story = Story().gang("t", 4, 3).bind("t-0", "t-1", "t-2", "t-3").after(9)
    story.leave("t-0", "t-1").end("t-0", "t-1").after(60)

    assert story.leave("t-2", by_scheduler=True).after(60).broken() == []


@pytest.mark.parametrize("ours_first", [True, False])
def test_recent_deletion_by_others_excuses_evicting_a_surplus_member(ours_first: bool) -> None:
    story = Story().gang("t", 4, 3).bind("t-0", "t-1", "t-2", "t-3").after(9)
    for ours in (ours_first, not ours_first):
        story.leave("t-0" if ours else "t-1", by_scheduler=ours).after(1)

    assert story.after(60).broken() == []


def test_recent_raise_of_the_minimum_excuses_evicting_a_surplus_member() -> None:
    story = Story().gang("t", 4, 3).bind("t-0", "t-1", "t-2", "t-3").after(9).group("t", 4)

    assert story.after(1).leave("t-0", by_scheduler=True).after(60).broken() == []


def test_succeeded_members_count_while_they_exist() -> None:
    story = Story().gang("t", 4, 2).bind("t-0", "t-1", "t-2", "t-3").after(9)
    story.end("t-0", "t-1", how="Succeeded").after(60)
    story.leave("t-2", by_scheduler=True).after(60)

    assert story.broken() == []


def test_recent_deletion_of_succeeded_members_is_excused() -> None:
    story = Story().gang("t", 4, 2).bind("t-0", "t-1", "t-2", "t-3").after(9)
    story.end("t-0", "t-1", how="Succeeded").after(60).end("t-0", "t-1").after(1)

    assert story.leave("t-2", by_scheduler=True).after(60).broken() == []


def test_gang_that_is_whole_again_in_time_is_no_breach() -> None:
    story = _edited(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))
    story.leave("t-1", by_scheduler=True).after(2).pods("t-3", gang="t").bind("t-3")

    assert story.after(60).broken() == []


def test_new_pending_member_does_not_make_a_gang_whole() -> None:
    story = _edited(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))
    story.leave("t-1", by_scheduler=True).after(2).pods("t-3", gang="t").after(30)

    assert story.broken() == [partial_gangs.BY_US]


def test_second_partial_eviction_is_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9)
    story.leave("t-1", by_scheduler=True).after(2).pods("t-3", gang="t").bind("t-3").after(9)

    assert _edited(story).broken() == []
    assert story.leave("t-3", by_scheduler=True).after(30).pods("t-4", gang="t").broken() == [
        partial_gangs.BY_US
    ]


def test_a_gang_whose_minimum_is_raised_after_its_start_was_whole() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9).group("t", 5)

    assert story.after(60).broken() == []


def test_minimum_raised_just_before_is_excused() -> None:
    story = Story().gang("t", 3, 3).after(9).group("t", 5).after(0.1).bind("t-0", "t-1", "t-2")

    assert story.after(60).broken() == []


def test_minimum_raised_long_before_counts() -> None:
    story = Story().gang("t", 3, 3).after(9).group("t", 5).after(9).bind("t-0", "t-1", "t-2")

    assert story.after(60).broken() == [partial_gangs.RULE]


def test_recreated_group_counts_with_its_new_minimum() -> None:
    story = Story().gang("t", 3, 2).lose_group("t").after(9).group("t", 3).after(9)

    assert story.bind("t-0", "t-1").after(60).broken() == [partial_gangs.RULE]


def test_restarted_gang_is_checked_anew() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").end("t-0", "t-1", "t-2").after(60)
    story.pods("t-3", "t-4", "t-5", gang="t").bind("t-3").after(6)

    assert story.broken() == [partial_gangs.RULE]


def test_late_members_complete_a_gang_with_succeeded_members() -> None:
    first = ("t-0", "t-1", "t-2")
    story = Story().gang("t", 4, 3).bind(*first).after(9).end(*first, how="Succeeded").after(60)

    assert story.bind("t-3").after(60).broken() == []
    assert story.end("t-3").end(*first).after(9).pods("t-4", gang="t").broken() == []
    assert story.bind("t-4").after(60).broken() == [partial_gangs.RULE]


# ── bindings ─────────────────────────────────────────────────────────────────────────────────


def test_pod_on_two_nodes_is_a_breach() -> None:
    assert Story().pods("p").bind("p").after(1).bind("p", to="n2").broken() == [bindings.TWICE]


def test_two_successful_bindings_are_a_breach() -> None:
    story = Story().pods("p").bind("p")
    done = [seen.BindingAnswered(at=1, uid="p", node="n1", status=status) for status in (201, 409)]

    assert story.note(*done).broken() == []
    assert story.note(done[0]).broken() == [bindings.TWICE]


@pytest.mark.parametrize(
    ("node", "after_s", "broken"), [("n2", 9, [bindings.TWICE]), ("n2", 1, []), ("n1", 9, [])]
)
def test_second_binding_to_another_node_is_a_breach_after_a_while(
    node: str, after_s: float, broken: list[str]
) -> None:
    """The API server refuses it, but the extender must not send it."""
    story = Story().pods("p").bind("p")
    first = seen.BindingAnswered(at=0, uid="p", node="n1", status=201)
    later = seen.BindingAnswered(at=after_s, uid="p", node=node, status=409)

    assert story.note(first, later).after(after_s).broken() == broken


def test_a_pod_on_a_full_node_is_a_breach() -> None:
    story = Story().pods("a", "b", cpu=2).bind("a", "b").pods("c").after(1)

    assert story.broken() == []
    assert story.bind("c").broken() == [bindings.FULL]


def test_freed_capacity_may_be_used_again() -> None:
    story = Story().pods("a", cpu=4).bind("a").end("a", how="Succeeded").pods("b", cpu=4)

    assert story.bind("b").broken() == []


def test_terminating_pod_uses_its_capacity() -> None:
    story = Story().pods("a", cpu=4).bind("a").leave("a").pods("b", cpu=4).after(1)

    assert story.bind("b").broken() == [bindings.FULL]


def test_shrunk_node_is_full_after_a_while() -> None:
    now = Story().after(60).node("n1", cpu=2).after(1).pods("p", cpu=3).bind("p")
    before = Story().after(60).node("n1", cpu=2).after(9).pods("p", cpu=3).bind("p")

    assert now.broken() == []
    assert before.broken() == [bindings.FULL]


def test_node_that_shrinks_below_its_usage_is_no_breach() -> None:
    assert Story().pods("p", cpu=3).bind("p").after(9).node("n1", cpu=1).after(9).broken() == []


def test_a_pod_on_a_node_that_is_not_there_is_a_breach() -> None:
    assert Story().pods("p").bind("p", to="n9").broken() == [bindings.UNKNOWN]
    story = Story().after(9).lose_node("n1").after(9).pods("p").bind("p")
    assert story.broken() == [bindings.UNKNOWN]


def test_a_pod_on_a_node_that_was_closed_long_before_is_a_breach() -> None:
    story = Story().after(9).node("n1", closed=True)

    assert story.pods("p").after(1).bind("p").broken() == []
    assert story.pods("q").after(9).bind("q").broken() == [bindings.CLOSED]


def test_a_queue_over_its_ceiling_is_a_breach() -> None:
    story = Story().queue("q", cpu=3).after(9).gang("t", 3, 3, queue="q").pods("p", queue="q")

    assert story.bind("t-0", "t-1", "t-2").broken() == []
    assert story.bind("p").broken() == [bindings.CEILING]


def test_moved_running_gang_counts_in_its_first_queue() -> None:
    story = Story().queue("red", cpu=2).queue("blue").gang("t", 2, 2, queue="blue").after(9)
    story.bind("t-0", "t-1").after(9).group("t", 2, queue="red").after(9)

    assert story.gang("u", 2, 2, queue="red").bind("u-0", "u-1").after(9).broken() == []


def test_recently_lowered_capability_is_excused() -> None:
    story = Story().queue("q", cpu=3).after(9).queue("q", cpu=1).pods("p", cpu=3, queue="q")

    assert story.after(1).bind("p").broken() == []
    assert story.after(9).pods("r", queue="q").bind("r").broken() == [bindings.CEILING]


@pytest.mark.parametrize(("left", "is_over"), [((), False), (("t-0", "t-1"), True)])
def test_new_member_of_a_moved_gang_counts_in_the_queue_of_the_others(
    left: tuple[str, ...], is_over: bool
) -> None:
    story = Story().queue("red", cpu=2).queue("blue").gang("t", 3, 2, queue="blue").after(9)
    story.bind("t-0", "t-1", queue="blue").after(9).group("t", 2, queue="red").after(9)
    # Without members of the old queue the gang starts again in the new one.
    story.end(*left).after(9).bind("t-2", queue="blue").after(9)

    story.gang("u", 2, 2, queue="red").after(9).bind("u-0", "u-1", queue="red")
    assert (bindings.CEILING in story.after(9).broken()) == is_over


def test_recently_moved_gang_is_excused() -> None:
    story = Story().queue("q", cpu=1).after(9).gang("t", 2, 2).after(9).group("t", 2, queue="q")

    assert story.after(1).bind("t-0", "t-1").broken() == []


@pytest.mark.parametrize(("ago", "broken"), [(1, []), (9, [bindings.CEILING])])
def test_gang_moved_during_its_bindings_counts_in_the_queue_of_the_bindings(
    ago: float, broken: list[str]
) -> None:
    story = Story().queue("red", cpu=2).queue("blue").gang("t", 2, 2, queue="blue").after(9)
    # Long after the move the old queue in a binding does not count.
    story.group("t", 2, queue="red").after(ago).bind("t-0", "t-1", queue="blue").after(9)

    assert story.gang("u", 2, 2, queue="red").after(9).bind("u-0", "u-1").broken() == broken


def test_a_gang_that_starts_in_a_closed_queue_is_a_breach() -> None:
    story = Story().queue("q").after(9).gang("t", 2, 2, queue="q").after(9)
    story.queue("q", is_open=False).after(9)

    assert story.bind("t-0", "t-1").broken() == [bindings.SHUT]


@pytest.mark.parametrize(("taken", "broken"), [(3, [bindings.LEAK]), (2, []), (1, [bindings.LEAK])])
def test_wrong_reported_usage_is_a_leak(taken: int, broken: list[str]) -> None:
    story = Story().pods("a", "b").bind("a", "b").after(9)
    promised = {"n1": {"cpu": taken * 1000}}

    assert story.note(seen.Promised(at=9, who="extender", taken=promised)).broken() == broken


def test_only_the_last_reported_usage_counts() -> None:
    story = Story().pods("a").bind("a").after(9)
    for cpu in (3000, 1000):
        story.note(seen.Promised(at=9, who="extender", taken={"n1": {"cpu": cpu}}))

    assert story.broken() == []


# ── calls ─────────────────────────────────────────────────────────────────────────────────


def test_unanswered_call_is_a_breach() -> None:
    story = Story().pods("p")
    story.ask("p")

    assert story.after(30).broken() == []
    assert story.after(61).broken() == [calls.UNANSWERED]


@pytest.mark.parametrize(
    ("hook", "waited_s", "broken"),
    [
        ("bind", 30, []),
        ("bind", 44.9, [calls.UNANSWERED]),
        ("filter", 1, []),
        ("filter", 1.95, [calls.UNANSWERED]),
        ("preempt", 1.95, [calls.UNANSWERED]),
        ("prioritize", 1.95, [calls.UNANSWERED]),
    ],
)
def test_disconnect_of_the_caller_is_a_breach_after_its_timeout(
    hook: str, waited_s: float, broken: list[str]
) -> None:
    story = Story().pods("p")
    call = story.ask("p", hook=hook)

    story.after(waited_s).note(seen.CutOff(at=story.at, call=call, by_caller=True))
    assert story.after(61).broken() == broken


@pytest.mark.parametrize("who", [seen.API_SERVER, LEADERS_LINK])
def test_timeout_without_the_api_server_or_leader_is_excused(who: str) -> None:
    story = Story().pods("p")
    call = story.ask("p", hook="filter")
    story.away(2, who=who).note(seen.CutOff(at=story.at, call=call, by_caller=True))

    assert story.after(9).broken() == []


def test_timeouts_are_those_of_the_printed_configuration() -> None:
    shipped = MANIFESTS / "overlays" / "second-scheduler" / "scheduler-config.yaml"
    config = yaml.safe_load(shipped.read_text())
    filter_s, bind_s = (float(each["httpTimeout"].rstrip("s")) for each in config["extenders"])

    assert Bounds().told_s == {
        "filter": filter_s, "prioritize": filter_s, "preempt": filter_s, "bind": bind_s
    }  # fmt: skip


def test_disconnect_of_the_extender_is_a_breach_unless_it_was_killed() -> None:
    story = Story().pods("p")
    call = story.ask("p")
    story.after(3).note(seen.CutOff(at=story.at, call=call, by_caller=False))

    assert story.broken() == [calls.UNANSWERED]
    story.note(seen.Killed(at=3.0, who="extender"))
    assert story.broken() == []


def test_call_just_after_a_kill_is_excused() -> None:
    story = Story().pods("p").note(seen.Killed(at=0, who="extender")).after(0.1)
    call = story.ask("p")
    story.note(seen.CutOff(at=0.2, call=call, by_caller=False)).after(3)

    assert story.broken() == []


def test_call_without_a_replica_is_excused_by_any_kill() -> None:
    story = Story().pods("p")
    story.note(seen.Asked(at=1, call=9, hook="bind", uid="p", node="n1"))
    story.note(seen.CutOff(at=2, call=9, by_caller=False)).after(3)

    assert story.broken() == [calls.UNANSWERED]
    assert story.note(seen.Killed(at=2.1, who="extender-b")).broken() == []


def test_unbound_pod_reported_as_bound_is_a_breach() -> None:
    story = Story().pods("p")
    story.answer(story.ask("p")).after(9)

    assert story.broken() == [calls.LOST]
    assert story.bind("p").broken() == []


def test_pod_bound_by_a_call_that_is_reported_as_failed_is_a_breach() -> None:
    story = Story().pods("p")
    call = story.ask("p")
    story.after(1).bind("p").after(1).answer(call, "timed out")

    assert story.broken() == [calls.UNTRUE]
    # A filter call for the pod does not excuse it.
    uid = story.record.of(seen.Asked)[0].uid
    assert story.note(seen.Asked(at=0.1, call=99, hook="filter", uid=uid)).broken()


@pytest.mark.parametrize(("node", "between_s"), [("n2", 1), ("n1", 2)])
def test_earlier_refusal_does_not_excuse_it(node: str, between_s: float) -> None:
    story = Story().pods("p")
    story.after(1).answer(story.ask("p", node=node), "its gang is not complete").after(between_s)
    call = story.ask("p")

    assert story.after(1).bind("p").after(1).answer(call, "timed out").broken() == [calls.UNTRUE]


def test_call_for_another_node_does_not_excuse_it() -> None:
    story = Story().pods("p")
    call, other = story.ask("p"), story.ask("p", node="n2")
    story.after(1).bind("p").after(1).answer(call, "timed out").answer(other, "it has a node")

    assert story.broken() == [calls.UNTRUE]


def test_concurrent_call_for_the_same_node_excuses_it() -> None:
    story = Story().pods("p")
    one, other = story.ask("p"), story.ask("p")
    story.after(1).bind("p").after(1).answer(one, "timed out").answer(other)

    assert story.broken() == []


def test_pod_deleted_before_the_response_is_excused() -> None:
    """kube-scheduler does not schedule a deleted pod again."""
    story = Story().pods("p")
    call = story.ask("p")
    story.after(1).bind("p").after(1)
    story.end("p").after(1)

    assert story.answer(call, "the pod is gone").broken() == []


def test_pod_deleted_after_the_response_is_not_excused() -> None:
    story = Story().pods("p")
    call = story.ask("p")
    story.after(1).bind("p").after(1).answer(call, "timed out").after(1).end("p")

    assert story.broken() == [calls.UNTRUE]


def test_pod_bound_before_the_call_is_excused() -> None:
    story = Story().pods("p").bind("p").after(1)

    assert story.answer(story.ask("p", node="n1"), "it has a node").broken() == []


# ── waits ─────────────────────────────────────────────────────────────────────────────────


def test_complete_gang_that_fits_and_waits_is_a_breach() -> None:
    story = Story().gang("t", 3, 3)

    assert story.after(5).broken(QUICK) == []
    assert story.after(20).broken(QUICK) == [waits.RULE]


def test_single_pod_that_fits_and_waits_is_a_breach() -> None:
    assert Story().pods("p").after(20).broken(QUICK) == [waits.RULE]


@pytest.mark.parametrize(
    "story",
    [
        Story().gang("t", 2, 3),
        Story().gang("t", 9, 9),
        Story().pods("a", "b", cpu=4).bind("a").bind("b", to="n2").gang("t", 1, 1),
        Story().queue("q", cpu=2).gang("t", 3, 3, queue="q"),
        Story().queue("q", is_open=False).gang("t", 3, 3, queue="q"),
        Story().gang("t", 3, 3, queue="nowhere"),
        Story().node("n1", closed=True).node("n2", closed=True).gang("t", 3, 3),
        Story().pods("t-0", gang="t"),
        Story().pods("p", cpu=3).bind("p").gang("t", 3, 3).gang("u", 6, 6),
        Story().queue("q", cpu=4).gang("s", 2, 2, queue="q").bind("s-0", "s-1")
        .gang("t", 2, 2, queue="q").gang("u", 3, 3, queue="q"),
    ],
    ids=[
        "a member is missing", "too large", "no capacity", "above the capability", "queue closed",
        "no such queue", "nodes closed", "no PodGroup", "another gang does not fit",
        "another gang does not fit in the queue",
    ],
)  # fmt: skip
def test_gang_with_a_reason_to_wait_is_no_breach(story: Story) -> None:
    assert story.after(60).broken(QUICK) == []


@pytest.mark.parametrize(
    "story",
    [
        Story().gang("t", 3, 3).gang("u", 6, 6),
        Story().queue("q", cpu=4).gang("t", 4, 4, queue="q").gang("u", 4, 4, queue="q"),
        Story().pods(*(f"p{number}" for number in range(40))),
    ],
    ids=["two gangs", "two of which a ceiling takes one", "forty pods"],
)
def test_one_of_several_gangs_that_fit_singly_must_start(story: Story) -> None:
    assert story.after(60).broken(QUICK) == [waits.RULE]
    assert "each waiting gang fits" in str(judge(story.record, QUICK).breaches[0])


def test_gang_that_waits_in_a_pause_is_a_breach_although_it_starts_later() -> None:
    story = Story().gang("t", 3, 3).after(20)
    story.record.line(RESTED)

    assert story.bind("t-0", "t-1", "t-2").after(9).broken(QUICK) == [waits.RULE]


def test_gang_that_waits_shortly_in_a_pause_is_no_breach() -> None:
    story = Story().gang("t", 3, 3).after(5)
    story.record.line(RESTED)

    assert story.bind("t-0", "t-1", "t-2").after(9).broken(QUICK) == []


def test_usage_reported_in_a_pause_is_not_compared_with_the_end() -> None:
    story = Story().pods("a").bind("a").after(9)
    story.note(seen.Promised(at=9, who="a", taken={"n1": {"cpu": 1000}})).record.line(RESTED)

    assert story.end("a", how="Succeeded").after(9).broken() == []


def test_leak_in_a_pause_is_a_breach_although_it_ends_later() -> None:
    story = Story().pods("a").bind("a")
    for cpu in (3000, 1000):
        story.after(9).note(seen.Promised(at=story.at, who="a", taken={"n1": {"cpu": cpu}}))
        story.record.line(RESTED)

    assert story.broken() == [bindings.LEAK]


# ── the verdict ────────────────────────────────────────────────────────────────────────


def test_table_has_every_rule_and_each_breach() -> None:
    story = Story().pods("p").bind("p", to="n9").after(1)
    story.record.line("over")
    table = judge(story.record).table()

    assert all(f"| {rule} | " in table for rule in RULES)
    assert "pod on a node that is not there: a/p: on n9" in table


def test_rule_without_moments_is_listed_as_not_judged() -> None:
    story = Story().pods("p").bind("p")
    silent = judge(story.record).table()
    story.answer(story.ask("p")).note(seen.Promised(at=0, who="a", taken={"n1": {"cpu": 1000}}))

    for rule in (calls.UNANSWERED, calls.LOST, calls.UNTRUE, bindings.LEAK):
        assert f"| {rule} | not judged |" in silent
    assert "not judged" not in judge(story.record).table()


def test_the_time_from_a_kill_to_readiness_is_measured() -> None:
    story = Story().note(seen.Killed(at=3, who="a"), seen.Ready(at=5.5, who="a"))

    assert judge(story.record).returns == [("a", 3, 2.5)]


def test_restart_is_timed_from_the_first_record_of_the_kill() -> None:
    def kill(at: float, *, still: bool = False) -> seen.Killed:
        return seen.Killed(at=at, who="a", still=still)

    ready = [seen.Ready(at=at, who="a") for at in (15.5, 23.0, 37.0)]
    story = Story().note(kill(10), kill(11.2, still=True), kill(11.6, still=True), ready[0])
    # Killed again while it started; and a kill without readiness.
    story.note(kill(20), kill(21), ready[1], kill(30), kill(35), kill(36, still=True), ready[2])

    assert [each[1:] for each in judge(story.record).returns] == [(10, 5.5), (21, 2.0), (35, 2.0)]
