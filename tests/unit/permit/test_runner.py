"""The permit runner: answers, timers, cache changes, threads, failures."""

from __future__ import annotations

import logging
import threading

import pytest

from extender.errors import NoResponse
from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.permit.machine import StateMachine
from extender.permit.messages import Cause, Event
from extender.permit.runner import PermitRunner
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder
from extender.sim.clock import VirtualClock
from tests.doubles import Call, ManualBinder, ManualReader, RecordingObserver, RecordingUndo

from . import soundness
from .world import BOUND, FAILED, GANG, LOST, World

OTHER = GangKey("team/other")


class Scene:
    """A permit runner with a gang of w-0, w-1, ..."""

    def __init__(
        self, members: int, min_member: int | None = None, limits: Timeouts | None = None
    ) -> None:
        self.world = World()
        self.world.add_node("n-1")
        self.world.add_group(members if min_member is None else min_member)
        for index in range(members):
            self.world.add_pod(f"w-{index}")
        self.clock = VirtualClock()
        self.binder = ManualBinder()
        self.reader = ManualReader()
        self.undo = RecordingUndo()
        self.notebook = RecordingObserver()
        self.machine = StateMachine(self.world, limits, chance=lambda: 0.0)
        self.runner = PermitRunner(
            self.machine,
            binder=self.binder,
            groups=self.reader,
            ledger=self.world,
            undo=self.undo,
            timer=self.clock,
            clock=self.clock,
            observer=self.notebook,
        )

    def bind(self, uid: str, node: str = "n-1") -> Call:
        return Call(self.runner, uid, node)

    def start_gang(self, members: int) -> list[Call]:
        waiting = [self.bind(f"w-{index}") for index in range(members)]
        self.reader.confirm()
        return waiting


def test_a_gang_is_answered_when_the_api_server_has_shown_it_bound():
    scene = Scene(2)
    first, second = scene.start_gang(2)

    assert scene.binder.batches == [["w-0", "w-1"]]
    assert not first.done()
    scene.binder.say("w-0")
    assert first.result(0) == ""
    assert not second.done()
    scene.binder.say("w-1")
    assert second.result(0) == ""


def test_the_reservation_follows_the_bind():
    scene = Scene(2)
    scene.bind("w-0")
    assert scene.world.flight[PodUid("w-0")] == ("waiting", "n-1")
    scene.bind("w-1")
    scene.reader.confirm()
    assert scene.world.flight[PodUid("w-0")] == ("binding", "n-1")
    scene.binder.say("w-0")
    scene.binder.say("w-1", LOST)

    assert scene.world.flight == {PodUid("w-0"): ("bound", "n-1")}


def test_the_deadline_refuses_every_call_and_backs_the_gang_off():
    scene = Scene(3)
    waiting = [scene.bind("w-0"), scene.bind("w-1")]
    scene.clock.advance(30)

    text = Cause.DEADLINE.text(GANG)
    assert [each.result(0) for each in waiting] == [text, text]
    assert scene.world.backoffs == [(GANG, 10.0)]
    assert scene.notebook.ended == [("deadline", 30.0), ("deadline", 30.0)]


def test_a_jump_of_the_wall_clock_moves_no_deadline():
    scene = Scene(2)
    waiting = scene.bind("w-0")
    scene.clock.wall_is_off_by = -1_000_000.0
    scene.clock.advance(Timeouts().hold_s - 1)
    assert not waiting.done()
    scene.clock.advance(1)

    assert waiting.result(0) == Cause.DEADLINE.text(GANG)


def test_time_goes_on_after_an_early_alarm():
    scene = Scene(3)
    gone, stays = scene.bind("w-0"), scene.bind("w-1")
    gone.hang_up()
    scene.clock.advance(5)
    assert not stays.done()
    scene.clock.advance(25)

    assert stays.done()


def test_a_disconnected_caller_releases_its_waiting_bind():
    scene = Scene(2)
    waiting = scene.bind("w-0")
    scene.clock.advance(7)
    waiting.hang_up()

    assert waiting.result(0) == Cause.PEER_GONE.text(GANG)
    assert scene.notebook.closed == [7.0]
    assert scene.runner.waiting_binds == 0


def test_a_disconnect_after_the_answer_changes_nothing():
    scene = Scene(1, min_member=1)
    waiting = scene.bind("w-0")
    scene.binder.say("w-0")
    waiting.hang_up()

    assert scene.notebook.closed == []


def test_changes_of_the_cache_are_processed_by_the_timer():
    scene = Scene(2)
    waiting = scene.bind("w-0")
    scene.world.change_pod("w-0", gated=True)
    scene.runner.pod_changed(PodUid("w-0"), GANG)
    assert not waiting.done()
    scene.clock.advance()

    assert waiting.result(0) == Cause.POD_CHANGED.text(GANG)


def test_the_answer_about_a_deleted_pod_waits_until_kube_scheduler_has_seen_it_too():
    scene = Scene(2)
    waiting = scene.bind("w-0")
    scene.runner.pod_changed(scene.world.remove_pod("w-0"), GANG)
    scene.clock.advance()
    assert scene.runner.waiting_binds == 0
    assert not waiting.done()
    scene.clock.advance(0.3)

    assert waiting.result(0) == Cause.POD_GONE.text(GANG)


def test_a_new_member_causes_no_event_but_its_deletion_does():
    scene = Scene(1, min_member=2)
    waiting = scene.bind("w-0")
    scene.clock.advance()  # the deadline is set
    scene.runner.pod_changed(scene.world.add_pod("w-1"), GANG)
    assert scene.clock.next_at > scene.clock.seconds

    scene.runner.pod_changed(scene.world.remove_pod("w-1"), None)
    scene.clock.advance(Timeouts().grace_s)
    assert waiting.result(0) == Cause.NOT_ENOUGH_MEMBERS.text(GANG)


def test_a_member_that_the_cache_shows_bound_while_its_gang_starts_causes_no_event():
    scene = Scene(2)
    scene.start_gang(2)
    scene.clock.advance()
    scene.world.change_pod("w-0", status=Status.BOUND, node="n-1")
    scene.runner.pod_changed(PodUid("w-0"), GANG)

    assert scene.clock.next_at > scene.clock.seconds


def test_changes_that_concern_no_waiting_gang_cost_nothing():
    scene = Scene(2)
    reacted: list[Event] = []
    scene.machine.react = lambda event, now: reacted.append(event) or ()
    scene.runner.pod_changed(PodUid("stranger"), None)
    scene.runner.group_changed(GANG, None)
    scene.runner.sibling_unschedulable(PodUid("w-1"), GANG)
    scene.runner.node_changed("n-1")
    scene.clock.advance()

    assert reacted == []


def test_an_unreadable_group_is_read_again():
    scene = Scene(2)
    first, second = scene.bind("w-0"), scene.bind("w-1")
    scene.reader.reads[0][1].set_exception(NoResponse("no answer"))
    scene.clock.advance(0.5)
    scene.reader.confirm()
    scene.binder.say("w-0")
    scene.binder.say("w-1")

    assert [first.result(0), second.result(0)] == ["", ""]


def test_answers_that_come_at_once_do_not_nest():
    scene = Scene(500)
    scene.reader.at_once = True
    scene.binder.at_once = BOUND
    waiting = [scene.bind(f"w-{index}") for index in range(500)]

    assert {each.result(0) for each in waiting} == {""}
    assert scene.machine.state_of(GANG) is None


def test_a_binder_that_fails_answers_every_call_with_an_error(caplog):
    scene = Scene(2)
    scene.binder.bind = lambda orders, settle: 1 / 0  # type: ignore[method-assign, assignment]
    with caplog.at_level(logging.CRITICAL):
        first, second = scene.start_gang(2)

    assert first.result(0) == second.result(0) == "the outcome of the binding is not known"
    assert scene.notebook.partial == [GANG]  # some of it may be bound


def stumble(*_: object) -> None:
    raise RuntimeError("stumbled")


@pytest.mark.parametrize("broken", ["a reservation", "an observer"])
def test_a_failure_does_not_prevent_the_answers(broken, caplog):
    scene = Scene(3)
    if broken == "a reservation":
        scene.world.release = stumble  # type: ignore[method-assign, assignment]
    else:
        scene.notebook.released = stumble  # type: ignore[method-assign]
    waiting = [scene.bind("w-0"), scene.bind("w-1")]
    scene.clock.advance(30)

    assert {each.result(0) for each in waiting} == {Cause.DEADLINE.text(GANG)}
    assert "permit runner failed" in caplog.text
    assert "stumbled" in caplog.text


def test_a_reservation_that_fails_does_not_prevent_the_binding(caplog):
    scene = Scene(2)
    scene.world.mark_binding = stumble  # type: ignore[method-assign]
    scene.start_gang(2)

    assert scene.binder.batches == [["w-0", "w-1"]]
    assert "stumbled" in caplog.text


def test_a_live_read_that_fails_at_once_is_repeated(caplog):
    scene = Scene(2)
    read, scene.reader.read = scene.reader.read, stumble  # type: ignore[method-assign, assignment]
    scene.bind("w-0")
    scene.bind("w-1")
    assert scene.machine.state_of(GANG) is AttemptState.ASSEMBLING
    scene.reader.read = read  # type: ignore[method-assign]
    scene.clock.advance(0.5)
    scene.reader.confirm()

    assert scene.binder.batches == [["w-0", "w-1"]]


def test_instructions_decided_before_an_exception_are_carried_out(caplog):
    scene = Scene(2)
    first, second = scene.bind("w-0"), scene.bind("w-1")
    scene.world.change_pod("w-0", status=Status.RUNNING, node="n-2")
    scene.world.fits = stumble  # type: ignore[method-assign, assignment]
    scene.reader.confirm()
    assert first.result(0) == Cause.POD_ELSEWHERE.text(GANG)
    scene.clock.advance(40)

    assert second.done()
    assert scene.runner.waiting_binds == 0


def test_timers_continue_after_an_observer_fails_on_a_timeout(caplog):
    scene = Scene(2)
    scene.notebook.learnt_timeout = stumble  # type: ignore[method-assign]
    for _ in range(3):
        scene.world.add_pod("w-0")
        waiting = scene.bind("w-0")
        scene.clock.advance(5)
        if scene.machine.learned.learnt_timeout_s is None:
            waiting.hang_up()
        scene.clock.advance(2)
    assert "stumbled" in caplog.text
    scene.world.add_pod("w-0")
    waiting = scene.bind("w-0")
    scene.clock.advance(30)

    assert waiting.result(0) == Cause.DEADLINE.text(GANG)


def test_an_answer_that_cannot_be_delivered_does_not_affect_others(caplog):
    scene = Scene(3)
    order = BindOrder(uid=PodUid("w-0"), namespace="team", name="w-0", node="n-1")
    scene.runner.bind(order, stumble)
    waiting = scene.bind("w-1")
    scene.clock.advance(30)

    assert waiting.result(0) == Cause.DEADLINE.text(GANG)
    assert len(scene.notebook.ended) == 2
    assert scene.world.backoffs


def test_an_impossible_event_is_logged_and_ignored(caplog):
    scene = Scene(2)
    scene.world.add_pod("alone", gang=None)
    scene.bind("alone")
    waiting = scene.bind("w-0")
    stranger = BindOrder(uid=PodUid("stranger"), namespace="team", name="stranger", node="n-1")
    scene.binder.settle(stranger, BOUND)

    assert "permit runner failed" in caplog.text
    scene.clock.advance(30)
    assert waiting.done()


def test_a_gang_bound_in_part_is_evicted_if_the_setting_asks_for_it():
    scene = Scene(2, limits=Timeouts(evict_partial_s=60))
    scene.start_gang(2)
    scene.binder.say("w-0")
    scene.binder.say("w-1", FAILED)
    scene.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    scene.clock.advance(60)

    assert scene.notebook.partial == [GANG]
    assert scene.undo.taken == [(GANG, ["w-0"])]
    assert [gang for gang, _ in scene.world.backoffs] == [GANG]


def test_a_partial_gang_that_cannot_be_evicted_is_tried_again_at_once():
    scene = Scene(2, limits=Timeouts(evict_partial_s=60))
    scene.undo.refuses = True
    scene.start_gang(2)
    scene.binder.say("w-0")
    scene.binder.say("w-1", FAILED)
    scene.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    scene.clock.advance(60)

    assert scene.undo.taken == [(GANG, ["w-0"])]
    assert scene.world.backoffs == []
    assert not scene.bind("w-1").done(), "it is bound, or waits"


def test_a_lost_lease_refuses_waiting_binds_and_lets_sent_bindings_finish():
    scene = Scene(3, min_member=2)
    sent = scene.start_gang(2)
    scene.world.add_group(2, OTHER, uid="g-2")
    scene.world.add_pod("o-0", OTHER)
    waiting = scene.bind("o-0")
    scene.runner.lose_lease()

    assert waiting.result(0) == Cause.LEASE_LOST.text(OTHER)
    assert scene.world.backoffs == []
    assert scene.runner.why_not_ready() == [f"binds: {Cause.LEASE_LOST.text()}"]
    assert not any(each.done() for each in sent)
    for uid in ("w-0", "w-1"):
        scene.binder.say(uid)
    assert [each.result(0) for each in sent] == ["", ""]
    scene.runner.open()
    assert scene.runner.why_not_ready() == []


def test_the_shutdown_waits_for_sent_bindings():
    scene = Scene(2)
    first, second = scene.start_gang(2)
    finished = scene.runner.shut_down()
    assert not finished.done()
    scene.binder.say("w-0")
    scene.binder.say("w-1")

    assert finished.done()
    assert [first.result(0), second.result(0)] == ["", ""]
    assert scene.bind("w-0").result(0) == Cause.SHUT_DOWN.text()


def test_the_shutdown_refuses_waiting_binds_at_once():
    scene = Scene(2)
    waiting = scene.bind("w-0")

    assert scene.runner.shut_down().done()
    assert waiting.result(0) == Cause.SHUT_DOWN.text(GANG)


def test_only_the_leader_accepts_binds():
    scene = Scene(2)
    scene.runner.lose_lease()
    refused = scene.bind("w-0")
    scene.runner.open()
    scene.world.add_pod("w-0")

    assert refused.result(0) == Cause.LEASE_LOST.text()
    assert not scene.bind("w-0").done()


def learns_a_short_timeout() -> Scene:
    """Return a scene in which kube-scheduler gave up three binds after five seconds."""
    scene = Scene(2)
    for _ in range(3):
        scene.world.add_pod("w-0")
        waiting = scene.bind("w-0")
        scene.clock.advance(5)
        waiting.hang_up()
        scene.clock.advance(2)
    assert scene.machine.learned.learnt_timeout_s == scene.notebook.learnt == pytest.approx(5.0)
    return scene


def test_a_too_short_timeout_of_kube_scheduler_is_learnt_and_reported(caplog):
    scene = learns_a_short_timeout()
    assert "kube-scheduler gives up binds sooner than configured" in caplog.text
    scene.world.add_pod("w-0")
    waiting = scene.bind("w-0")
    scene.clock.advance(5 * 30 / 45 + 0.01)

    assert waiting.result(0) == Cause.DEADLINE.text(GANG)


def test_a_standby_does_not_report_a_timeout_learnt_while_it_led():
    scene = learns_a_short_timeout()

    scene.runner.lose_lease()

    assert scene.notebook.learnt is None
    assert scene.machine.learned.current.hold_s == 30


def test_a_learnt_timeout_is_reported_for_ten_minutes_without_further_binds():
    scene = learns_a_short_timeout()

    scene.clock.advance(590)
    assert scene.notebook.learnt is not None
    scene.clock.advance(11)

    assert scene.notebook.learnt is None


def test_a_gang_whose_calls_come_from_many_threads_is_bound_once():
    scene = Scene(200)
    scene.reader.at_once = True
    scene.binder.at_once = BOUND
    waiting: dict[str, Call] = {}
    gate = threading.Barrier(8)

    def bring(first: int) -> None:
        gate.wait()
        for index in range(first, 200, 8):
            waiting[f"w-{index}"] = scene.bind(f"w-{index}")

    threads = [threading.Thread(target=bring, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(waiting) == 200
    assert {each.result(5) for each in waiting.values()} == {""}
    assert sorted(uid for batch in scene.binder.batches for uid in batch) == sorted(waiting)
    assert len(scene.binder.batches) == 1
    soundness.check(scene.machine)


def test_one_timer_is_pending_however_many_gangs_lose_a_member():
    """A lost member sets an earlier timer. The later one that it replaced must not set another."""
    scene = Scene(0)
    for number in range(60):
        gang = GangKey(f"team/g-{number}")
        scene.world.add_group(2, gang)
        scene.world.add_pod(f"w-{number}", gang)
        leaving = scene.world.add_pod(f"x-{number}", gang)
        scene.bind(f"w-{number}")
        scene.world.remove_pod(leaving)
        scene.runner.pod_changed(leaving, None)
        scene.clock.advance(10)

    assert scene.clock.waiting < 10
