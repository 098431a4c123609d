"""Terminals: every command, with hostile names in all it is told, given and asked."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterator
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
from tests.nightly.fuzz.edge import Edge, must, must_be_text
from tests.nightly.fuzz.edges.plan import must_end_well, run
from tests.nightly.fuzz.mutations import EVIL, TEXTS, changed, written
from tests.unit.doctor.cases import SHOWN
from tests.unit.doctor.fake_cluster import HOME, REVIEWS, fake_cluster

_ROOT = Path(__file__).parents[4]
_WHAT_IF = str(_ROOT / "manifests" / "examples" / "what-if.yaml")
_JOB = str(_ROOT / "manifests" / "examples" / "gang.yaml")
_SHIPPED = _ROOT / "manifests" / "overlays" / "second-scheduler" / "scheduler-config.yaml"
#: What is typed, by a name of ours. Nothing else is ever run: some commands write files.
COMMANDS: dict[str, tuple[str, ...]] = {
    "top": ("top", "--once", "-o", "{way}", "--ops-url", "{url}"),
    "gangs": ("gangs", "-A", "-o", "{way}", "--ops-url", "{url}"),
    "gangs of": ("gangs", "-n", "{text}", "--ops-url", "{url}"),
    "gangs in": ("gangs", "-A", "--queue", "{text}", "--ops-url", "{url}"),
    "queues": ("queues", "-o", "{way}", "--ops-url", "{url}"),
    "explain": ("explain", "a/waits", "-o", "{way}", "--ops-url", "{url}"),
    "explain what": ("explain", "{text}", "--ops-url", "{url}"),
    "whose": ("gangs", "-A", "--ops-url", "{text}"),
    "doctor": ("doctor", "--offline", "--scheduler-config", "{file}", "-o", "{way}"),
    "doctor there": ("doctor", "--offline", "-o", "{way}", "--ops-url", "{url}"),
    "doctor of": ("doctor", "--kubeconfig", "{cluster}", "--ops-url", "{url}", "-o", "{way}"),
    "pair": ("pair", "--scheduler-config", "{file}", "--directory", "{folder}"),
    "plan": ("plan", "-f", "{text}"),
    "plan by": ("plan", "-f", _WHAT_IF, "--config", "{file}"),
    "plan then": ("plan", "-f", _WHAT_IF, "--now", "{text}"),
    "plan for": ("plan", "-f", _WHAT_IF, "--scheduler-name", "{text}"),
    "plan beside": ("plan", "-f", _WHAT_IF, "--node-selector", "{text}"),
    "plan with": ("plan", "-f", _WHAT_IF, "--with", "{text}"),
    "plan without": ("plan", "-f", _WHAT_IF, "--without", "{text}"),
    "plan live": ("plan", "--live", "-o", "{way}", "--ops-url", "{url}"),
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
    # Never begins: both ports would be the same one.
    "serve": ("serve", "--listen", "{text}", "--ops-listen", "{text}"),
    "demo": ("demo", "--no-such-{text}"),
    "nothing": ("no-such-{text}",),
}
_WAYS = ("table", "wide", "json", "yaml")
#: Says what it could not look at on lines of its own, and what it found besides.
_TALKATIVE = ("doctor", "doctor there", "doctor of")
#: What is deployed in the clusters of which it says so.
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
        self._documents = _documents()
        self._clusters = [fake_cluster(each).held for each in _OVERLAYS]
        self._kubeconfig = Path(self._folder.name) / "kubeconfig"
        self._kubeconfig.write_text(json.dumps(_kubeconfig(self._api_server.url)))
        # Whoever first asks a cluster loads much that is no growth.
        self.judge(json.dumps(self._input("doctor of", "", "", "table")).encode())
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()
        self._api_server.close()
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        shipped = _SHIPPED.read_text()
        return [
            json.dumps(self._input(name, "train", shipped, _WAYS[number % 4])).encode()
            for number, name in enumerate(COMMANDS)
        ]

    def _input(self, command: str, text: str, file: str, way: str) -> dict[str, Any]:
        asked = next((each for each in self._documents if command.startswith(each)), "plan")
        told = self._documents[asked] if "{url}" in COMMANDS[command] else {}
        return {"command": command, "way": way, "text": text, "file": file, "told": told}

    def made(self, chance: Random) -> bytes:
        command = chance.choice(
            [*COMMANDS, "top", "gangs", "queues", "explain", "doctor", "doctor of"]
        )
        text = chance.choice((EVIL, f"a/{EVIL}", f"pod/{EVIL}", *TEXTS))
        made = self._input(command, text, _SHIPPED.read_text(), chance.choice(_WAYS))
        if chance.random() < 0.7:
            made["told"] = _evil(made["told"], chance)
        if chance.random() < 0.6:
            made["told"] = changed(made["told"], chance, chance.randrange(1, 4))
        if chance.random() < 0.8:
            made["file"] = _spoilt(made["file"], chance)
        return written(made, chance)

    def judge(self, data: bytes) -> None:
        given = _read(data)
        command = given["command"] if given["command"] in COMMANDS else "top"
        # No argument has a zero in it, nor half of a character.
        text = str(given["text"]).replace("\0", "").encode(errors="replace").decode()
        self._server.response = json.dumps(given["told"]).encode()
        if command == "doctor of":
            self._api_server.by_path = self._cluster(text, Random(data))
        file = Path(self._folder.name) / "file.yaml"
        file.write_bytes(str(given["file"]).encode(errors="replace"))
        words = [
            each.replace("{way}", given["way"] if given["way"] in _WAYS else "table")
            .replace("{url}", self._server.url)
            .replace("{folder}", str(Path(self._folder.name) / "made"))
            .replace("{file}", str(file))
            .replace("{cluster}", str(self._kubeconfig))
            .replace("{text}", text)
            for each in COMMANDS[command]
        ]
        result = run(*words, **self._variables())
        if command in _TALKATIVE:
            must_be_told(result)
        else:
            must_end_well(result, (0, 1, 2))

    def _cluster(self, text: str, chance: Random) -> dict[str, bytes]:
        """Give what an API server says of what strangers wrote: it knows the shape, not the words.

        Other shapes than it lets in are no input: whoever names a cluster trusts its API server.
        """
        part = chance.choice((0.0, 0.02, 0.2))
        held = {REVIEWS: {"status": {"allowed": True}}, **chance.choice(self._clusters)}
        told = {path: _worded(each, text, part, chance) for path, each in held.items()}
        # Whatever is in a secret, an API server keeps it as base64.
        words = text.encode()
        shown = base64.b64encode(chance.choice((SHOWN, SHOWN + words, words))).decode()
        data = {"tls.crt": shown, "ca.crt": shown}
        told[f"{HOME}/secrets/gang-extender-tls"] = {"kind": "Secret", "data": data}
        return {path: json.dumps(each).encode() for path, each in told.items()}

    def _variables(self) -> dict[str, str | None]:
        ours = {name: None for name in os.environ if name.startswith("GANG_EXTENDER_")}
        return {**ours, "KUBECONFIG": str(Path(self._folder.name) / "none")}


def must_be_told(result: Any) -> None:
    """Object unless a doctor ended as doctors do."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    must(result.exit_code in (0, 1, 2), f"the exit code is {result.exit_code}")
    must_be_text(result.stdout, "what is printed")
    must_be_text(result.stderr, "what is told")


def _read(data: bytes) -> dict[str, Any]:
    usual = {"command": "top", "way": "table", "text": "", "file": "", "told": None}
    try:
        given = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        given = {"told": data.decode("latin-1")}
    return {**usual, **given} if isinstance(given, dict) else usual


def _documents() -> dict[str, Any]:
    """Give what a real extender says."""
    snapshot = saved.read([_WHAT_IF], frozenset({"gang-scheduler"})).snapshot()
    history = GangHistory()
    history.note(snapshot, make_plan(snapshot, policy_parser.DEFAULT))
    app = Flask(__name__)
    ops = Api(history, lambda: policy_parser.DEFAULT, lambda: snapshot.now)
    app.register_blueprint(ops.blueprint())
    asked = app.test_client()
    plan = asked.get("/api/v1/plan").json
    gang = plan["gangs"][0]
    path = f"/api/v1/gangs/{gang['namespace']}/{gang['name']}"
    seen = asked.get("/api/v1/snapshot").json
    # Whoever asks about a live cluster asks for both, and is told both at once each time.
    return {"plan live": {**plan, **seen}, "plan": plan, "explain": asked.get(path).json}


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }


def _worded(thing: Any, text: str, part: float, chance: Random) -> Any:
    """Put *text* behind some of the texts of a document, moments left out."""
    if isinstance(thing, dict):
        return {
            key: each if key == "renewTime" else _worded(each, text, part, chance)
            for key, each in thing.items()
        }
    if isinstance(thing, list):
        return [_worded(each, text, part, chance) for each in thing]
    return thing + text if isinstance(thing, str) and chance.random() < part else thing


def _evil(thing: Any, chance: Random) -> Any:
    """Put hostile text behind many a text, and into names."""
    if isinstance(thing, dict):
        return {
            key + (EVIL if chance.random() < 0.02 else ""): _evil(each, chance)
            for key, each in thing.items()
        }
    if isinstance(thing, list):
        return [_evil(each, chance) for each in thing]
    return thing + EVIL if isinstance(thing, str) and chance.random() < 0.5 else thing


def _spoilt(text: str, chance: Random) -> str:
    lines = text.splitlines()
    for _ in range(chance.randrange(1, 4)):
        number = chance.randrange(len(lines))
        key = lines[number].partition(":")[0]
        odd = json.dumps(chance.choice((EVIL, None, [], {}, 1, *TEXTS)))
        lines[number] = f"{key}: {odd}"
    return "\n".join(_dropped(lines, chance))


def _dropped(lines: list[str], chance: Random) -> Iterator[str]:
    return (line for line in lines if chance.random() < 0.97)
