"""The output of `gang-extender explain` for every reason, from a real operations port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from click.testing import CliRunner
from flask import Flask
from werkzeug.serving import make_server

from extender.cli.explain import explain
from extender.model.reason import Reason
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.status.history import GangHistory
from extender.web.api import Api
from tests.builders import SOON
from tests.unit.planner.reason_cases import SENTENCES, ReasonCase

#: The gang to explain in every cluster.
GANG = "a/train"


def of(reason: Reason) -> str:
    """Write the command and its output, for a gang with *reason*."""
    told = next(told for told in SENTENCES if told.reason is reason)
    with _operations_port(told) as url:
        ran = CliRunner().invoke(
            explain, [GANG, "--ops-url", url], standalone_mode=False, env={"COLUMNS": "200"}
        )
    if ran.exception is not None:
        raise ran.exception
    lines = [line.rstrip() for line in ran.stdout.rstrip().splitlines()]
    return "\n".join(("```console", f"$ gang-extender explain {GANG}", *lines, "```")) + "\n"


@contextmanager
def _operations_port(told: ReasonCase) -> Iterator[str]:
    """Serve the explanation of the cluster in *told*, as it is ten seconds later."""
    policy, before, history = policy_parser.parse(told.policy), told.before(), GangHistory()
    history.note(before, make_plan(before, policy))
    app = Flask(__name__)
    app.register_blueprint(Api(history, lambda: policy, lambda: SOON + 10).blueprint())
    server = make_server("127.0.0.1", 0, app)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
