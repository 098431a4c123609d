"""Scenarios and traces for `simulate`: jobs, or one sentence that names the place."""

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
#: Between the scenario and a trace that the scenario may name.
_TRACE = b"\n# the trace\n"
_FILE = "trace.csv"


class Scenarios(Edge):
    """Input: a scenario, a line, a trace. All values are drawn, but nothing is simulated."""

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
            must(self._error_of(each) is None, f"{each[:80]!r} is refused")
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder)

    def real(self) -> list[bytes]:
        traced = [
            yaml.safe_dump(_with_trace(each)).encode() + _TRACE + each.encode() for each in _TRACES
        ]
        return [*(each.encode() for each in _shipped()), *traced]

    def made(self, rng: Random) -> bytes:
        trace = rng.choice(_TRACES) if rng.random() < 0.4 else ""
        thing = _with_trace(trace) if trace else yaml.safe_load(rng.choice(_shipped()))
        thing = changed(thing, rng, rng.randrange(1, 5))
        if rng.random() < 0.5:
            text = written(thing, rng)
        else:
            spelt = respelt(yaml.safe_dump(thing), SIGNS, rng)
            text = spelt.encode(errors="surrogatepass")
        return text + _TRACE + trace.encode() if trace else text

    def judge(self, data: bytes) -> None:
        error = self._error_of(data)
        if error is not None:
            must_be_text(error, "the error")
            must_be_sentence(error, "the error")

    def _error_of(self, data: bytes) -> str | None:
        """Read the input and draw all values; return the error, if any."""
        scenario, _, trace = data.partition(_TRACE)
        file = self._folder / "scenario.yaml"
        file.write_bytes(scenario)
        (self._folder / _FILE).write_bytes(trace)
        try:
            found, given, _ = read(str(file))
        except InvalidInput as error:
            return output.clean(str(error))
        # An accepted scenario can be simulated.
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
