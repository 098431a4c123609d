"""Hook bodies: whatever comes as a call, kube-scheduler gets an answer that it can read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any, Self

from extender.hooks.handlers import NO_CALL, VERBS
from extender.permit.messages import CallId
from tests.nightly.fuzz.edge import Edge, must, must_be_sentence, must_be_text
from tests.nightly.fuzz.mutations import changed, written
from tests.nightly.fuzz.objects import OBJECTS, Object
from tests.unit.web.conftest import World

_WIRE = Path(__file__).parents[3] / "unit" / "hooks" / "wire"
_APOLOGY = "its log has the details"
_FILTER_KEYS = {"NodeNames", "FailedAndUnresolvableNodes", "Error", "Nodes", "FailedNodes"}
_NODES = ("node-0", "node-1")


class HookBodies(Edge):
    """Input: a verb on a line of its own, then the body."""

    name = "hooks"
    count = 900
    suffix = ".call"
    longest = 40_000
    words = (b'"Pod":', b'"Nodes":', b'"NodeNames":', b'"metadata":', b'"uid":', b'"PodUID":',
             b'"NodeNameToVictims":', b'"NodeNameToMetaVictims":', b"null", b"{}", b"[]", b"\xff",
             b"[" * 2000, b'{"a":' * 2000, b"1e999", b"\\ud800", b"\xc2\x9b", b"\\u001b[2J",
             b'"creationTimestamp":"0001-01-01T00:00:00",')  # fmt: skip

    def __enter__(self) -> Self:
        self._world = World().__enter__()
        for name in _NODES:
            self._world.node(name, cpus=2)
        self._world.group("train", 2, namespace="wire")
        ordinary = json.loads((_WIRE / "filter-ordinary.call.json").read_text())
        self._world.manifests.put({"kind": "Pod", **ordinary["Pod"]})
        stranger = self._world.pod("stranger", scheduler="other")
        self._good = json.dumps({"Pod": stranger, "NodeNames": ["node-0", "node-1"]}).encode()
        return self

    def __exit__(self, *error: object) -> None:
        self._world.__exit__(*error)

    def real(self) -> list[bytes]:
        recorded = [self._recorded(each) for each in sorted(_WIRE.glob("*.call.json"))]
        # What is read of pods is more than those have that were recorded.
        return [*recorded, *map(_filter, OBJECTS["pods"])]

    def _recorded(self, file: Path) -> bytes:
        document = json.loads(file.read_text())
        return file.name.partition("-")[0].encode() + b"\n" + json.dumps(document).encode()

    def made(self, chance: Random) -> bytes:
        verb, _, body = chance.choice(self.real()).partition(b"\n")
        document = changed(json.loads(body), chance, chance.randrange(1, 5))
        if chance.random() < 0.1:
            verb = chance.choice(VERBS).encode()
        return verb + b"\n" + written(document, chance)

    def judge(self, data: bytes) -> None:
        head, _, body = data.partition(b"\n")
        verb = head.decode("latin-1")
        verb = verb if verb in VERBS else "filter"
        if verb == "bind":
            self._judge_bind(body)
        else:
            self._judge_answer(verb, body)
        good = json.loads(self._ask("filter", self._good))
        must(good["NodeNames"] == ["node-0", "node-1"], "the next good call is not answered")

    def _judge_answer(self, verb: str, body: bytes) -> None:
        told, promised = self._on_loop(lambda: self._asked(verb, body))
        # Nodes that were sent whole come back byte for byte, whatever they are.
        answer = json.loads(told.decode(errors="replace"))
        if verb == "prioritize":
            must(isinstance(answer, list), "prioritize is answered with no list")
            for each in answer:
                must(each.keys() == {"Host", "Score"}, "a score is written in another way")
                must(type(each["Score"]) is int, "a score is no whole number")
            return
        must(isinstance(answer, dict), f"{verb} is answered with no object")
        if error := answer.get("Error"):
            _must_be_error(error)
            must(not promised, "a call that was refused made a promise")
            return
        if verb == "preempt":
            must(answer.keys() == {"NodeNameToMetaVictims"}, "preempt is answered in another way")
            return
        must(answer.keys() == _FILTER_KEYS, "filter is answered in another way")
        self._must_answer_for_nodes(json.loads(body.decode(errors="replace")), answer)

    def _must_answer_for_nodes(self, asked: Any, answer: Any) -> None:
        names = asked.get("NodeNames")
        if names is None:
            return
        passed, refused = answer["NodeNames"], answer["FailedAndUnresolvableNodes"]
        must({*passed} <= {*names}, "a node is passed that was not on offer")
        # A gang that may not start is refused on nodes, too, that were on offer a while ago.
        may_be_named = {*names} if passed else {*names, *_NODES}
        must({*refused} <= may_be_named, "a node is named that is none")
        must(not {*passed} & {*refused}, "a node is both passed and refused")
        # Why others are left out matters only where no node is left.
        must(passed or {*refused} >= {*names}, "a node is refused without a reason")
        for reason in {*refused.values()}:
            _must_be_error(reason)

    def _judge_bind(self, body: bytes) -> None:
        answers: list[str] = []
        call = self._on_loop(lambda: self._world.runtime.hooks.bind(body, answers.append))
        if not answers and call != NO_CALL:
            gone: CallId = call
            self._on_loop(lambda: self._world.runtime.hooks.peer_gone(gone))
        must(len(answers) <= 1, "a bind is answered twice")
        for error in filter(None, answers):
            # As it goes out: what is said inside is somebody else's business.
            _must_be_error(json.loads(self._world.runtime.hooks.bound(error))["Error"])
        must(self._on_loop(lambda: self._world.runtime.holds) == 0, "a bind waits for nobody")

    def _asked(self, verb: str, body: bytes) -> tuple[bytes, bool]:
        """Give the answer, and whether it made a promise; on the loop, which alone makes some."""
        hooks = self._world.runtime.hooks
        reservations = self._world.runtime.core.cluster.reservations
        before = len(reservations)
        return hooks.answer(verb, body).body, len(reservations) > before

    def _ask(self, verb: str, body: bytes) -> bytes:
        answer: bytes = self._on_loop(lambda: self._world.runtime.hooks.answer(verb, body).body)
        return answer

    def _on_loop(self, work: Any) -> Any:
        async def done() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self._world.loop).result(60)


def _filter(pod: Object) -> bytes:
    return b"filter\n" + json.dumps({"Pod": pod, "NodeNames": _NODES}).encode()


def _must_be_error(error: str) -> None:
    must_be_sentence(error, "the error")
    must_be_text(error, "the error")
    must("%" not in error, "the error has a percent sign")
    must(_APOLOGY not in error, "the hook fails")
