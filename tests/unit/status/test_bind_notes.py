"""Events and metrics about binds that wait for their gang."""

from __future__ import annotations

from extender.cache.changes import Upsert
from extender.cache.cluster import Cluster
from extender.metrics import Metrics
from extender.model.gang import GangKey, PodGroup
from extender.ports import EventRecord
from extender.sim.clock import VirtualClock
from extender.status.notes import PARTIALLY_BOUND, BindNotes

GROUP = PodGroup(namespace="team", name="train", min_member=2, uid="g-1", dialect="volcano")


class RecordedEvents(list[EventRecord]):
    """Records events."""

    def write(self, notice: EventRecord) -> None:
        self.append(notice)


def bind_notes() -> tuple[BindNotes, Metrics, RecordedEvents]:
    clock = VirtualClock()
    cluster, metrics, events = Cluster(clock), Metrics(), RecordedEvents()
    cluster.apply(Upsert(GROUP))
    return BindNotes(metrics, cluster, events, clock, bind_timeout_s=45), metrics, events


def value(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name)


def test_a_partly_bound_gang_is_counted_and_has_an_event_on_its_podgroup():
    notes, metrics, events = bind_notes()
    notes.partial_commit(GROUP.key)

    assert value(metrics, "gang_extender_partial_commits_total") == 1
    (notice,) = events
    assert (notice.subject.name, notice.reason, notice.warning) == ("train", PARTIALLY_BOUND, True)


def test_a_gang_that_is_gone_is_only_counted():
    notes, metrics, events = bind_notes()
    notes.partial_commit(GangKey("team/gone"))

    assert value(metrics, "gang_extender_partial_commits_total") == 1
    assert events == []


def test_a_learned_timeout_has_a_series_until_it_is_forgotten():
    notes, metrics, _ = bind_notes()
    notes.learnt_timeout(5.0)
    assert value(metrics, "gang_extender_learned_bind_timeout_seconds") == 5.0
    assert notes.notes() == [
        "binds: kube-scheduler gives up after 5 s; set httpTimeout of its bind entry to 45s"
    ]
    notes.learnt_timeout(None)

    assert value(metrics, "gang_extender_learned_bind_timeout_seconds") == 0.0
    assert notes.notes() == []
