"""Scenarios and traces for `simulate`: what is to arrive, or one sentence that names the place."""

from __future__ import annotations

import shutil
import tempfile
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, Self

import yaml

from extender.cli import output
from extender.cli.simulate import read
from extender.errors import InvalidInput
from extender.sim.scenario import jobs_of, nodes_of, queues_of
from tests.nightly.fuzz.edge import Edge, must, must_be_sentence, must_be_text
from tests.nightly.fuzz.edges.policy import SIGNS
from tests.nightly.fuzz.mutations import EVIL, changed, respelt, written
from tests.unit.sim.test_traces import HELIOS, MAPPINGS, OPENB, PAI

_TRACES = (PAI, OPENB, HELIOS)
#: What is before it is the scenario, what is behind it a trace that the scenario may name.
_TRACE = b"\n# the trace\n"
_FILE = "trace.csv"


class Scenarios(Edge):
    """Input: a scenario, a line, a trace. It is read and everything in it drawn, not played."""

    name = "scenario"
    count = 250
    suffix = ".scenario"
    longest = 30_000
    words = (
        _TRACE, EVIL.encode(), b"31d", b"uniform", b"trace: ", b"snapshot: ", b"mishaps:", b"nan",
        *(each.encode() for each in SIGNS), b"\xef\xbb\xbf", b'"', b"9" * 400, b"2020-04-01",
    )  # fmt: skip

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp())
        for each in self.real():
            must(self._told(each) is None, f"{each[:80]!r} is not read")
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder)

    def real(self) -> list[bytes]:
        traced = [
            yaml.safe_dump(_with_trace(each)).encode() + _TRACE + each.encode() for each in _TRACES
        ]
        return [*(each.encode() for each in _shipped()), *traced]

    def made(self, chance: Random) -> bytes:
        trace = chance.choice(_TRACES) if chance.random() < 0.4 else ""
        thing = _with_trace(trace) if trace else yaml.safe_load(chance.choice(_shipped()))
        thing = changed(thing, chance, chance.randrange(1, 5))
        if chance.random() < 0.5:
            text = written(thing, chance)
        else:
            spelt = respelt(yaml.safe_dump(thing), SIGNS, chance)
            text = spelt.encode(errors="surrogatepass")
        return text + _TRACE + trace.encode() if trace else text

    def judge(self, data: bytes) -> None:
        told = self._told(data)
        if told is not None:
            must_be_text(told, "the complaint")
            must_be_sentence(told, "the complaint")

    def _told(self, data: bytes) -> str | None:
        """Read it and draw everything; give the complaint, if there is one."""
        scenario, _, trace = data.partition(_TRACE)
        file = self._folder / "scenario.yaml"
        file.write_bytes(scenario)
        (self._folder / _FILE).write_bytes(trace)
        try:
            found, given, _ = read(str(file))
        except InvalidInput as complaint:
            return output.clean(str(complaint))
        # Whatever was read without a complaint can be played.
        nodes_of(found, given), queues_of(found, given), jobs_of(found, given)
        return None


def _shipped() -> list[str]:
    folder = resources.files("extender.sim") / "scenarios"
    names = sorted(each.name for each in folder.iterdir())
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _with_trace(trace: str) -> dict[str, Any]:
    return {
        "span": "1h",
        "nodes": [{"name": "n", "count": 3, "has": {"cpu": 64, "nvidia.com/gpu": 8}}],
        "trace": {"file": _FILE, **MAPPINGS[trace]},
    }
