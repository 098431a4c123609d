"""The read-only API of the operations port: queues, gangs, the plan, and why a gang waits."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from extender.journal import Journal
from extender.model.gang import GangKey
from extender.plan.decision import NO_PLAN
from extender.plan.explain import explain
from extender.plan.options import Policy
from extender.web import api
from extender.web.dump import dump


class Ops:
    """Answers from the journal, which holds the last pass and every story."""

    def __init__(self, journal: Journal, policy: Callable[[], Policy]) -> None:
        self._journal = journal
        self._policy = policy

    def blueprint(self) -> Blueprint:
        """Give the routes."""
        routes = Blueprint("ops", __name__, url_prefix="/api/v1")
        routes.add_url_rule("/plan", view_func=self.plan)
        routes.add_url_rule("/queues", view_func=self.queues)
        routes.add_url_rule("/gangs", view_func=self.gangs)
        routes.add_url_rule("/gangs/<namespace>/<name>", view_func=self.gang)
        routes.add_url_rule("/snapshot", view_func=self.snapshot)
        return routes

    def plan(self) -> ResponseReturnValue:
        """Give the last plan."""
        last = self._journal.last
        return jsonify(api.plan(last.plan, last.snapshot) if last else api.plan(NO_PLAN))

    def queues(self) -> ResponseReturnValue:
        """Give every queue's figures."""
        last = self._journal.last
        return jsonify(api.queues(last.plan) if last else [])

    def gangs(self) -> ResponseReturnValue:
        """Give every gang's verdict."""
        last = self._journal.last
        return jsonify(api.gangs(last.plan, last.snapshot) if last else [])

    def gang(self, namespace: str, name: str) -> ResponseReturnValue:
        """Give all there is to say about one gang."""
        key, last = GangKey(f"{namespace}/{name}"), self._journal.last
        story = self._journal.story(key)
        told = explain(last.snapshot, last.plan, self._policy(), key) if last else None
        if last is None or told is None:
            message = f"there is no gang {key}; /api/v1/gangs lists those there are"
            return jsonify({"error": message, "story": api.lines(story)}), 404
        return jsonify(
            api.explanation(
                told, last.plan, last.snapshot, since=self._journal.since(key), story=story
            )
        )

    def snapshot(self) -> ResponseReturnValue:
        """Give the cluster as the last plan saw it, as a List that `plan -f` reads."""
        last = self._journal.last
        return jsonify(dump(last.snapshot) if last else {"kind": "List", "items": []})
