"""The verdict, on stories that were made up: every rule is seen to fail, and to let pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.nightly.faults import calls, record as seen, rooms, waits, wholeness
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.record import LEADERS_CABLE, RESTED
from tests.nightly.faults.stories import Story
from tests.nightly.faults.verdict import RULES, judge

QUICK = Bounds(patience_s=10)
MANIFESTS = Path(__file__).parents[3] / "manifests"


# ── a gang in part ────────────────────────────────────────────────────────────────────────


def test_a_gang_that_starts_whole_breaks_nothing() -> None:
    story = Story().gang("t", 3, 3).after(1).bind("t-0").after(4).bind("t-1", "t-2").after(60)

    assert story.broken() == []
    verdict = judge(story.record)
    assert (verdict.gangs_started, verdict.pods_bound) == (1, 3)
    assert verdict.longest_partial_s == 4


def test_a_gang_that_stands_in_part_beyond_the_window_is_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(5.5).bind("t-1", "t-2")

    assert story.broken() == [wholeness.RULE]


def test_a_gang_that_is_in_part_when_the_record_ends_is_a_breach() -> None:
    assert Story().gang("t", 3, 3).bind("t-0", "t-1").after(30).broken() == [wholeness.RULE]


def test_the_window_of_a_large_gang_grows_by_the_measured_pace() -> None:
    story = Story().gang("t", 4, 4).bind("t-0").after(7).bind("t-1", "t-2", "t-3")

    assert story.broken(Bounds(each_binding_s=0.6)) == []
    assert story.broken(Bounds(each_binding_s=0.4)) == [wholeness.RULE]


def test_time_without_the_api_server_does_not_count_against_a_gang() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(1).away(20).after(4)

    assert story.bind("t-1", "t-2").broken() == []


def test_time_in_which_the_leader_was_cut_off_does_not_count_against_a_gang() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(1).away(6, who=LEADERS_CABLE).after(4)

    assert story.bind("t-1", "t-2").broken() == []


def test_a_gang_in_part_for_long_after_the_leader_was_cut_off_is_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0").after(1).away(6, who=LEADERS_CABLE).after(7)

    assert story.bind("t-1", "t-2").broken() == [wholeness.RULE]


def test_a_leader_that_is_cut_off_still_answers() -> None:
    story = Story().gang("t", 1, 1)
    story.ask("t-0")

    assert calls.UNANSWERED in story.away(70, who=LEADERS_CABLE).broken()


def test_a_gang_that_loses_members_to_others_is_told_apart() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9).leave("t-1").end("t-1")

    assert story.after(60).broken() == []
    assert judge(story.record).apart == ["a/t"]


def test_a_member_deleted_while_bindings_are_on_their_way_excuses_only_itself() -> None:
    story = Story().gang("t", 3, 3).leave("t-2").end("t-2").after(0.5).bind("t-0")

    assert story.after(30).broken() == [wholeness.RULE]
    assert story.bind("t-1").after(30).broken() == [wholeness.RULE]
    other = Story().gang("t", 3, 3).leave("t-2").end("t-2").after(0.5).bind("t-0", "t-1")
    assert other.after(30).broken() == []


def test_a_member_deleted_long_before_excuses_nothing() -> None:
    story = Story().gang("t", 3, 3).end("t-2").after(10).bind("t-0", "t-1")

    assert story.after(30).broken() == [wholeness.RULE]


def test_members_whom_the_scheduler_sends_away_in_part_are_a_breach() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9)

    assert story.leave("t-1", by_scheduler=True).after(30).broken() == [wholeness.BY_US]


def test_victims_that_leave_whole_are_none() -> None:
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


AGES_AGO = pytest.mark.parametrize("before", [_edited, _made_anew, _lost_one_to_others, _raised])


@AGES_AGO
def test_what_befell_a_gang_ages_ago_is_no_leave_to_tear_it(
    before: Callable[[Story], Story],
) -> None:
    story = before(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))

    assert story.after(9).broken() == []
    assert story.leave("t-1", by_scheduler=True).after(30).broken() == [wholeness.BY_US]
    assert len(judge(story.record).breaches) == 1


@AGES_AGO
def test_a_gang_of_a_past_that_is_sent_away_whole_is_not_torn(
    before: Callable[[Story], Story],
) -> None:
    story = before(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))
    for name in ("t-0", "t-1", "t-2", "t-3"):
        if name in {moment.uid for moment in story.record.of(seen.PodBound)}:
            story.leave(name, by_scheduler=True).after(1)

    assert story.after(60).broken() == []


def test_a_gang_that_others_have_torn_may_lose_more() -> None:
    story = Story().gang("t", 4, 3).bind("t-0", "t-1", "t-2", "t-3").after(9)
    story.leave("t-0", "t-1").end("t-0", "t-1").after(60)

    assert story.leave("t-2", by_scheduler=True).after(60).broken() == []


@pytest.mark.parametrize("ours_first", [True, False])
def test_who_takes_a_surplus_member_has_not_heard_yet_of_whom_others_take(ours_first: bool) -> None:
    story = Story().gang("t", 4, 3).bind("t-0", "t-1", "t-2", "t-3").after(9)
    for ours in (ours_first, not ours_first):
        story.leave("t-0" if ours else "t-1", by_scheduler=ours).after(1)

    assert story.after(60).broken() == []


def test_who_takes_a_surplus_member_has_not_heard_yet_that_it_is_none_any_more() -> None:
    story = Story().gang("t", 4, 3).bind("t-0", "t-1", "t-2", "t-3").after(9).group("t", 4)

    assert story.after(1).leave("t-0", by_scheduler=True).after(60).broken() == []


def test_members_that_are_done_stand_for_the_gang_as_long_as_they_can_be_seen() -> None:
    story = Story().gang("t", 4, 2).bind("t-0", "t-1", "t-2", "t-3").after(9)
    story.end("t-0", "t-1", how="Succeeded").after(60)
    story.leave("t-2", by_scheduler=True).after(60)

    assert story.broken() == []


def test_that_members_who_were_done_are_gone_may_not_have_been_heard_yet() -> None:
    story = Story().gang("t", 4, 2).bind("t-0", "t-1", "t-2", "t-3").after(9)
    story.end("t-0", "t-1", how="Succeeded").after(60).end("t-0", "t-1").after(1)

    assert story.leave("t-2", by_scheduler=True).after(60).broken() == []


def test_a_gang_that_the_scheduler_has_torn_and_that_is_whole_again_in_time_is_none() -> None:
    story = _edited(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))
    story.leave("t-1", by_scheduler=True).after(2).pods("t-3", gang="t").bind("t-3")

    assert story.after(60).broken() == []


def test_a_torn_gang_stays_torn_whatever_comes_that_does_not_make_it_whole() -> None:
    story = _edited(Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9))
    story.leave("t-1", by_scheduler=True).after(2).pods("t-3", gang="t").after(30)

    assert story.broken() == [wholeness.BY_US]


def test_a_gang_may_be_torn_a_second_time() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9)
    story.leave("t-1", by_scheduler=True).after(2).pods("t-3", gang="t").bind("t-3").after(9)

    assert _edited(story).broken() == []
    assert story.leave("t-3", by_scheduler=True).after(30).pods("t-4", gang="t").broken() == [
        wholeness.BY_US
    ]


def test_a_gang_whose_minimum_is_raised_after_its_start_was_whole() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").after(9).group("t", 5)

    assert story.after(60).broken() == []


def test_a_minimum_that_is_raised_too_late_to_be_heard_excuses() -> None:
    story = Story().gang("t", 3, 3).after(9).group("t", 5).after(0.1).bind("t-0", "t-1", "t-2")

    assert story.after(60).broken() == []


def test_a_minimum_that_was_raised_long_before_counts() -> None:
    story = Story().gang("t", 3, 3).after(9).group("t", 5).after(9).bind("t-0", "t-1", "t-2")

    assert story.after(60).broken() == [wholeness.RULE]


def test_a_group_made_anew_under_the_same_name_counts_with_its_new_minimum() -> None:
    story = Story().gang("t", 3, 2).lose_group("t").after(9).group("t", 3).after(9)

    assert story.bind("t-0", "t-1").after(60).broken() == [wholeness.RULE]


def test_a_second_life_of_the_same_gang_is_judged_by_itself() -> None:
    story = Story().gang("t", 3, 3).bind("t-0", "t-1", "t-2").end("t-0", "t-1", "t-2").after(60)
    story.pods("t-3", "t-4", "t-5", gang="t").bind("t-3").after(6)

    assert story.broken() == [wholeness.RULE]


def test_members_that_come_when_the_first_are_done_complete_the_gang() -> None:
    first = ("t-0", "t-1", "t-2")
    story = Story().gang("t", 4, 3).bind(*first).after(9).end(*first, how="Succeeded").after(60)

    assert story.bind("t-3").after(60).broken() == []
    assert story.end("t-3").end(*first).after(9).pods("t-4", gang="t").broken() == []
    assert story.bind("t-4").after(60).broken() == [wholeness.RULE]


# ── rooms ─────────────────────────────────────────────────────────────────────────────────


def test_a_pod_on_two_nodes_is_bound_twice() -> None:
    assert Story().pods("p").bind("p").after(1).bind("p", to="n2").broken() == [rooms.TWICE]


def test_two_bindings_that_succeed_are_one_too_many() -> None:
    story = Story().pods("p").bind("p")
    done = [seen.BindingAnswered(at=1, uid="p", node="n1", status=status) for status in (201, 409)]

    assert story.note(*done).broken() == []
    assert story.note(done[0]).broken() == [rooms.TWICE]


@pytest.mark.parametrize(
    ("node", "after_s", "broken"), [("n2", 9, [rooms.TWICE]), ("n2", 1, []), ("n1", 9, [])]
)
def test_whoever_has_had_a_binding_is_not_asked_for_elsewhere(
    node: str, after_s: float, broken: list[str]
) -> None:
    """The API server refuses it; that it does so is no merit of ours."""
    story = Story().pods("p").bind("p")
    first = seen.BindingAnswered(at=0, uid="p", node="n1", status=201)
    later = seen.BindingAnswered(at=after_s, uid="p", node=node, status=409)

    assert story.note(first, later).after(after_s).broken() == broken


def test_a_pod_on_a_full_node_is_a_breach() -> None:
    story = Story().pods("a", "b", cpu=2).bind("a", "b").pods("c").after(1)

    assert story.broken() == []
    assert story.bind("c").broken() == [rooms.FULL]


def test_room_that_was_given_back_may_be_taken_again() -> None:
    story = Story().pods("a", cpu=4).bind("a").end("a", how="Succeeded").pods("b", cpu=4)

    assert story.bind("b").broken() == []


def test_a_pod_that_is_asked_to_go_still_has_its_room() -> None:
    story = Story().pods("a", cpu=4).bind("a").leave("a").pods("b", cpu=4).after(1)

    assert story.bind("b").broken() == [rooms.FULL]


def test_a_node_that_shrank_long_before_is_full_and_one_that_shrank_just_now_was_not() -> None:
    now = Story().after(60).node("n1", cpu=2).after(1).pods("p", cpu=3).bind("p")
    before = Story().after(60).node("n1", cpu=2).after(9).pods("p", cpu=3).bind("p")

    assert now.broken() == []
    assert before.broken() == [rooms.FULL]


def test_a_node_that_shrinks_under_its_pods_makes_nobody_guilty() -> None:
    assert Story().pods("p", cpu=3).bind("p").after(9).node("n1", cpu=1).after(9).broken() == []


def test_a_pod_on_a_node_that_is_not_there_is_a_breach() -> None:
    assert Story().pods("p").bind("p", to="n9").broken() == [rooms.UNKNOWN]
    story = Story().after(9).lose_node("n1").after(9).pods("p").bind("p")
    assert story.broken() == [rooms.UNKNOWN]


def test_a_pod_on_a_node_that_was_closed_long_before_is_a_breach() -> None:
    story = Story().after(9).node("n1", closed=True)

    assert story.pods("p").after(1).bind("p").broken() == []
    assert story.pods("q").after(9).bind("q").broken() == [rooms.CLOSED]


def test_a_queue_over_its_ceiling_is_a_breach() -> None:
    story = Story().queue("q", cpu=3).after(9).gang("t", 3, 3, queue="q").pods("p", queue="q")

    assert story.bind("t-0", "t-1", "t-2").broken() == []
    assert story.bind("p").broken() == [rooms.CEILING]


def test_a_gang_that_was_moved_while_it_ran_is_paid_for_where_it_started() -> None:
    story = Story().queue("red", cpu=2).queue("blue").gang("t", 2, 2, queue="blue").after(9)
    story.bind("t-0", "t-1").after(9).group("t", 2, queue="red").after(9)

    assert story.gang("u", 2, 2, queue="red").bind("u-0", "u-1").after(9).broken() == []


def test_a_ceiling_that_was_lowered_just_now_makes_nobody_guilty() -> None:
    story = Story().queue("q", cpu=3).after(9).queue("q", cpu=1).pods("p", cpu=3, queue="q")

    assert story.after(1).bind("p").broken() == []
    assert story.after(9).pods("r", queue="q").bind("r").broken() == [rooms.CEILING]


@pytest.mark.parametrize(("left", "is_over"), [((), False), (("t-0", "t-1"), True)])
def test_who_joins_a_gang_that_was_moved_while_it_ran_counts_where_the_others_do(
    left: tuple[str, ...], is_over: bool
) -> None:
    story = Story().queue("red", cpu=2).queue("blue").gang("t", 3, 2, queue="blue").after(9)
    story.bind("t-0", "t-1", queue="blue").after(9).group("t", 2, queue="red").after(9)
    # With nobody left who was started in the old queue it begins anew, in the new one.
    story.end(*left).after(9).bind("t-2", queue="blue").after(9)

    story.gang("u", 2, 2, queue="red").after(9).bind("u-0", "u-1", queue="red")
    assert (rooms.CEILING in story.after(9).broken()) == is_over


def test_a_gang_that_moved_into_a_queue_just_now_is_not_counted_against_it() -> None:
    story = Story().queue("q", cpu=1).after(9).gang("t", 2, 2).after(9).group("t", 2, queue="q")

    assert story.after(1).bind("t-0", "t-1").broken() == []


@pytest.mark.parametrize(("ago", "broken"), [(1, []), (9, [rooms.CEILING])])
def test_a_gang_that_was_moved_while_it_was_bound_is_paid_for_where_its_bindings_say(
    ago: float, broken: list[str]
) -> None:
    story = Story().queue("red", cpu=2).queue("blue").gang("t", 2, 2, queue="blue").after(9)
    # Who names the old queue long after it has moved is not believed.
    story.group("t", 2, queue="red").after(ago).bind("t-0", "t-1", queue="blue").after(9)

    assert story.gang("u", 2, 2, queue="red").after(9).bind("u-0", "u-1").broken() == broken


def test_a_gang_that_starts_in_a_closed_queue_is_a_breach() -> None:
    story = Story().queue("q").after(9).gang("t", 2, 2, queue="q").after(9)
    story.queue("q", is_open=False).after(9)

    assert story.bind("t-0", "t-1").broken() == [rooms.SHUT]


@pytest.mark.parametrize(("taken", "broken"), [(3, [rooms.LEAK]), (2, []), (1, [rooms.LEAK])])
def test_room_that_is_counted_otherwise_than_it_is_has_leaked(
    taken: int, broken: list[str]
) -> None:
    story = Story().pods("a", "b").bind("a", "b").after(9)
    promised = {"n1": {"cpu": taken * 1000}}

    assert story.note(seen.Promised(at=9, who="extender", taken=promised)).broken() == broken


def test_only_the_last_word_on_promises_counts() -> None:
    story = Story().pods("a").bind("a").after(9)
    for cpu in (3000, 1000):
        story.note(seen.Promised(at=9, who="extender", taken={"n1": {"cpu": cpu}}))

    assert story.broken() == []


# ── calls ─────────────────────────────────────────────────────────────────────────────────


def test_a_call_that_nobody_answers_is_a_breach() -> None:
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
def test_who_hung_up_needs_no_answer_unless_he_has_waited_as_long_as_he_was_told(
    hook: str, waited_s: float, broken: list[str]
) -> None:
    story = Story().pods("p")
    call = story.ask("p", hook=hook)

    story.after(waited_s).note(seen.CutOff(at=story.at, call=call, by_caller=True))
    assert story.after(61).broken() == broken


@pytest.mark.parametrize("who", [seen.API_SERVER, LEADERS_CABLE])
def test_who_waited_in_vain_while_nobody_could_answer_was_not_ours_to_answer(who: str) -> None:
    story = Story().pods("p")
    call = story.ask("p", hook="filter")
    story.away(2, who=who).note(seen.CutOff(at=story.at, call=call, by_caller=True))

    assert story.after(9).broken() == []


def test_kube_scheduler_waits_as_long_as_the_configuration_says_that_we_print() -> None:
    shipped = MANIFESTS / "overlays" / "second-scheduler" / "scheduler-config.yaml"
    config = yaml.safe_load(shipped.read_text())
    quick, patient = (float(each["httpTimeout"].rstrip("s")) for each in config["extenders"])

    assert Bounds().told_s == {
        "filter": quick, "prioritize": quick, "preempt": quick, "bind": patient
    }  # fmt: skip


def test_an_extender_that_hangs_up_has_not_answered_unless_it_was_killed() -> None:
    story = Story().pods("p")
    call = story.ask("p")
    story.after(3).note(seen.CutOff(at=story.at, call=call, by_caller=False))

    assert story.broken() == [calls.UNANSWERED]
    story.note(seen.Killed(at=3.0, who="extender"))
    assert story.broken() == []


def test_a_call_that_still_reached_whoever_was_just_killed_needs_no_answer() -> None:
    story = Story().pods("p").note(seen.Killed(at=0, who="extender")).after(0.1)
    call = story.ask("p")
    story.note(seen.CutOff(at=0.2, call=call, by_caller=False)).after(3)

    assert story.broken() == []


def test_a_call_to_whomever_is_excused_by_whoever_was_killed() -> None:
    story = Story().pods("p")
    story.note(seen.Asked(at=1, call=9, hook="bind", uid="p", node="n1"))
    story.note(seen.CutOff(at=2, call=9, by_caller=False)).after(3)

    assert story.broken() == [calls.UNANSWERED]
    assert story.note(seen.Killed(at=2.1, who="extender-b")).broken() == []


def test_a_pod_that_is_told_as_bound_and_is_not_is_a_lost_bind() -> None:
    story = Story().pods("p")
    story.answer(story.ask("p")).after(9)

    assert story.broken() == [calls.LOST]
    assert story.bind("p").broken() == []


def test_a_pod_that_is_told_as_failed_and_is_bound_by_that_very_call_is_a_breach() -> None:
    story = Story().pods("p")
    call = story.ask("p")
    story.after(1).bind("p").after(1).answer(call, "timed out")

    assert story.broken() == [calls.UNTRUE]
    # That filter had been asked about it excuses nobody.
    uid = story.record.of(seen.Asked)[0].uid
    assert story.note(seen.Asked(at=0.1, call=99, hook="filter", uid=uid)).broken()


@pytest.mark.parametrize(("node", "between_s"), [("n2", 1), ("n1", 2)])
def test_that_a_pod_was_refused_before_excuses_no_call_that_binds_it(
    node: str, between_s: float
) -> None:
    story = Story().pods("p")
    story.after(1).answer(story.ask("p", node=node), "its gang is not complete").after(between_s)
    call = story.ask("p")

    assert story.after(1).bind("p").after(1).answer(call, "timed out").broken() == [calls.UNTRUE]


def test_a_call_for_another_node_cannot_have_bound_the_pod_there() -> None:
    story = Story().pods("p")
    call, other = story.ask("p"), story.ask("p", node="n2")
    story.after(1).bind("p").after(1).answer(call, "timed out").answer(other, "it has a node")

    assert story.broken() == [calls.UNTRUE]


def test_another_call_for_the_same_node_that_was_open_may_have_bound_the_pod() -> None:
    story = Story().pods("p")
    one, other = story.ask("p"), story.ask("p")
    story.after(1).bind("p").after(1).answer(one, "timed out").answer(other)

    assert story.broken() == []


def test_a_pod_that_is_gone_when_it_is_told_as_failed_is_none() -> None:
    """kube-scheduler tries nobody elsewhere who is not there."""
    story = Story().pods("p")
    call = story.ask("p")
    story.after(1).bind("p").after(1)
    story.end("p").after(1)

    assert story.answer(call, "the pod is gone").broken() == []


def test_a_pod_that_is_gone_only_after_it_was_told_as_failed_excuses_nobody() -> None:
    story = Story().pods("p")
    call = story.ask("p")
    story.after(1).bind("p").after(1).answer(call, "timed out").after(1).end("p")

    assert story.broken() == [calls.UNTRUE]


def test_a_pod_that_is_told_as_failed_and_was_bound_before_is_none() -> None:
    story = Story().pods("p").bind("p").after(1)

    assert story.answer(story.ask("p", node="n1"), "it has a node").broken() == []


# ── waits ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_complete_and_fits_waits_for_ever_once_all_is_quiet() -> None:
    story = Story().gang("t", 3, 3)

    assert story.after(5).broken(QUICK) == []
    assert story.after(20).broken(QUICK) == [waits.RULE]


def test_a_single_pod_that_fits_waits_for_ever_too() -> None:
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
        "a member is missing", "too large", "no room", "over the ceiling", "queue closed",
        "no such queue", "nodes closed", "no PodGroup", "somebody is in the way",
        "somebody is in the way in their queue",
    ],
)  # fmt: skip
def test_who_has_a_reason_to_wait_may(story: Story) -> None:
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
def test_of_several_who_fit_one_by_one_somebody_has_to_start(story: Story) -> None:
    assert story.after(60).broken(QUICK) == [waits.RULE]
    assert "for each who waits, and nobody starts" in str(judge(story.record, QUICK).breaches[0])


def test_who_waited_when_all_had_come_to_rest_waited_for_ever_whatever_came_later() -> None:
    story = Story().gang("t", 3, 3).after(20)
    story.record.line(RESTED)

    assert story.bind("t-0", "t-1", "t-2").after(9).broken(QUICK) == [waits.RULE]


def test_who_waited_for_less_than_that_did_not() -> None:
    story = Story().gang("t", 3, 3).after(5)
    story.record.line(RESTED)

    assert story.bind("t-0", "t-1", "t-2").after(9).broken(QUICK) == []


def test_what_was_promised_when_all_had_come_to_rest_is_not_held_against_what_came_later() -> None:
    story = Story().pods("a").bind("a").after(9)
    story.note(seen.Promised(at=9, who="a", taken={"n1": {"cpu": 1000}})).record.line(RESTED)

    assert story.end("a", how="Succeeded").after(9).broken() == []


def test_what_had_leaked_when_all_had_come_to_rest_is_not_made_good_later() -> None:
    story = Story().pods("a").bind("a")
    for cpu in (3000, 1000):
        story.after(9).note(seen.Promised(at=story.at, who="a", taken={"n1": {"cpu": cpu}}))
        story.record.line(RESTED)

    assert story.broken() == [rooms.LEAK]


# ── the whole of it ───────────────────────────────────────────────────────────────────────


def test_the_table_names_every_rule_and_then_each_breach() -> None:
    story = Story().pods("p").bind("p", to="n9").after(1)
    story.record.line("over")
    told = judge(story.record).table()

    assert all(f"| {rule} | " in told for rule in RULES)
    assert "pod on a node that is not there: a/p: on n9" in told


def test_a_rule_of_which_nothing_was_noted_is_told_as_not_judged() -> None:
    story = Story().pods("p").bind("p")
    silent = judge(story.record).table()
    story.answer(story.ask("p")).note(seen.Promised(at=0, who="a", taken={"n1": {"cpu": 1000}}))

    for rule in (calls.UNANSWERED, calls.LOST, calls.UNTRUE, rooms.LEAK):
        assert f"| {rule} | not judged |" in silent
    assert "not judged" not in judge(story.record).table()


def test_the_time_from_a_kill_to_readiness_is_measured() -> None:
    story = Story().note(seen.Killed(at=3, who="a"), seen.Ready(at=5.5, who="a"))

    assert judge(story.record).returns == [("a", 3, 2.5)]


def test_a_kill_that_lasts_is_timed_from_its_begin_and_another_one_anew() -> None:
    def kill(at: float, *, still: bool = False) -> seen.Killed:
        return seen.Killed(at=at, who="a", still=still)

    ready = [seen.Ready(at=at, who="a") for at in (15.5, 23.0, 37.0)]
    story = Story().note(kill(10), kill(11.2, still=True), kill(11.6, still=True), ready[0])
    # Killed once more while it started; and one of whom nobody waited to see it ready.
    story.note(kill(20), kill(21), ready[1], kill(30), kill(35), kill(36, still=True), ready[2])

    assert [each[1:] for each in judge(story.record).returns] == [(10, 5.5), (21, 2.0), (35, 2.0)]
