"""Commands with hostile text in responses, files and arguments print no control characters."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Self

from flask import Flask

from extender.cli import saved
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.status.history import GangHistory
from extender.web.api import Api
from tests.nightly.fuzz.canned_server import CannedServer
from tests.nightly.fuzz.edge import Edge
from tests.nightly.fuzz.edges.plan import must_end_well, must_print_text, run
from tests.nightly.fuzz.mutations import EVIL, TEXTS, changed, written
from tests.unit.doctor.cases import SHOWN
from tests.unit.doctor.fake_cluster import HOME, REVIEWS, fake_cluster

_ROOT = Path(__file__).parents[4]
_WHAT_IF = str(_ROOT / "manifests" / "examples" / "what-if.yaml")
_JOB = str(_ROOT / "manifests" / "examples" / "gang.yaml")
_SHIPPED = _ROOT / "manifests" / "overlays" / "second-scheduler" / "scheduler-config.yaml"
#: The commands by name. No other one is run, because some write files.
COMMANDS: dict[str, tuple[str, ...]] = {
    "top": ("top", "--once", "-o", "{output}", "--ops-url", "{url}"),
    "gangs": ("gangs", "-A", "-o", "{output}", "--ops-url", "{url}"),
    "gangs of": ("gangs", "-n", "{text}", "--ops-url", "{url}"),
    "gangs in": ("gangs", "-A", "--queue", "{text}", "--ops-url", "{url}"),
    "queues": ("queues", "-o", "{output}", "--ops-url", "{url}"),
    "explain": ("explain", "a/waits", "-o", "{output}", "--ops-url", "{url}"),
    "explain what": ("explain", "{text}", "--ops-url", "{url}"),
    "gangs at": ("gangs", "-A", "--ops-url", "{text}"),
    "doctor": ("doctor", "--offline", "--scheduler-config", "{file}", "-o", "{output}"),
    "doctor there": ("doctor", "--offline", "-o", "{output}", "--ops-url", "{url}"),
    "doctor of": ("doctor", "--kubeconfig", "{cluster}", "--ops-url", "{url}", "-o", "{output}"),
    "pair": ("pair", "--scheduler-config", "{file}", "--directory", "{folder}"),
    "plan": ("plan", "-f", "{text}"),
    "plan by": ("plan", "-f", _WHAT_IF, "--config", "{file}"),
    "plan then": ("plan", "-f", _WHAT_IF, "--now", "{text}"),
    "plan for": ("plan", "-f", _WHAT_IF, "--scheduler-name", "{text}"),
    "plan beside": ("plan", "-f", _WHAT_IF, "--node-selector", "{text}"),
    "plan with": ("plan", "-f", _WHAT_IF, "--with", "{text}"),
    "plan without": ("plan", "-f", _WHAT_IF, "--without", "{text}"),
    "plan live": ("plan", "--live", "-o", "{output}", "--ops-url", "{url}"),
    "plan live with": ("plan", "--live", "-f", _JOB, "--with", "{text}", "--ops-url", "{url}"),
    "simulate": ("simulate", "-f", "{text}"),
    "simulate what": ("simulate", "-f", "{file}"),
    "simulate by": ("simulate", "-f", "deadlock", "--config", "{file}"),
    "simulate onto": ("simulate", "-f", "deadlock", "--html", "{folder}/{text}/x"),
    "replay": ("replay", "{text}"),
    "replay then": ("replay", "{folder}", "--at", "{text}"),
    "scheduler-config": ("scheduler-config", "--url", "{text}"),
    "scheduler-config for": ("scheduler-config", "--scheduler-name", "{text}"),
    "certificates": ("certificates", "--directory", "{folder}", "--force", "--host", "{text}"),
    "completion": ("completion", "{text}"),
    # It does not start: both ports are the same.
    "serve": ("serve", "--listen", "{text}", "--ops-listen", "{text}"),
    "demo": ("demo", "--no-such-{text}"),
    "nothing": ("no-such-{text}",),
}
_OUTPUTS = ("table", "wide", "json", "yaml")
#: Commands that print several lines to stderr, and results as well.
_VERBOSE = ("doctor", "doctor there", "doctor of")
#: The deployments of the fake clusters.
_OVERLAYS = ("second-scheduler", "default-scheduler")


class Terminals(Edge):
    """Input: JSON that names a command, and has what it is told: see `real`."""

    name = "terminal"
    count = 350
    suffix = ".json"
    longest = 60_000
    words = (
        EVIL.encode(), b"\\u001b[2J", b"\\u009b", b"\\u202e", b"null", b"[]", b"{}", b"1e400",
        b'"items":', b'"error":', b"[/]", b"[link=x]", *(each.encode() for each in COMMANDS),
    )  # fmt: skip

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._server, self._api_server = CannedServer(), CannedServer()
        self._documents = documents()
        self._clusters = [fake_cluster(each).held for each in _OVERLAYS]
        self._kubeconfig = Path(self._folder.name) / "kubeconfig"
        self._kubeconfig.write_text(json.dumps(_kubeconfig(self._api_server.url)))
        # The first command of a cluster loads modules, which is no growth.
        self.judge(json.dumps(self._input("doctor of", "", "", "table")).encode())
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()
        self._api_server.close()
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        shipped = _SHIPPED.read_text()
        return [
            json.dumps(self._input(name, "train", shipped, _OUTPUTS[number % 4])).encode()
            for number, name in enumerate(COMMANDS)
        ]

    def _input(self, command: str, text: str, file: str, output: str) -> dict[str, Any]:
        name = next((each for each in self._documents if command.startswith(each)), "plan")
        response = self._documents[name] if "{url}" in COMMANDS[command] else {}
        fields = {"command": command, "output": output, "text": text, "file": file}
        return {**fields, "response": response}

    def made(self, rng: Random) -> bytes:
        command = rng.choice(
            [*COMMANDS, "top", "gangs", "queues", "explain", "doctor", "doctor of"]
        )
        text = rng.choice((EVIL, f"a/{EVIL}", f"pod/{EVIL}", *TEXTS))
        made = self._input(command, text, _SHIPPED.read_text(), rng.choice(_OUTPUTS))
        if rng.random() < 0.7:
            made["response"] = _evil(made["response"], rng)
        if rng.random() < 0.6:
            made["response"] = changed(made["response"], rng, rng.randrange(1, 4))
        if rng.random() < 0.8:
            made["file"] = _changed_lines(made["file"], rng)
        return written(made, rng)

    def judge(self, data: bytes) -> None:
        given = _read(data)
        command = given["command"] if given["command"] in COMMANDS else "top"
        # No argument contains a NUL or a surrogate.
        text = str(given["text"]).replace("\0", "").encode(errors="replace").decode()
        self._server.response = json.dumps(given["response"]).encode()
        if command == "doctor of":
            self._api_server.by_path = self._cluster(text, Random(data))
        file = Path(self._folder.name) / "file.yaml"
        file.write_bytes(str(given["file"]).encode(errors="replace"))
        words = [
            each.replace("{output}", given["output"] if given["output"] in _OUTPUTS else "table")
            .replace("{url}", self._server.url)
            .replace("{folder}", str(Path(self._folder.name) / "made"))
            .replace("{file}", str(file))
            .replace("{cluster}", str(self._kubeconfig))
            .replace("{text}", text)
            for each in COMMANDS[command]
        ]
        result = run(*words, **self._variables())
        judge = must_print_text if command in _VERBOSE else must_end_well
        judge(result, (0, 1, 2))

    def _cluster(self, text: str, rng: Random) -> dict[str, bytes]:
        """Return the objects of a cluster with hostile text in them.

        An API server validates the types of fields, but not their text; the doctor trusts it.
        """
        share = rng.choice((0.0, 0.02, 0.2))
        objects = {REVIEWS: {"status": {"allowed": True}}, **rng.choice(self._clusters)}
        changed_ = {path: _appended(each, text, share, rng) for path, each in objects.items()}
        content = text.encode()
        certificate = base64.b64encode(rng.choice((SHOWN, SHOWN + content, content))).decode()
        data = {"tls.crt": certificate, "ca.crt": certificate}
        changed_[f"{HOME}/secrets/gang-extender-tls"] = {"kind": "Secret", "data": data}
        return {path: json.dumps(each).encode() for path, each in changed_.items()}

    def _variables(self) -> dict[str, str | None]:
        ours = {name: None for name in os.environ if name.startswith("GANG_EXTENDER_")}
        return {**ours, "KUBECONFIG": str(Path(self._folder.name) / "none")}


def _read(data: bytes) -> dict[str, Any]:
    usual = {"command": "top", "output": "table", "text": "", "file": "", "response": None}
    try:
        given = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        given = {"response": data.decode("latin-1")}
    return {**usual, **given} if isinstance(given, dict) else usual


def documents() -> dict[str, Any]:
    """Return the responses of a real extender."""
    snapshot = saved.read([_WHAT_IF], frozenset({"gang-scheduler"})).snapshot()
    history = GangHistory()
    history.note(snapshot, make_plan(snapshot, policy_parser.DEFAULT))
    app = Flask(__name__)
    ops = Api(history, lambda: policy_parser.DEFAULT, lambda: snapshot.now)
    app.register_blueprint(ops.blueprint())
    client = app.test_client()
    plan = client.get("/api/v1/plan").json
    gang = plan["gangs"][0]
    path = f"/api/v1/gangs/{gang['namespace']}/{gang['name']}"
    snapshot_ = client.get("/api/v1/snapshot").json
    # `plan --live` requests both, and the server returns the same response twice.
    return {"plan live": {**plan, **snapshot_}, "plan": plan, "explain": client.get(path).json}


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }


def _appended(thing: Any, text: str, share: float, rng: Random) -> Any:
    """Append *text* to some of the texts of a document, except times."""
    if isinstance(thing, dict):
        return {
            key: each if key == "renewTime" else _appended(each, text, share, rng)
            for key, each in thing.items()
        }
    if isinstance(thing, list):
        return [_appended(each, text, share, rng) for each in thing]
    return thing + text if isinstance(thing, str) and rng.random() < share else thing


def _evil(thing: Any, rng: Random) -> Any:
    """Append hostile text to many texts, and to some names."""
    if isinstance(thing, dict):
        return {
            key + (EVIL if rng.random() < 0.02 else ""): _evil(each, rng)
            for key, each in thing.items()
        }
    if isinstance(thing, list):
        return [_evil(each, rng) for each in thing]
    return thing + EVIL if isinstance(thing, str) and rng.random() < 0.5 else thing


def _changed_lines(text: str, rng: Random) -> str:
    lines = text.splitlines()
    for _ in range(rng.randrange(1, 4)):
        number = rng.randrange(len(lines))
        key = lines[number].partition(":")[0]
        odd = json.dumps(rng.choice((EVIL, None, [], {}, 1, *TEXTS)))
        lines[number] = f"{key}: {odd}"
    return "\n".join(line for line in lines if rng.random() < 0.97)
