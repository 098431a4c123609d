"""Saved objects for `plan`: the result is a plan, or one sentence that names the place."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Self

import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from tests.nightly.fuzz.edge import Edge, must, must_be_sentence, must_be_text
from tests.nightly.fuzz.edges.policy import SIGNS
from tests.nightly.fuzz.mutations import EVIL, changed, respelt, written
from tests.nightly.fuzz.objects import OBJECTS, Object

_EXAMPLES = Path(__file__).parents[4] / "manifests" / "examples"
_VERSIONS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "namespaces": ("v1", "Namespace"),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "resourcequotas": ("v1", "ResourceQuota"),
    "podgroups": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    "queues": ("scheduling.volcano.sh/v1beta1", "Queue"),
}


def saved() -> list[Object]:
    """Return objects of each kind, as kubectl writes them."""
    return [
        {"apiVersion": version, "kind": kind, **copy.deepcopy(each)}
        for plural, (version, kind) in _VERSIONS.items()
        for each in OBJECTS[plural]
    ]


class PlanInput(Edge):
    """Input: a line with the output format, then the file."""

    name = "plan"
    count = 250
    suffix = ".saved"
    longest = 30_000
    words = tuple(
        each.encode()
        for each in (*SIGNS, "kind: List", "items:", "metadata:", "apiVersion: ", EVIL, "name: ")
    )

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "saved"
        self._good = b"json\n" + yaml.safe_dump_all(saved()).encode()
        self.judge(self._good)
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        examples = [each.read_bytes() for each in sorted(_EXAMPLES.glob("*.yaml"))]
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": saved()}).encode()
        written_ = [yaml.safe_dump_all(saved()).encode(), listed, *examples]
        return [output + b"\n" + each for each in written_ for output in (b"table", b"json")]

    def made(self, rng: Random) -> bytes:
        output = rng.choice((b"table", b"table", b"json", b"yaml"))
        things = saved()
        if rng.random() < 0.3:
            things = things * rng.choice((2, 5))
        things = changed(things, rng, rng.randrange(1, 6))
        if rng.random() < 0.3 and isinstance(things, list):
            for each in things:
                _append_evil(each, rng)
        if rng.random() < 0.5 or not isinstance(things, list):
            listed = {"apiVersion": "v1", "kind": "List", "items": things}
            return output + b"\n" + written(listed, rng)
        text = yaml.safe_dump_all(things, allow_unicode=rng.random() < 0.5)
        return output + b"\n" + respelt(text, SIGNS, rng).encode(errors="surrogatepass")

    def judge(self, data: bytes) -> None:
        head, _, content = data.partition(b"\n")
        output = head.decode("latin-1")
        output = output if output in ("table", "json", "yaml") else "table"
        self._file.write_bytes(content)
        must_end_well(result := run("plan", "-f", str(self._file), "-o", output), (0, 2))
        if result.exit_code == 0 and output == "json":
            json.loads(result.stdout)


def run(*words: str, **variables: str | None) -> Result:
    """Run a command as in a terminal; otherwise click removes some control characters."""
    return CliRunner().invoke(main, words, env=variables, color=True)


def must_end_well(result: Any, codes: tuple[int, ...]) -> None:
    """Object unless a command ended properly: text, a known exit code, one sentence on failure."""
    must_print_text(result, codes)
    if result.exit_code == 2:
        must(not result.stdout, "a failing command prints to stdout")
        must(result.stderr.startswith("gang-extender: "), "the error does not name the program")
        must_be_sentence(result.stderr.removesuffix("\n"), "the error")


def must_print_text(result: Any, codes: tuple[int, ...]) -> None:
    """Object unless a command printed text and ended with one of *codes*, without a traceback."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    must(result.exit_code in codes, f"the exit code is {result.exit_code}")
    must_be_text(result.stdout, "stdout")
    must_be_text(result.stderr, "stderr")


def _append_evil(thing: Any, rng: Random) -> None:
    """Append hostile text to a name."""
    metadata = thing.get("metadata") if isinstance(thing, dict) else None
    if isinstance(metadata, dict):
        key = rng.choice(("name", "namespace", "uid"))
        metadata[key] = f"{metadata.get(key)}{EVIL}"
