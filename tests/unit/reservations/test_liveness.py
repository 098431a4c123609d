"""The liveness of kube-schedulers: what follows from hook calls, conditions and silence."""

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


class LivenessScene:
    """The liveness of two scheduler names, and the pods it was notified of."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.tracker = SchedulerLiveness(
            ("mine", "other"), self.clock, patience_s=PATIENCE_S, me="us"
        )
        self.notified: list[tuple[str, Liveness]] = []
        self.tracker.on_change(lambda status: self.notified.append((status.name, status.liveness)))
        self.tracker.update()

    def see(self, name: str = "p0", scheduler: str = "mine", **facts: Any) -> Pod:
        seen = pod(name, scheduler=scheduler, **facts)
        self.tracker.pod_seen(seen.uid, seen)
        return seen

    def ask(self, name: str = "p0", scheduler: str = "mine") -> None:
        self.tracker.hook_called(pod(name, scheduler=scheduler))

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.advance(1.0)
            self.tracker.update()

    def status(self, name: str = "mine") -> SchedulerStatus:
        return self.tracker.statuses()[name]

    @property
    def liveness(self) -> Liveness:
        return self.status().liveness

    def probe(self) -> str:
        """Return the pod to probe kube-scheduler with."""
        pod = self.tracker.choose_for_probe("mine", lambda _: True)
        return pod.name if pod else ""


@pytest.fixture
def scene() -> LivenessScene:
    return LivenessScene()


def test_a_scheduler_without_pods_stays_heard_however_long_it_does_not_call(
    scene: LivenessScene,
) -> None:
    scene.ask()
    scene.wait(10_000)

    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.HEARD, 0)


def test_a_new_pod_without_a_hook_call_makes_its_scheduler_silent(scene: LivenessScene) -> None:
    scene.ask("before")
    scene.wait(300)
    scene.see()
    scene.wait(PATIENCE_S)
    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.HEARD, 0)

    scene.wait(2)

    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.SILENT, 1)
    assert (scene.status("other").liveness, scene.tracker.overdue("other")) == (Liveness.UNHEARD, 0)


def test_pods_of_a_scheduler_name_never_heard_get_no_reservations(scene: LivenessScene) -> None:
    scene.see()

    assert not scene.status().may_reserve
    assert "no kube-scheduler has called for pods of scheduler name mine yet" in (
        scene.status().problem(scene.clock.now())
    )


def test_a_call_about_any_pod_of_the_scheduler_name_ends_the_silence(scene: LivenessScene) -> None:
    scene.see()
    scene.wait(30)
    assert scene.liveness is Liveness.SILENT

    scene.ask("another")

    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.HEARD, 0)
    assert scene.notified == [("mine", Liveness.SILENT), ("mine", Liveness.HEARD)]


def test_a_call_for_one_scheduler_name_is_no_sign_of_another(scene: LivenessScene) -> None:
    scene.see()
    for _ in range(30):
        scene.wait(1)
        scene.ask("busy", "other")

    assert (scene.liveness, scene.status("other").liveness) == (Liveness.SILENT, Liveness.HEARD)


def test_a_pod_that_kube_scheduler_could_place_nowhere_is_a_sign_of_life(
    scene: LivenessScene,
) -> None:
    scene.see()
    scene.see(refusal=ITS_OWN)
    scene.wait(10_000)

    assert scene.liveness is Liveness.EXPECTED
    assert scene.status().may_claim


def test_a_condition_from_before_the_term_allows_reservations_but_no_evictions(
    scene: LivenessScene,
) -> None:
    scene.see(refusal=OURS)

    assert scene.liveness is Liveness.EXPECTED
    assert (scene.status().may_reserve, scene.status().may_claim) == (True, False)

    scene.see(refusal=ITS_OWN)
    scene.wait(ALONE_S)
    assert not scene.status().may_claim, (
        "it may call another extender, whose wake-ups would show by then"
    )
    scene.wait(1)
    assert scene.status().may_claim


def test_a_woken_pod_that_does_not_come_makes_its_scheduler_silent(scene: LivenessScene) -> None:
    scene.see(refusal=OURS)
    scene.ask("before")
    scene.wait(60)
    scene.tracker.pod_woken(uid("p0"), "n1")
    scene.wait(PATIENCE_S + 1)

    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.SILENT, 1)


@pytest.mark.parametrize(("refusal", "clears"), [(OURS, True), (ITS_OWN, False)])
def test_a_nomination_that_kube_scheduler_removes_or_may_ignore_is_no_silence(
    scene: LivenessScene, refusal: str, clears: bool
) -> None:
    scene.see(refusal=refusal)
    scene.ask("before")
    scene.wait(60)
    scene.tracker.pod_woken(uid("p0"), "n1")
    scene.see(refusal=refusal, nominated="n1")
    if clears:
        scene.see(refusal=refusal)
    scene.wait(60)

    assert scene.liveness is Liveness.HEARD


def test_a_nomination_that_the_extender_removes_is_no_sign_of_life(scene: LivenessScene) -> None:
    scene.see(refusal=OURS)
    scene.ask("before")
    scene.wait(60)
    scene.tracker.pod_woken(uid("p0"), "n1")
    scene.see(refusal=OURS, nominated="n1")
    scene.wait(15)
    scene.tracker.pod_woken(uid("p0"), "")
    scene.see(refusal=OURS)
    scene.wait(15)

    assert scene.liveness is Liveness.SILENT


@pytest.mark.parametrize(
    "facts", [{"gated": True}, {"status": Status.RELEASING}, {"on": "n1"}, None], ids=str
)
def test_no_call_is_expected_for_a_pod_that_needs_no_node_now(
    scene: LivenessScene, facts: dict[str, Any] | None
) -> None:
    scene.see()
    if facts is None:
        scene.tracker.pod_seen(uid("p0"), None)
    else:
        scene.see(**facts)
    scene.wait(60)

    assert scene.liveness is Liveness.UNHEARD


def test_a_pod_without_a_call_while_others_are_called_is_no_evidence_later(
    scene: LivenessScene,
) -> None:
    scene.see("kept by something else")
    for _ in range(30):
        scene.wait(1)
        scene.ask("others")

    scene.wait(1_000)

    assert scene.liveness is Liveness.HEARD


def test_a_new_leader_has_heard_no_scheduler(scene: LivenessScene) -> None:
    scene.ask()
    scene.see("parked", refusal=OURS)
    scene.see("new")
    scene.wait(5)
    scene.tracker.forget()

    assert (scene.liveness, scene.status().called_at) == (Liveness.EXPECTED, 0.0)
    assert not scene.status().may_claim

    scene.wait(PATIENCE_S)
    assert scene.liveness is Liveness.EXPECTED, "its time begins with the term"
    scene.wait(2)
    assert scene.liveness is Liveness.SILENT


def test_without_an_update_no_scheduler_becomes_silent(scene: LivenessScene) -> None:
    scene.see()
    scene.clock.advance(10_000)

    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.UNHEARD, 0)


# Probes


def test_an_unschedulable_pod_is_probed_at_once_after_a_restart(scene: LivenessScene) -> None:
    scene.see(refusal=OURS)

    assert scene.probe() == "p0"
    assert scene.probe() == ""


def test_a_new_pod_is_not_probed_for_a_moment(scene: LivenessScene) -> None:
    scene.see()
    scene.wait(1)
    assert scene.probe() == ""

    scene.wait(1)

    assert scene.probe() == "p0"


def test_probes_go_to_one_pod_after_the_other_with_growing_pauses(scene: LivenessScene) -> None:
    for name in ("a", "b", "c"):
        scene.see(name, refusal=OURS)
    probed = []
    for second in range(200):
        if name := scene.probe():
            probed.append((second, name))
        scene.wait(1)

    assert [name for _, name in probed[:4]] == ["a", "b", "c", "a"]
    assert [second for second, _ in probed] == [0, 2, 6, 14, 30, 60, 90, 120, 150, 180]


def test_a_dead_scheduler_is_found_within_a_minute_while_pods_wait(scene: LivenessScene) -> None:
    scene.see(refusal=OURS)
    scene.ask()
    for _ in range(60):
        scene.wait(1)
        scene.probe()

    assert (scene.liveness, scene.tracker.overdue("mine")) == (Liveness.SILENT, 1)


def test_a_scheduler_that_answers_is_probed_only_after_a_long_silence(scene: LivenessScene) -> None:
    scene.see(refusal=OURS)
    scene.ask()
    probes = 0
    for _ in range(1_000):
        scene.wait(1)
        if scene.probe():
            probes += 1
            scene.ask()

    assert probes == int(1_000 // (KEEP_S + 1))
    assert scene.liveness is Liveness.HEARD


@pytest.mark.parametrize(
    ("answers", "liveness"), [(True, Liveness.HEARD), (False, Liveness.SILENT)]
)
def test_only_a_condition_that_is_written_again_after_a_probe_is_a_sign_of_life(
    scene: LivenessScene, answers: bool, liveness: Liveness
) -> None:
    """The mark of the extender on the condition is none."""
    scene.see(refusal=ITS_OWN)
    scene.ask("before")
    scene.wait(30)
    assert scene.probe() == "p0"
    scene.see(refusal=ITS_OWN + WOKEN)
    scene.wait(5)
    if answers:
        scene.see(refusal=ITS_OWN)
    scene.wait(20)

    assert scene.liveness is liveness


def test_pods_woken_by_any_change_are_probed_before_pods_that_need_capacity(
    scene: LivenessScene,
) -> None:
    scene.see("full", refusal=ITS_OWN)
    scene.see("ours", refusal=OURS)
    scene.ask("before")
    scene.wait(30)
    assert scene.probe() == "ours"
    scene.ask("ours")
    scene.see("ours", refusal=ITS_OWN)
    scene.wait(30)

    assert scene.probe() == "full"


def test_many_pods_that_lack_capacity_are_seldom_probed(scene: LivenessScene) -> None:
    for number in range(5_000):
        scene.see(f"p{number}", refusal=ITS_OWN)
    scene.ask("before")
    scene.wait(MANY_WAITING_S * 5_000)
    assert scene.probe() == ""

    scene.wait(1)

    assert scene.probe() == "p0"


def test_a_pod_that_the_extender_cannot_wake_is_neither_probed_nor_evidence(
    scene: LivenessScene,
) -> None:
    scene.see(refusal="0/3 nodes are available: 3 node(s) didn't match Pod's node selector.")
    scene.ask("before")
    scene.wait(1_000)

    assert (scene.probe(), scene.liveness) == ("", Liveness.HEARD)


# Another extender


def test_an_extender_refusal_without_a_call_is_that_of_another_extender(
    scene: LivenessScene,
) -> None:
    scene.wait(SETTLED_S + 1)
    scene.see()
    scene.see(refusal=OURS)

    assert scene.liveness is Liveness.ELSEWHERE
    assert not scene.status().may_reserve
    assert "calls another extender for pods of scheduler name mine" in (
        scene.status().problem(scene.clock.now())
    )


def test_an_extender_refusal_just_after_a_term_began_may_be_the_last_leaders(
    scene: LivenessScene,
) -> None:
    scene.see()
    scene.see(refusal=OURS)

    assert scene.liveness is Liveness.EXPECTED
    assert not scene.status().may_claim, "it may be that of another extender as well"


def test_an_extender_refusal_after_a_call_is_no_sign_of_another_extender(
    scene: LivenessScene,
) -> None:
    scene.wait(SETTLED_S + 1)
    scene.ask()
    scene.see()
    scene.see(refusal=OURS)
    scene.wait(1_000)

    assert scene.liveness is Liveness.HEARD


def test_a_call_ends_the_suspicion_of_another_extender(scene: LivenessScene) -> None:
    scene.wait(SETTLED_S + 1)
    scene.see()
    scene.see(refusal=OURS)

    scene.ask()

    assert scene.liveness is Liveness.HEARD


def test_wake_ups_of_another_extender_without_any_call_show_that_the_other_is_called(
    scene: LivenessScene,
) -> None:
    scene.see(refusal=ITS_OWN)
    scene.wait(SETTLED_S + 1)
    scene.see(refusal=ITS_OWN, woken_by="them")

    assert (scene.liveness, scene.status().rival) == (Liveness.ELSEWHERE, "them")
    assert "calls another extender (them)" in scene.status().problem(scene.clock.now())


def test_an_extender_that_is_called_continues_and_reports_the_other(scene: LivenessScene) -> None:
    scene.wait(SETTLED_S + 1)
    scene.ask()
    scene.see(refusal=OURS)
    scene.see(refusal=OURS, woken_by="them")

    assert (scene.liveness, scene.status().may_claim) == (Liveness.HEARD, True)
    assert "another extender (them) also acts on pods of scheduler name mine;" in (
        scene.status().problem(scene.clock.now())
    )

    scene.wait(RIVAL_S)
    assert scene.status().problem(scene.clock.now()) == ""


@pytest.mark.parametrize("waker", ["us", ""])
def test_the_extenders_own_wake_ups_are_no_sign_of_another(
    scene: LivenessScene, waker: str
) -> None:
    scene.see(refusal=OURS)
    scene.wait(SETTLED_S + 1)
    scene.see(refusal=OURS, woken_by=waker)

    assert (scene.liveness, scene.status().rival) == (Liveness.EXPECTED, "")


def test_wake_ups_from_before_the_term_are_no_sign_of_another_extender(
    scene: LivenessScene,
) -> None:
    scene.see(refusal=OURS, woken_by="our predecessor")
    scene.wait(SETTLED_S + 1)
    scene.see(refusal=ITS_OWN, woken_by="our predecessor")
    scene.see("new", woken_by="our predecessor")

    assert scene.status().rival == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "50 s"), (119, "110 s"), (121, "2 min"), (7_199, "119 min"), (9_000, "2 h")],
)
def test_messages_about_silence_change_seldom(
    scene: LivenessScene, seconds: float, words: str
) -> None:
    scene.ask("before")
    scene.see()
    scene.wait(30)
    status = scene.status()

    assert f"for {words}: is it running, and" in status.problem(status.called_at + seconds)
