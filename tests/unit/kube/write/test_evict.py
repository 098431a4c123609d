"""Requests to the Eviction API, and the outcome of each response."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
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


def test_an_eviction_that_the_budget_keeps_refusing_is_blocked_and_its_condition_removed() -> None:
    outcome, api, waits = evict(evict=[NO_BUDGET])

    assert outcome == EvictOutcome(
        EvictResult.BLOCKED, "Cannot evict pod as it would violate the budget."
    )
    assert waits == [0.25, 0.5, 1.0, 1.0]
    assert [condition["status"] for condition in conditions(api)] == ["True", "False"]


GONE: Answer = (404, {"message": "not found"})
CONFLICT: Answer = (409, {"message": "uid mismatch"})
DONE: Answer = (201, {})
THERE: Answer = (200, {"metadata": {"uid": "uid-0"}})
REPLACED: Answer = (200, {"metadata": {"uid": "uid-1"}})
IMMUTABLE: Answer = (422, {"message": "metadata.uid: Invalid value: field is immutable"})
EVICTION = f"POST {POD}/eviction"


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param({"evict": [NO_BUDGET, DONE]}, id="by a budget"),
        pytest.param({"evict": [CONFLICT, DONE], "look": [THERE]}, id="as the budget changed"),
        pytest.param({"evict": [GONE, DONE], "look": [THERE]}, id="as not found, though it is"),
        pytest.param({"evict": [(403, {}), DONE]}, id="by a webhook"),
        pytest.param({"evict": [(401, {}), DONE]}, id="for an expired token"),
    ],
)
def test_an_eviction_that_is_refused_for_a_while_is_retried(refused: Any) -> None:
    outcome, api, waits = evict(**refused)

    assert outcome.result is EvictResult.LEAVING
    assert api.requests().count(EVICTION) == 2
    assert (waits, len(conditions(api))) == ([0.25], 1)


@pytest.mark.parametrize(
    "said",
    [
        {"mark": [GONE], "look": [GONE]},
        {"evict": [GONE], "look": [GONE]},
        {"evict": [CONFLICT], "look": [REPLACED]},
    ],
)
def test_evicting_a_deleted_or_replaced_pod_succeeds(said: Any) -> None:
    outcome, _, waits = evict(**said)

    assert (outcome.result, waits) == (EvictResult.GONE, [])


@pytest.mark.parametrize("refusal", [GONE, CONFLICT, (500, {"message": "try later"})])
def test_a_pod_that_exists_is_evicted_though_its_condition_was_refused(refusal: Answer) -> None:
    outcome, api, _ = evict(mark=[refusal], look=[THERE])

    assert outcome.result is EvictResult.LEAVING
    assert api.requests()[-1] == EVICTION


def test_no_eviction_is_sent_if_the_condition_is_refused_for_another_uid() -> None:
    outcome, api, _ = evict(mark=[IMMUTABLE])

    assert outcome.result is EvictResult.GONE
    assert api.requests() == [f"PATCH {POD}/status"]


def test_a_permanently_refused_eviction_is_not_retried() -> None:
    outcome, _, waits = evict(evict=[(422, {"message": "you may not"})])

    assert outcome == EvictOutcome(EvictResult.BLOCKED, "you may not")
    assert waits == []


def test_an_eviction_without_a_response_is_failed_and_not_blocked() -> None:
    outcome, _, waits = evict(evict=[(0, {})])

    assert outcome.result is EvictResult.FAILED
    assert waits == [0.25, 0.5, 1.0, 1.0]


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
