"""Hook bodies: kube-scheduler gets a valid answer to any body."""

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
        other = self._world.pod("other", scheduler="other")
        self._good = json.dumps({"Pod": other, "NodeNames": ["node-0", "node-1"]}).encode()
        return self

    def __exit__(self, *error: object) -> None:
        self._world.__exit__(*error)

    def real(self) -> list[bytes]:
        recorded = [self._recorded(each) for each in sorted(_WIRE.glob("*.call.json"))]
        # The recorded pods do not have all fields that are read.
        return [*recorded, *map(_filter, OBJECTS["pods"])]

    def _recorded(self, file: Path) -> bytes:
        document = json.loads(file.read_text())
        return file.name.partition("-")[0].encode() + b"\n" + json.dumps(document).encode()

    def made(self, rng: Random) -> bytes:
        verb, _, body = rng.choice(self.real()).partition(b"\n")
        document = changed(json.loads(body), rng, rng.randrange(1, 5))
        if rng.random() < 0.1:
            verb = rng.choice(VERBS).encode()
        return verb + b"\n" + written(document, rng)

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
        raw, has_reserved = self._on_loop(lambda: self._answer(verb, body))
        # Complete nodes are returned byte for byte, valid or not.
        answer = json.loads(raw.decode(errors="replace"))
        if verb == "prioritize":
            must(isinstance(answer, list), "the answer of prioritize is no list")
            for each in answer:
                must(each.keys() == {"Host", "Score"}, "a score has other fields")
                must(type(each["Score"]) is int, "a score is no integer")
            return
        must(isinstance(answer, dict), f"the answer of {verb} is no object")
        if error := answer.get("Error"):
            _must_be_error(error)
            must(not has_reserved, "a refused call made a reservation")
            return
        if verb == "preempt":
            must(answer.keys() == {"NodeNameToMetaVictims"}, "the answer of preempt differs")
            return
        must(answer.keys() == _FILTER_KEYS, "the answer of filter has other fields")
        self._must_answer_for_nodes(json.loads(body.decode(errors="replace")), answer)

    def _must_answer_for_nodes(self, asked: Any, answer: Any) -> None:
        names = asked.get("NodeNames")
        if names is None:
            return
        passed, refused = answer["NodeNames"], answer["FailedAndUnresolvableNodes"]
        must({*passed} <= {*names}, "a node passes that was not offered")
        # A gang that may not start is refused on the nodes of earlier calls, too.
        may_be_named = {*names} if passed else {*names, *_NODES}
        must({*refused} <= may_be_named, "an unknown node is named")
        must(not {*passed} & {*refused}, "a node passes and is refused")
        # The reasons for other nodes matter only if no node passes.
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
            # As it is sent.
            _must_be_error(json.loads(self._world.runtime.hooks.bound(error))["Error"])
        must(
            self._on_loop(lambda: self._world.runtime.core.permit.waiting_binds) == 0,
            "the bind of a disconnected caller waits",
        )

    def _answer(self, verb: str, body: bytes) -> tuple[bytes, bool]:
        """Return the answer, and whether the call made a reservation; called on the event loop."""
        hooks = self._world.runtime.hooks
        reservations = self._world.runtime.core.cluster.reservations
        before = len(reservations)
        return hooks.answer(verb, body).body, len(reservations) > before

    def _ask(self, verb: str, body: bytes) -> bytes:
        answer: bytes = self._on_loop(lambda: self._answer(verb, body)[0])
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
    must("%" not in error, "the error contains a percent sign")
    must(_APOLOGY not in error, "the hook fails")
