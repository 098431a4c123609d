"""Who asks, and who does not: what may be concluded from calls, words and silence."""

from __future__ import annotations

from typing import Any

import pytest

from extender.liveness import ALONE_S, KEEP_S, MANY_WAITING_S, RIVAL_S, SETTLED_S, SchedulerLiveness
from extender.model.pod import WOKEN, Pod, Status
from extender.model.reason import Reason
from extender.model.snapshot import Liveness, SchedulerStatus
from extender.sim.clock import VirtualClock
from tests.builders import pod, uid

PATIENCE_S = 20.0
OURS = f"0/3 nodes are available: 3 {Reason.INSUFFICIENT_CAPACITY.sentence}."
ITS_OWN = "0/3 nodes are available: 3 Insufficient cpu."


class Ears:
    """A hearing for two names, and the pods it was told of."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.hearing = SchedulerLiveness(
            ("mine", "other"), self.clock, patience_s=PATIENCE_S, me="us"
        )
        self.told: list[tuple[str, Liveness]] = []
        self.hearing.on_change(lambda caller: self.told.append((caller.name, caller.liveness)))
        self.hearing.update()

    def see(self, name: str = "p0", scheduler: str = "mine", **facts: Any) -> Pod:
        seen = pod(name, scheduler=scheduler, **facts)
        self.hearing.pod_seen(seen.uid, seen)
        return seen

    def ask(self, name: str = "p0", scheduler: str = "mine") -> None:
        self.hearing.hook_called(pod(name, scheduler=scheduler))

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.hearing.update()

    def caller(self, name: str = "mine") -> SchedulerStatus:
        return self.hearing.statuses()[name]

    @property
    def voice(self) -> Liveness:
        return self.caller().liveness

    def call(self) -> str:
        """Name the pod to call kube-scheduler for."""
        pod = self.hearing.due_for_probe("mine", lambda _: True)
        return pod.name if pod else ""


@pytest.fixture
def ears() -> Ears:
    return Ears()


def test_a_scheduler_without_pods_stays_heard_however_long_it_does_not_call(ears: Ears) -> None:
    ears.ask()
    ears.wait(10_000)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.HEARD, 0)


def test_a_new_pod_without_a_hook_call_makes_its_scheduler_silent(ears: Ears) -> None:
    ears.ask("before")
    ears.wait(300)
    ears.see()
    ears.wait(PATIENCE_S)
    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.HEARD, 0)

    ears.wait(2)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.SILENT, 1)
    assert (ears.caller("other").liveness, ears.hearing.overdue("other")) == (Liveness.UNHEARD, 0)


def test_pods_of_a_scheduler_name_never_heard_get_no_reservations(ears: Ears) -> None:
    ears.see()

    assert not ears.caller().may_reserve
    assert "no kube-scheduler has called for pods of scheduler name mine yet" in (
        ears.caller().complaint(ears.clock.now())
    )


def test_a_call_about_any_pod_of_the_scheduler_name_ends_the_silence(ears: Ears) -> None:
    ears.see()
    ears.wait(30)
    assert ears.voice is Liveness.SILENT

    ears.ask("another")

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.HEARD, 0)
    assert ears.told == [("mine", Liveness.SILENT), ("mine", Liveness.HEARD)]


def test_a_call_for_one_scheduler_name_is_no_sign_of_another(ears: Ears) -> None:
    ears.see()
    for _ in range(30):
        ears.wait(1)
        ears.ask("busy", "other")

    assert (ears.voice, ears.caller("other").liveness) == (Liveness.SILENT, Liveness.HEARD)


def test_a_pod_that_kube_scheduler_could_place_nowhere_is_a_sign_of_life(ears: Ears) -> None:
    ears.see()
    ears.see(refusal=ITS_OWN)
    ears.wait(10_000)

    assert ears.voice is Liveness.EXPECTED
    assert ears.caller().may_claim


def test_a_condition_from_before_the_term_allows_reservations_but_no_evictions(
    ears: Ears,
) -> None:
    ears.see(refusal=OURS)

    assert ears.voice is Liveness.EXPECTED
    assert (ears.caller().may_reserve, ears.caller().may_claim) == (True, False)

    ears.see(refusal=ITS_OWN)
    ears.wait(ALONE_S)
    assert not ears.caller().may_claim, "it may ask another, whom we would have met by then"
    ears.wait(1)
    assert ears.caller().may_claim


def test_a_woken_pod_that_does_not_come_makes_its_scheduler_silent(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask("before")
    ears.wait(60)
    ears.hearing.pod_woken(uid("p0"), "n1")
    ears.wait(PATIENCE_S + 1)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.SILENT, 1)


def test_a_nomination_that_kube_scheduler_removes_is_a_sign_of_life(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask("before")
    ears.wait(60)
    ears.hearing.pod_woken(uid("p0"), "n1")
    ears.see(refusal=OURS, nominated="n1")
    ears.see(refusal=OURS)
    ears.wait(60)

    assert ears.voice is Liveness.HEARD


def test_a_nomination_that_the_extender_removes_is_no_sign_of_life(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask("before")
    ears.wait(60)
    ears.hearing.pod_woken(uid("p0"), "n1")
    ears.see(refusal=OURS, nominated="n1")
    ears.wait(15)
    ears.hearing.pod_woken(uid("p0"), "")
    ears.see(refusal=OURS)
    ears.wait(15)

    assert ears.voice is Liveness.SILENT


def test_no_call_is_expected_for_a_woken_pod_that_kube_scheduler_finds_unschedulable(
    ears: Ears,
) -> None:
    ears.see(refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(60)
    ears.hearing.pod_woken(uid("p0"), "n1")
    ears.see(refusal=ITS_OWN, nominated="n1")
    ears.wait(60)

    assert ears.voice is Liveness.HEARD


@pytest.mark.parametrize(
    "facts", [{"gated": True}, {"status": Status.RELEASING}, {"on": "n1"}], ids=str
)
def test_no_call_is_expected_for_a_pod_that_needs_no_node_now(
    ears: Ears, facts: dict[str, Any]
) -> None:
    ears.see()
    ears.see(**facts)
    ears.wait(60)

    assert ears.voice is Liveness.UNHEARD


def test_no_call_is_expected_for_a_deleted_pod(ears: Ears) -> None:
    ears.see()
    ears.hearing.pod_seen(uid("p0"), None)
    ears.wait(60)

    assert ears.voice is Liveness.UNHEARD


def test_a_pod_without_a_call_while_others_are_called_is_no_evidence_later(ears: Ears) -> None:
    ears.see("kept by something else")
    for _ in range(30):
        ears.wait(1)
        ears.ask("others")

    ears.wait(1_000)

    assert ears.voice is Liveness.HEARD


def test_a_new_leader_has_heard_no_scheduler(ears: Ears) -> None:
    ears.ask()
    ears.see("parked", refusal=OURS)
    ears.see("new")
    ears.wait(5)
    ears.hearing.forget()

    assert (ears.voice, ears.caller().called_at) == (Liveness.EXPECTED, 0.0)
    assert not ears.caller().may_claim

    ears.wait(PATIENCE_S)
    assert ears.voice is Liveness.EXPECTED, "its time begins with the term"
    ears.wait(2)
    assert ears.voice is Liveness.SILENT


def test_without_an_update_no_scheduler_becomes_silent(ears: Ears) -> None:
    ears.see()
    ears.clock.advance(10_000)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.UNHEARD, 0)


# Calling


def test_an_unschedulable_pod_is_probed_at_once_after_a_restart(ears: Ears) -> None:
    ears.see(refusal=OURS)

    assert ears.call() == "p0"
    assert ears.call() == ""


def test_a_new_pod_is_not_probed_for_a_moment(ears: Ears) -> None:
    ears.see()
    ears.wait(1)
    assert ears.call() == ""

    ears.wait(1)

    assert ears.call() == "p0"


def test_probes_go_to_one_pod_after_the_other_with_growing_pauses(ears: Ears) -> None:
    for name in ("a", "b", "c"):
        ears.see(name, refusal=OURS)
    called = []
    for second in range(200):
        if name := ears.call():
            called.append((second, name))
        ears.wait(1)

    assert [name for _, name in called[:4]] == ["a", "b", "c", "a"]
    assert [second for second, _ in called] == [0, 2, 6, 14, 30, 60, 90, 120, 150, 180]


def test_a_dead_scheduler_is_found_within_a_minute_while_pods_wait(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask()
    for _ in range(60):
        ears.wait(1)
        ears.call()

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.SILENT, 1)


def test_a_scheduler_that_answers_is_probed_only_after_a_long_silence(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask()
    calls = 0
    for _ in range(1_000):
        ears.wait(1)
        if ears.call():
            calls += 1
            ears.ask()

    assert calls == int(1_000 // (KEEP_S + 1))
    assert ears.voice is Liveness.HEARD


def test_the_same_condition_written_again_after_a_probe_is_a_sign_of_life(ears: Ears) -> None:
    ears.see(refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(30)
    assert ears.call() == "p0"
    ears.see(refusal=ITS_OWN + WOKEN)
    ears.wait(5)
    ears.see(refusal=ITS_OWN)
    ears.wait(20)

    assert ears.voice is Liveness.HEARD


def test_the_mark_of_the_extender_on_a_condition_is_no_sign_of_life(ears: Ears) -> None:
    ears.see(refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(30)
    assert ears.call() == "p0"
    ears.see(refusal=ITS_OWN + WOKEN)
    ears.wait(25)

    assert ears.voice is Liveness.SILENT


def test_pods_woken_by_any_change_are_probed_before_pods_that_need_capacity(ears: Ears) -> None:
    ears.see("full", refusal=ITS_OWN)
    ears.see("ours", refusal=OURS)
    ears.ask("before")
    ears.wait(30)
    assert ears.call() == "ours"
    ears.ask("ours")
    ears.see("ours", refusal=ITS_OWN)
    ears.wait(30)

    assert ears.call() == "full"


def test_many_pods_that_lack_capacity_are_seldom_probed(ears: Ears) -> None:
    for number in range(5_000):
        ears.see(f"p{number}", refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(MANY_WAITING_S * 5_000)
    assert ears.call() == ""

    ears.wait(1)

    assert ears.call() == "p0"


def test_a_pod_that_the_extender_cannot_wake_is_neither_probed_nor_evidence(ears: Ears) -> None:
    ears.see(refusal="0/3 nodes are available: 3 node(s) didn't match Pod's node selector.")
    ears.ask("before")
    ears.wait(1_000)

    assert (ears.call(), ears.voice) == ("", Liveness.HEARD)


# Another extender


def test_an_extender_refusal_without_a_call_is_that_of_another_extender(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.see()
    ears.see(refusal=OURS)

    assert ears.voice is Liveness.ELSEWHERE
    assert not ears.caller().may_reserve
    assert "calls another extender for pods of scheduler name mine" in (
        ears.caller().complaint(ears.clock.now())
    )


def test_an_extender_refusal_just_after_a_term_began_may_be_the_last_leaders(ears: Ears) -> None:
    ears.see()
    ears.see(refusal=OURS)

    assert ears.voice is Liveness.EXPECTED
    assert not ears.caller().may_claim, "they may be those of another extender as well"


def test_an_extender_refusal_after_a_call_is_no_sign_of_another_extender(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.ask()
    ears.see()
    ears.see(refusal=OURS)
    ears.wait(1_000)

    assert ears.voice is Liveness.HEARD


def test_a_call_ends_the_suspicion_of_another_extender(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.see()
    ears.see(refusal=OURS)

    ears.ask()

    assert ears.voice is Liveness.HEARD


def test_wake_ups_of_another_extender_without_any_call_show_that_the_other_is_called(
    ears: Ears,
) -> None:
    ears.see(refusal=ITS_OWN)
    ears.wait(SETTLED_S + 1)
    ears.see(refusal=ITS_OWN, woken_by="them")

    assert (ears.voice, ears.caller().rival) == (Liveness.ELSEWHERE, "them")
    assert "calls another extender (them)" in ears.caller().complaint(ears.clock.now())


def test_an_extender_that_is_called_continues_and_reports_the_other(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.ask()
    ears.see(refusal=OURS)
    ears.see(refusal=OURS, woken_by="them")

    assert (ears.voice, ears.caller().may_claim) == (Liveness.HEARD, True)
    assert "another extender (them) also acts on pods of scheduler name mine;" in (
        ears.caller().complaint(ears.clock.now())
    )

    ears.wait(RIVAL_S)
    assert ears.caller().complaint(ears.clock.now()) == ""


@pytest.mark.parametrize("who", ["us", ""])
def test_the_extenders_own_wake_ups_are_no_sign_of_another(ears: Ears, who: str) -> None:
    ears.see(refusal=OURS)
    ears.wait(SETTLED_S + 1)
    ears.see(refusal=OURS, woken_by=who)

    assert (ears.voice, ears.caller().rival) == (Liveness.EXPECTED, "")


def test_wake_ups_from_before_the_term_are_no_sign_of_another_extender(ears: Ears) -> None:
    ears.see(refusal=OURS, woken_by="our predecessor")
    ears.wait(SETTLED_S + 1)
    ears.see(refusal=ITS_OWN, woken_by="our predecessor")
    ears.see("new", woken_by="our predecessor")

    assert ears.caller().rival == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "50 s"), (119, "110 s"), (121, "2 min"), (7_199, "119 min"), (9_000, "2 h")],
)
def test_messages_about_silence_change_seldom(ears: Ears, seconds: float, words: str) -> None:
    ears.ask("before")
    ears.see()
    ears.wait(30)
    caller = ears.caller()

    assert f"for {words}: is it running, and" in caller.complaint(caller.called_at + seconds)
