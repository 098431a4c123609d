"""The Flask app: probes, metrics and API; with hooks too, for any WSGI server and for tests."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from flask import Blueprint, Flask, Response, request
from flask.typing import ResponseReturnValue

from extender.web import wire
from extender.web.hooks import BODY_LIMIT, VERBS, Hooks


class Pages(Protocol):
    """Something that can be mounted."""

    def blueprint(self) -> Blueprint:
        """Give the routes."""


def create_app(*pages: Pages, hooks: Hooks | None = None) -> Flask:
    """Mount what is given; under `serve` the hooks are answered by the edge instead."""
    app = Flask(__name__, static_folder=None)
    for each in pages:
        app.register_blueprint(each.blueprint())
    if hooks is not None:
        _mount(app, hooks)
    return app


def _mount(app: Flask, hooks: Hooks) -> None:
    # kube-scheduler follows redirects but loses the POST: answer with and without the slash.
    app.url_map.strict_slashes = False
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT

    def hook(verb: str) -> ResponseReturnValue:
        body = request.get_data(cache=False)
        if verb != "bind":
            return Response(hooks.answer(verb, body), mimetype="application/json")
        # A WSGI server spends a thread on every held bind; `serve` does not come this way.
        answer: Future[str] = Future()
        hooks.bind(body, answer.set_result)
        return Response(hooks.bound(answer.result()), mimetype="application/json")

    for verb in VERBS:
        for prefix in ("", "/v1"):
            app.add_url_rule(
                f"{prefix}/{verb}",
                endpoint=f"{prefix}{verb}",
                view_func=hook,
                methods=["POST"],
                defaults={"verb": verb},
            )

    @app.errorhandler(413)
    def too_large(_: Exception) -> ResponseReturnValue:
        text = wire.write_error(f"the body is over {BODY_LIMIT} bytes")
        return Response(text, status=413, mimetype="application/json")
