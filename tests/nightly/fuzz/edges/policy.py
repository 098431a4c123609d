"""Policy files: used, or refused with one sentence; a refused file changes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Self

import msgspec
import yaml

from extender.cli import saved
from extender.errors import InvalidConfiguration
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.planner.plugins import registry
from extender.planner.policy import ACTIONS
from extender.policy_file import PolicyFile
from extender.web.plan_documents import PlanDocuments
from tests.nightly.fuzz.edge import Edge, must, must_be_sentence
from tests.nightly.fuzz.mutations import changed, odd, respelt
from tests.unit.text.yaml_bombs import BOMBS

ROOT = Path(__file__).parents[4]
_WHAT_IF = ROOT / "manifests" / "examples" / "what-if.yaml"
#: Different from the default.
_GOOD = 'actions: "enqueue, allocate"\n'
_KEYS = (
    "actions", "tiers", "configurations", "metrics", "compatibility", "starvation", "plugins",
    "name", "arguments", "after", "hold", "gangs", "enableHierarchy", "enablePreemptable",
)  # fmt: skip
#: Tokens with a meaning in YAML.
SIGNS = (
    "&a ", "*a", "[", "]", "{", "}", ": ", "- ", "? ", "!!binary ", "!!set ", "<<: *a", "'", '"',
    "|\n", "---\n", "...\n", "# ", "%YAML 9.9\n", "\t", "\ufeff", "0x" + "f" * 4000, ".inf",
    ".nan", "2026-13-45", "1:2:3", "!!python/object:os.x ", "~", "=", "\x85",
)  # fmt: skip


class PolicyFiles(Edge):
    """Input: a file that changes while the extender runs."""

    name = "policy"
    count = 500
    suffix = ".yaml"
    longest = 20_000
    words = tuple(each.encode() for each in (*SIGNS, *_KEYS, *ACTIONS, *registry.names()))

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "policy.yaml"
        self._file.write_text(_GOOD)
        self._policies = PolicyFile(str(self._file))
        self._good = self._policies.current()
        objects = saved.read([str(_WHAT_IF)], frozenset({"gang-scheduler"}))
        self._snapshot = objects.snapshot()
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def real(self) -> list[bytes]:
        small = [bomb for bomb in BOMBS.values() if len(bomb) < self.longest]
        return [each.encode() for each in (policy_parser.DEFAULT_TEXT, _GOOD, *small)]

    def made(self, rng: Random) -> bytes:
        document = yaml.safe_load(policy_parser.DEFAULT_TEXT)
        document["starvation"] = {"after": "10m", "hold": "1h", "gangs": 1}
        document["configurations"] = [{"name": "preempt", "arguments": {"x": 1}}]
        names = registry.names()
        document["tiers"][0]["plugins"].append({"name": rng.choice(names), "arguments": {}})
        for tier in document["tiers"]:
            for plugin in tier["plugins"]:
                known, _ = registry.declared(plugin["name"])
                if known and rng.random() < 0.5:
                    plugin["arguments"] = {rng.choice(sorted(known)): odd(rng)}
        document = changed(document, rng, rng.randrange(4))
        text = yaml.safe_dump(document, allow_unicode=rng.random() < 0.5)
        return respelt(text, SIGNS, rng).encode(errors="surrogatepass")

    def judge(self, data: bytes) -> None:
        self._file.write_bytes(data)
        policy = self._policies.current()
        problem = self._policies.problem
        if problem:
            must_be_sentence(problem, "the refusal")
            must("cannot be understood" not in problem, "the refusal does not say what is wrong")
            must(policy is self._good, "a refused file changed the policy")
            must(self._policies.current() is self._good, "reading it again changed the policy")
            must(self._policies.problem == problem, "reading it again changed the problem")
            self._must_not_start()
        else:
            plan = make_plan(self._snapshot, policy)
            msgspec.json.encode(PlanDocuments(plan, self._snapshot).plan())
        self._file.write_text(_GOOD)
        self._good = self._policies.current()
        must(not self._policies.problem, "a good file is refused after a bad one")
        must(self._good.actions == ("enqueue", "allocate"), "a good file has no effect")

    def _must_not_start(self) -> None:
        try:
            PolicyFile(str(self._file))
        except InvalidConfiguration as error:
            must_be_sentence(str(error), "the refusal to start")
            return
        must(False, "a file that is refused at run time is accepted at the start")
