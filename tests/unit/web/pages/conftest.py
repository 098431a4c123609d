"""Dashboard pages over a given history, without a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jinja2.bccache import Bucket, BytecodeCache

from extender.cache.reservation_table import Reservation
from extender.forecast.durations import DurationHistory
from extender.forecast.forecaster import Forecaster
from extender.metrics import Metrics
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.policy_file import PolicyFile
from extender.settings import Settings
from extender.status.history import GangHistory
from extender.web.dashboard.context import AppContext
from extender.web.dashboard.routes import Dashboard
from extender.whatif.page import whatif_runner
from tests.builders import NOW


class TemplateCache(BytecodeCache):
    """Caches compiled templates across tests, as every reader has its own app."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._kept:
            bucket.bytecode_from_string(self._kept[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key] = bucket.bytecode_to_string()


TEMPLATES = TemplateCache()


class DashboardReader:
    """Renders dashboard pages from state that a test may change."""

    def __init__(self) -> None:
        self.history = GangHistory()
        self.metrics = Metrics()
        self.now = NOW
        self.missing: list[str] = []
        self.leader: list[str] = []
        self.said: list[str] = []
        self.reserved: dict[GangKey, Sequence[Reservation]] = {}
        self.policies = PolicyFile()
        self.context = AppContext(
            history=self.history,
            policies=self.policies,
            metrics=self.metrics,
            findings=lambda: None,
            why_not_ready=lambda: self.missing,
            warmth=list,
            standby=lambda: self.leader,
            notes=lambda: self.said,
            silence=lambda: {"pods": 1.5},
            reservations=lambda key: (self.reserved.get(key, ()), 1000.0),
            forecaster=Forecaster(self.policies.current),
            suppose=whatif_runner(Settings(), DurationHistory()),
            now=lambda: self.now,
        )
        app = Flask(__name__)
        app.jinja_options = {"bytecode_cache": TEMPLATES}
        app.register_blueprint(Dashboard(self.context).blueprint())
        self.client: FlaskClient = app.test_client()

    def sees(self, snapshot: Snapshot, plan: Plan) -> None:
        self.history.note(snapshot, plan)

    def page(self, path: str, status: int = 200) -> str:
        reply = self.client.get(path)
        assert reply.status_code == status, reply.text
        return reply.text


@pytest.fixture
def reader() -> DashboardReader:
    return DashboardReader()
