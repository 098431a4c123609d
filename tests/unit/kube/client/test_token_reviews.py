"""Token review and access review: the user of a token, and whether it may read a page."""

from __future__ import annotations

from typing import Any

import pytest

from extender.errors import ApiError, Forbidden
from extender.kube.metrics import CALLS, call_of
from extender.kube.read import ACCESS, TOKENS, TokenReviewer
from extender.ports import Reviewed
from tests.unit.kube.api_double import Answer, ApiDouble

USER = {"username": "system:serviceaccount:a:b", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}
KNOWN: Answer = (201, {"status": {"authenticated": True, "user": USER}})
ALLOWED: Answer = (201, {"status": {"allowed": True}})
SECRET = "very-secret-token"


def api(token: Answer = KNOWN, access: Answer = ALLOWED) -> ApiDouble:
    return ApiDouble({f"POST {TOKENS}": [token], f"POST {ACCESS}": [access]})


def review(double: ApiDouble, *audiences: str) -> Reviewed:
    return TokenReviewer(double, audiences).review(SECRET, "/metrics")


def test_the_access_review_gets_all_that_the_token_review_returned() -> None:
    double = api()

    assert review(double) == Reviewed(user="system:serviceaccount:a:b", may_read=True)
    identity, permission = (asked.body for asked in double.asked)
    assert identity["spec"] == {"token": SECRET}
    assert permission["spec"] == {
        "user": "system:serviceaccount:a:b",
        "uid": "7",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }
    assert SECRET not in str(permission)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False},
        {"authenticated": False, "user": USER},
        {"authenticated": True},
        {"authenticated": True, "user": {}},
        {"authenticated": True, "user": {"username": "x" * 1000}},
        {"error": f"cannot read {SECRET}"},
    ],
    ids=repr,
)
def test_an_unauthenticated_token_has_no_user_and_no_access_review(
    status: dict[str, Any],
) -> None:
    double = api(token=(201, {"status": status}))

    assert review(double) == Reviewed()
    assert double.requests() == [f"POST {TOKENS}"]


@pytest.mark.parametrize(
    "status", [{}, {"allowed": False}, {"allowed": True, "denied": True}], ids=repr
)
def test_a_user_that_is_not_allowed_may_not_read(status: dict[str, Any]) -> None:
    assert not review(api(access=(201, {"status": status}))).may_read


@pytest.mark.parametrize(
    ("made_for", "is_known"), [(["pages"], True), (["other"], False), (None, False)], ids=repr
)
def test_a_token_for_another_audience_is_not_accepted(
    made_for: list[str] | None, is_known: bool
) -> None:
    status = {"authenticated": True, "user": USER, "audiences": made_for}
    double = api(token=(201, {"status": status}))

    assert bool(review(double, "pages").user) is is_known
    assert double.asked[0].body["spec"]["audiences"] == ["pages"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((500, {"message": f"what is {SECRET}?"}), ApiError),
        ((429, {"message": "later"}), ApiError),
        ((201, {"status": SECRET}), ApiError),
        ((201, [SECRET]), ApiError),
        (
            (
                403,
                {
                    "message": 'tokenreviews is forbidden: User "us" cannot create resource'
                    ' "tokenreviews" in API group "authentication.k8s.io" at the cluster scope'
                },
            ),
            Forbidden,
        ),
    ],
    ids=repr,
)
def test_a_failed_review_admits_no_user_and_its_message_is_not_disclosed(
    answer: Answer, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        review(api(token=answer))

    error = caught.value
    assert SECRET not in str(error)
    # A log of the exception chain does not disclose the token either.
    assert error.__suppress_context__
    with pytest.raises(kind):
        review(api(access=answer))


@pytest.mark.parametrize("path", [TOKENS, ACCESS])
def test_both_reviews_are_counted_by_name(path: str) -> None:
    assert call_of("POST", path) in CALLS
