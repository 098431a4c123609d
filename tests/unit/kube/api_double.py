"""Stands in for `ApiClient`: answers requests from a script and records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from extender.kube.errors import refusal
from extender.leader.fencing import FencingToken

Answer = tuple[int, object]


#: The response of the API server to a create in a namespace that is being deleted.
TERMINATING: Answer = (
    403,
    {
        "message": "unable to create new content in namespace a because it is being terminated",
        "reason": "Forbidden",
        "details": {"causes": [{"reason": "NamespaceTerminating"}]},
    },
)


class Asked(NamedTuple):
    method: str
    path: str
    body: Any
    content_type: str
    wait_s: float = 15.0


class ApiDouble:
    """*answers* by "METHOD path": a list is used up in order, its last entry stays."""

    def __init__(self, answers: Mapping[str, list[Answer]] | None = None) -> None:
        self.answers = {key: list(script) for key, script in (answers or {}).items()}
        self.asked: list[Asked] = []

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        wait_s: float = 15.0,
        fencing: FencingToken | None = None,
    ) -> bytes:
        if body is not None and fencing is not None:
            fencing.check()
        self.asked.append(Asked(method, path, body, content_type, wait_s))
        script = self.answers.get(f"{method} {path}", [(200, {})])
        status, said = script.pop(0) if len(script) > 1 else script[0]
        data = msgspec.json.encode(said)
        if status >= 300 or status == 0:
            raise refusal(method, path, status, data)
        return data

    def requests(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]
