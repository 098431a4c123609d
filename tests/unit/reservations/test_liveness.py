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


def test_an_idle_cluster_is_well_however_long_nobody_asks(ears: Ears) -> None:
    ears.ask()
    ears.wait(10_000)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.HEARD, 0)


def test_a_new_pod_that_nobody_asks_for_makes_its_scheduler_silent(ears: Ears) -> None:
    ears.ask("before")
    ears.wait(300)
    ears.see()
    ears.wait(PATIENCE_S)
    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.HEARD, 0)

    ears.wait(2)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.SILENT, 1)
    assert (ears.caller("other").liveness, ears.hearing.overdue("other")) == (Liveness.UNHEARD, 0)


def test_a_name_that_was_never_heard_has_no_room_from_the_first_moment(ears: Ears) -> None:
    ears.see()

    assert not ears.caller().may_reserve
    assert "no kube-scheduler has called for pods of scheduler name mine yet" in (
        ears.caller().complaint(ears.clock.now())
    )


def test_a_call_about_any_pod_of_the_name_ends_the_silence(ears: Ears) -> None:
    ears.see()
    ears.wait(30)
    assert ears.voice is Liveness.SILENT

    ears.ask("another")

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.HEARD, 0)
    assert ears.told == [("mine", Liveness.SILENT), ("mine", Liveness.HEARD)]


def test_what_one_name_says_is_no_sign_of_another(ears: Ears) -> None:
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


def test_words_from_before_our_time_are_enough_for_room_but_nobody_leaves_for_them(
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


def test_a_nomination_that_kube_scheduler_takes_away_is_a_sign_of_life(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask("before")
    ears.wait(60)
    ears.hearing.pod_woken(uid("p0"), "n1")
    ears.see(refusal=OURS, nominated="n1")
    ears.see(refusal=OURS)
    ears.wait(60)

    assert ears.voice is Liveness.HEARD


def test_a_nomination_that_we_take_away_ourselves_is_no_sign(ears: Ears) -> None:
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


def test_a_pod_that_fits_nowhere_in_its_eyes_may_stay_away_though_we_woke_it(ears: Ears) -> None:
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
def test_nobody_is_expected_to_come_for_a_pod_that_needs_no_node_now(
    ears: Ears, facts: dict[str, Any]
) -> None:
    ears.see()
    ears.see(**facts)
    ears.wait(60)

    assert ears.voice is Liveness.UNHEARD


def test_a_pod_that_is_gone_is_waited_for_by_nobody(ears: Ears) -> None:
    ears.see()
    ears.hearing.pod_seen(uid("p0"), None)
    ears.wait(60)

    assert ears.voice is Liveness.UNHEARD


def test_a_pod_that_stays_away_while_others_come_is_no_evidence_later(ears: Ears) -> None:
    ears.see("kept by something else")
    for _ in range(30):
        ears.wait(1)
        ears.ask("others")

    ears.wait(1_000)

    assert ears.voice is Liveness.HEARD


def test_whoever_leads_anew_has_heard_nobody(ears: Ears) -> None:
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


def test_who_does_not_look_concludes_nothing(ears: Ears) -> None:
    ears.see()
    ears.clock.advance(10_000)

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.UNHEARD, 0)


# Calling


def test_a_parked_pod_is_called_for_at_once_after_our_restart(ears: Ears) -> None:
    ears.see(refusal=OURS)

    assert ears.call() == "p0"
    assert ears.call() == ""


def test_new_pods_are_left_to_come_by_themselves_for_a_moment(ears: Ears) -> None:
    ears.see()
    ears.wait(1)
    assert ears.call() == ""

    ears.wait(1)

    assert ears.call() == "p0"


def test_calls_go_to_one_pod_after_the_other_with_pauses_that_grow(ears: Ears) -> None:
    for name in ("a", "b", "c"):
        ears.see(name, refusal=OURS)
    called = []
    for second in range(200):
        if name := ears.call():
            called.append((second, name))
        ears.wait(1)

    assert [name for _, name in called[:4]] == ["a", "b", "c", "a"]
    assert [second for second, _ in called] == [0, 2, 6, 14, 30, 60, 90, 120, 150, 180]


def test_while_pods_wait_a_scheduler_that_died_is_noticed_within_a_minute(ears: Ears) -> None:
    ears.see(refusal=OURS)
    ears.ask()
    for _ in range(60):
        ears.wait(1)
        ears.call()

    assert (ears.voice, ears.hearing.overdue("mine")) == (Liveness.SILENT, 1)


def test_a_scheduler_that_answers_is_called_only_when_it_was_quiet_for_long(ears: Ears) -> None:
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


def test_the_same_word_said_again_after_a_call_is_a_sign_of_life(ears: Ears) -> None:
    ears.see(refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(30)
    assert ears.call() == "p0"
    ears.see(refusal=ITS_OWN + WOKEN)
    ears.wait(5)
    ears.see(refusal=ITS_OWN)
    ears.wait(20)

    assert ears.voice is Liveness.HEARD


def test_our_own_mark_on_its_word_is_no_sign(ears: Ears) -> None:
    ears.see(refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(30)
    assert ears.call() == "p0"
    ears.see(refusal=ITS_OWN + WOKEN)
    ears.wait(25)

    assert ears.voice is Liveness.SILENT


def test_who_comes_for_any_change_is_called_before_those_who_come_for_room(ears: Ears) -> None:
    ears.see("full", refusal=ITS_OWN)
    ears.see("ours", refusal=OURS)
    ears.ask("before")
    ears.wait(30)
    assert ears.call() == "ours"
    ears.ask("ours")
    ears.see("ours", refusal=ITS_OWN)
    ears.wait(30)

    assert ears.call() == "full"


def test_a_crowd_that_lacks_room_is_seldom_called(ears: Ears) -> None:
    for number in range(5_000):
        ears.see(f"p{number}", refusal=ITS_OWN)
    ears.ask("before")
    ears.wait(MANY_WAITING_S * 5_000)
    assert ears.call() == ""

    ears.wait(1)

    assert ears.call() == "p0"


def test_a_pod_that_nothing_we_do_brings_is_neither_called_nor_evidence(ears: Ears) -> None:
    ears.see(refusal="0/3 nodes are available: 3 node(s) didn't match Pod's node selector.")
    ears.ask("before")
    ears.wait(1_000)

    assert (ears.call(), ears.voice) == ("", Liveness.HEARD)


# Another extender


def test_our_words_that_we_did_not_speak_are_those_of_another_extender(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.see()
    ears.see(refusal=OURS)

    assert ears.voice is Liveness.ELSEWHERE
    assert not ears.caller().may_reserve
    assert "calls another extender for pods of scheduler name mine" in (
        ears.caller().complaint(ears.clock.now())
    )


def test_our_words_just_after_a_term_began_may_be_our_predecessors(ears: Ears) -> None:
    ears.see()
    ears.see(refusal=OURS)

    assert ears.voice is Liveness.EXPECTED
    assert not ears.caller().may_claim, "they may be those of another extender as well"


def test_words_that_we_spoke_are_our_own(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.ask()
    ears.see()
    ears.see(refusal=OURS)
    ears.wait(1_000)

    assert ears.voice is Liveness.HEARD


def test_who_is_asked_after_all_is_the_right_one(ears: Ears) -> None:
    ears.wait(SETTLED_S + 1)
    ears.see()
    ears.see(refusal=OURS)

    ears.ask()

    assert ears.voice is Liveness.HEARD


def test_who_is_not_asked_and_sees_another_wake_its_pods_stands_back(ears: Ears) -> None:
    ears.see(refusal=ITS_OWN)
    ears.wait(SETTLED_S + 1)
    ears.see(refusal=ITS_OWN, woken_by="them")

    assert (ears.voice, ears.caller().rival) == (Liveness.ELSEWHERE, "them")
    assert "calls another extender (them)" in ears.caller().complaint(ears.clock.now())


def test_who_is_asked_goes_on_and_names_the_other(ears: Ears) -> None:
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
def test_our_own_wake_ups_are_not_another(ears: Ears, who: str) -> None:
    ears.see(refusal=OURS)
    ears.wait(SETTLED_S + 1)
    ears.see(refusal=OURS, woken_by=who)

    assert (ears.voice, ears.caller().rival) == (Liveness.EXPECTED, "")


def test_whom_our_predecessor_woke_is_no_trace_of_another(ears: Ears) -> None:
    ears.see(refusal=OURS, woken_by="our predecessor")
    ears.wait(SETTLED_S + 1)
    ears.see(refusal=ITS_OWN, woken_by="our predecessor")
    ears.see("new", woken_by="our predecessor")

    assert ears.caller().rival == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "50 s"), (119, "110 s"), (121, "2 min"), (7_199, "119 min"), (9_000, "2 h")],
)
def test_sentences_about_silence_change_seldom(ears: Ears, seconds: float, words: str) -> None:
    ears.ask("before")
    ears.see()
    ears.wait(30)
    caller = ears.caller()

    assert f"for {words}: is it running, and" in caller.complaint(caller.called_at + seconds)
