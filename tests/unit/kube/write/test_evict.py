"""Requests to the Eviction API, and the outcome of each response."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from threading import Event
from typing import Any, cast

import pytest

from extender.kube.client import ApiClient
from extender.kube.write.evict import FIRST_S, LATER_S, ApiEvictor
from extender.model.pod import PodUid
from extender.ports import EvictOrder, EvictOutcome, EvictResult
from tests.unit.kube.api_double import TERMINATING, Answer, ApiDouble

POD = "/api/v1/namespaces/a/pods/old-0"
ORDER = EvictOrder(uid=PodUid("uid-0"), namespace="a", name="old-0", why="for a/needy")
NO_BUDGET: Answer = (429, {"message": "Cannot evict pod as it would violate the budget."})


def evict(**answers: list[Answer]) -> tuple[EvictOutcome, ApiDouble, list[float]]:
    """Evict one pod; the keywords script the responses to mark, evict and look."""
    paths = {"mark": f"PATCH {POD}/status", "evict": f"POST {POD}/eviction", "look": f"GET {POD}"}
    api = ApiDouble({paths[word]: script for word, script in answers.items()})
    waits: list[float] = []
    evictor = ApiEvictor(cast(ApiClient, api), wait=waits.append)
    outcome = evictor.evict([ORDER])[0].result(timeout=10)
    evictor.stop()
    return outcome, api, [wait for wait in waits if wait]


def conditions(api: ApiDouble) -> list[dict[str, Any]]:
    return [asked.body["status"]["conditions"][0] for asked in api.asked if asked.method == "PATCH"]


def test_a_pod_gets_its_disruption_condition_before_its_eviction_both_by_uid() -> None:
    outcome, api, _ = evict()

    assert outcome.result is EvictResult.LEAVING
    assert api.requests() == [f"PATCH {POD}/status", f"POST {POD}/eviction"]
    mark, eviction = api.asked[0].body, api.asked[1].body
    assert mark["metadata"] == {"uid": "uid-0"}
    assert conditions(api)[0] | {"lastTransitionTime": ""} == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "for a/needy",
        "lastTransitionTime": "",
    }
    assert eviction["deleteOptions"] == {"preconditions": {"uid": "uid-0"}}


def test_all_pods_of_one_eviction_get_their_condition_before_the_first_is_evicted() -> None:
    names = [f"old-{number}" for number in range(20)]
    api = ApiDouble({})
    evictor = ApiEvictor(cast(ApiClient, api), wait=lambda _: None)
    orders = [
        EvictOrder(uid=PodUid(name), namespace="a", name=name, why="for a/needy") for name in names
    ]
    outcomes = [future.result(timeout=10) for future in evictor.evict(orders)]
    evictor.stop()

    assert {outcome.result for outcome in outcomes} == {EvictResult.LEAVING}
    methods = [request.partition(" ")[0] for request in api.requests()]
    assert methods == ["PATCH"] * 20 + ["POST"] * 20
    assert evictor.evict([]) == []


def test_the_first_eviction_request_times_out_sooner_than_its_retries() -> None:
    """The other pods of its gang are already evicted."""
    outcome, api, _ = evict(evict=[(0, {}), (0, {}), (201, {})])

    assert outcome.result is EvictResult.LEAVING
    waited = [asked.wait_s for asked in api.asked if asked.method == "POST"]
    assert waited == [FIRST_S, LATER_S, LATER_S]
    assert FIRST_S < 5


def test_stopping_cancels_pending_evictions() -> None:
    begun, may_go_on = Event(), Event()

    def wait(_: float) -> None:
        begun.set()
        may_go_on.wait(10)

    evictor = ApiEvictor(cast(ApiClient, ApiDouble({})), wait=wait)
    many = evictor.evict([ORDER] * 50)
    assert begun.wait(10)
    evictor.stop()
    may_go_on.set()

    for each in many:
        with pytest.raises(CancelledError):
            each.result(timeout=10)


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[Future[Any]]:
    """Each call that cancels a future."""
    calls: list[Future[Any]] = []
    cancel = Future.cancel

    def count(future: Future[Any]) -> bool:
        calls.append(future)
        return cancel(future)

    monkeypatch.setattr(Future, "cancel", count)
    return calls


def test_stopping_cancels_each_pending_eviction_exactly_once(
    cancelled: list[Future[Any]],
) -> None:
    may_go_on = Event()
    evictor = ApiEvictor(cast(ApiClient, ApiDouble({})), wait=lambda _: may_go_on.wait(10))
    many = set(evictor.evict([ORDER] * 200))
    evictor.stop()
    may_go_on.set()

    assert all(each.cancelled() for each in many)
    assert sum(each in many for each in cancelled) == len(many)


def test_evictions_requested_while_stopping_are_cancelled_exactly_once(
    cancelled: list[Future[Any]],
) -> None:
    evictor = ApiEvictor(cast(ApiClient, ApiDouble({})))

    class StoppingList(list[EvictOrder]):
        """Stops the evictor while its orders are read."""

        def __iter__(self) -> Iterator[EvictOrder]:
            evictor.stop()
            return super().__iter__()

    many = evictor.evict(StoppingList([ORDER] * 200))

    assert all(each.cancelled() for each in many)
    assert len(cancelled) == len(many)


def test_an_eviction_refused_by_a_disruption_budget_is_retried() -> None:
    outcome, api, waits = evict(evict=[NO_BUDGET, NO_BUDGET, (201, {})])

    assert outcome.result is EvictResult.LEAVING
    assert waits == [0.25, 0.5]
    assert len(conditions(api)) == 1


def test_an_eviction_that_the_budget_keeps_refusing_is_blocked_and_its_condition_removed() -> None:
    outcome, api, waits = evict(evict=[NO_BUDGET])

    assert outcome == EvictOutcome(
        EvictResult.BLOCKED, "Cannot evict pod as it would violate the budget."
    )
    assert waits == [0.25, 0.5, 1.0, 1.0]
    assert [condition["status"] for condition in conditions(api)] == ["True", "False"]


@pytest.mark.parametrize("word", ["mark", "evict"])
def test_evicting_a_deleted_pod_succeeds(word: str) -> None:
    gone: Answer = (404, {"message": "not found"})
    outcome, _, waits = evict(**{word: [gone], "look": [gone]})

    assert outcome.result is EvictResult.GONE
    assert waits == []


THERE: Answer = (200, {"metadata": {"uid": "uid-0"}})


@pytest.mark.parametrize("status", [404, 409])
def test_a_pod_that_still_exists_is_evicted_though_its_condition_was_refused(
    status: int,
) -> None:
    outcome, api, _ = evict(mark=[(status, {"message": "not found"})], look=[THERE])

    assert outcome.result is EvictResult.LEAVING
    assert api.requests()[-1] == f"POST {POD}/eviction"


def test_an_eviction_answered_not_found_is_retried_if_the_pod_still_exists() -> None:
    outcome, api, waits = evict(evict=[(404, {"message": "not found"}), (201, {})], look=[THERE])

    assert outcome.result is EvictResult.LEAVING
    assert api.requests().count(f"POST {POD}/eviction") == 2
    assert waits == [0.25]


def test_another_pod_of_the_same_name_is_not_evicted() -> None:
    outcome, _, waits = evict(
        evict=[(409, {"message": "uid mismatch"})], look=[(200, {"metadata": {"uid": "uid-1"}})]
    )

    assert outcome.result is EvictResult.GONE
    assert waits == []


def test_no_eviction_is_sent_if_the_condition_is_refused_for_another_uid() -> None:
    immutable = 'Pod "old-0" is invalid: metadata.uid: Invalid value: field is immutable'
    outcome, api, _ = evict(mark=[(422, {"message": immutable})])

    assert outcome.result is EvictResult.GONE
    assert api.requests() == [f"PATCH {POD}/status"]


def test_a_conflict_on_a_disruption_budget_is_retried() -> None:
    outcome, _, _ = evict(
        evict=[(409, {"message": "the budget changed"}), (201, {})],
        look=[(200, {"metadata": {"uid": "uid-0"}})],
    )

    assert outcome.result is EvictResult.LEAVING


def test_a_permanently_refused_eviction_is_not_retried() -> None:
    outcome, _, waits = evict(evict=[(422, {"message": "you may not"})])

    assert outcome == EvictOutcome(EvictResult.BLOCKED, "you may not")
    assert waits == []


def test_a_forbidden_eviction_is_retried() -> None:
    outcome, _, _ = evict(evict=[(403, {"message": "you may not"}), (201, {})])

    assert outcome.result is EvictResult.LEAVING


def test_an_eviction_without_a_response_is_failed_and_not_blocked() -> None:
    outcome, _, waits = evict(evict=[(0, {})])

    assert outcome.result is EvictResult.FAILED
    assert waits == [0.25, 0.5, 1.0, 1.0]


def test_an_eviction_refused_for_an_expired_token_is_retried() -> None:
    outcome, _, _ = evict(evict=[(401, {"message": "Unauthorized"}), (201, {})])

    assert outcome.result is EvictResult.LEAVING


def test_a_pod_whose_condition_cannot_be_written_is_evicted_all_the_same() -> None:
    outcome, _, _ = evict(mark=[(500, {"message": "try later"})])

    assert outcome.result is EvictResult.LEAVING


def test_no_eviction_is_sent_after_stop() -> None:
    api = ApiDouble({})
    evictor = ApiEvictor(cast(ApiClient, api))
    evictor.stop()

    assert evictor.evict([ORDER])[0].cancelled()
    assert api.asked == []


def test_a_pod_of_a_terminating_namespace_counts_as_leaving(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcome, api, _ = evict(evict=[TERMINATING])

    assert outcome.result is EvictResult.LEAVING
    assert len(conditions(api)) == 1
    assert caplog.records == []
