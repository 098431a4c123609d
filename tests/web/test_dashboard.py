"""The page: complete in itself, and drawn from fields the API really has."""

from __future__ import annotations

import re

import pytest
from flask import Flask
from flask.testing import FlaskClient

from extender.plan.policy import policies
from extender.reporting.journal import Journal
from extender.web.app import dashboard
from extender.web.ops import Ops

from .test_api import DECIDED, SEEN


@pytest.fixture
def client() -> FlaskClient:
    journal = Journal()
    journal.note(SEEN, DECIDED)
    app = Flask(__name__)
    app.add_url_rule("/", view_func=dashboard)
    app.register_blueprint(Ops(journal, lambda: policies.DEFAULT).blueprint())
    return app.test_client()


@pytest.fixture
def page(client: FlaskClient) -> str:
    return client.get("/").text


def read_by_the_page(page: str, thing: str) -> set[str]:
    """Name the fields that the script reads of *thing*, methods left out."""
    return set(re.findall(rf"\b{thing}\.(\w+)\b(?!\()", page))


def test_the_page_asks_only_us_and_may_not_be_framed(client: FlaskClient, page: str) -> None:
    rules = client.get("/").headers["content-security-policy"]

    assert "default-src 'none'" in rules
    assert "frame-ancestors 'none'" in rules
    assert not re.findall(r"https?://", page)
    assert "innerHTML" not in page


@pytest.mark.parametrize("thing", ["queue", "gang"])
def test_every_field_of_the_plan_it_draws_is_there(
    client: FlaskClient, page: str, thing: str
) -> None:
    document = client.get(f"/api/v1/{thing}s").json[0]
    fields = read_by_the_page(page, thing)

    assert fields
    assert fields <= document.keys()


def test_every_field_of_an_explanation_it_draws_is_there(client: FlaskClient, page: str) -> None:
    told = client.get("/api/v1/gangs/a/train").json
    fields = read_by_the_page(page, "told")

    assert fields - {"error"} <= told.keys()
    assert read_by_the_page(page, "need") <= told["needs"][0].keys()
    assert read_by_the_page(page, "line") <= told["story"][0].keys()
