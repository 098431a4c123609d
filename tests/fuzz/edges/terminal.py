"""Terminals: every command, with hostile names in all it is told, given and asked."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Self

from flask import Flask

from extender.cli.saved import objects
from extender.plan.planner import make_plan
from extender.plan.policy import policies
from extender.reporting.journal import Journal
from extender.web.ops import Ops
from tests.fuzz.edge import Edge, must, must_be_text
from tests.fuzz.edges.plan import must_end_well, run
from tests.fuzz.mutations import EVIL, TEXTS, changed, written

_ROOT = Path(__file__).parents[3]
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
    "serve": ("serve", "--listen", "{text}", "--max-holds", "no number"),
    "demo": ("demo", "--no-such-{text}"),
    "nothing": ("no-such-{text}",),
}
_WAYS = ("table", "wide", "json", "yaml")
#: Says what it could not look at on lines of its own, and what it found besides.
_TALKATIVE = ("doctor", "doctor there")


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
        self._server = _Answering()
        self._documents = _documents()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.close()
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
        command = chance.choice([*COMMANDS, "top", "gangs", "queues", "explain", "doctor"])
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
        self._server.told = json.dumps(given["told"]).encode()
        file = Path(self._folder.name) / "file.yaml"
        file.write_bytes(str(given["file"]).encode(errors="replace"))
        words = [
            each.replace("{way}", given["way"] if given["way"] in _WAYS else "table")
            .replace("{url}", self._server.url)
            .replace("{folder}", str(Path(self._folder.name) / "made"))
            .replace("{file}", str(file))
            .replace("{text}", text)
            for each in COMMANDS[command]
        ]
        result = run(*words, **self._variables())
        if command in _TALKATIVE:
            must_be_told(result)
        else:
            must_end_well(result, (0, 1, 2))

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


class _Answering:
    """An extender that says whatever it was told to say, to every question."""

    def __init__(self) -> None:
        self.told = b"{}"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Closing alone wakes nobody who waits in accept.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            with closing(caller):
                self._answer(caller)

    def _answer(self, caller: socket.socket) -> None:
        try:
            while not caller.recv(65536).endswith(b"\r\n\r\n"):
                pass
            head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(self.told)}"
            caller.sendall(head.encode() + b"\r\n\r\n" + self.told)
        except OSError:  # it did not want to hear all of it
            pass


def _read(data: bytes) -> dict[str, Any]:
    usual = {"command": "top", "way": "table", "text": "", "file": "", "told": None}
    try:
        given = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        given = {"told": data.decode("latin-1")}
    return {**usual, **given} if isinstance(given, dict) else usual


def _documents() -> dict[str, Any]:
    """Give what a real extender says."""
    snapshot = objects.read([_WHAT_IF], frozenset({"gang-scheduler"})).snapshot()
    journal = Journal()
    journal.note(snapshot, make_plan(snapshot, policies.DEFAULT))
    app = Flask(__name__)
    ops = Ops(journal, lambda: policies.DEFAULT, lambda: snapshot.now)
    app.register_blueprint(ops.blueprint())
    asked = app.test_client()
    plan = asked.get("/api/v1/plan").json
    gang = plan["gangs"][0]
    path = f"/api/v1/gangs/{gang['namespace']}/{gang['name']}"
    seen = asked.get("/api/v1/snapshot").json
    # Whoever asks about a live cluster asks for both, and is told both at once each time.
    return {"plan live": {**plan, **seen}, "plan": plan, "explain": asked.get(path).json}


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
