"""What the proxies see goes into the record: calls of hooks, and bindings that were answered."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.faults import hook_site, pod_in, site_of
from tests.cluster.framing import Answer, Request

from .record import Answered, Asked, BindingAnswered, CutOff, Record

EXTENDER = "gang-extender"


def name_call(request: Request) -> tuple[str, str]:
    """Name a call to the API server, and the pod it is about."""
    return site_of(request.method, request.path, request.query), pod_in(request.path)


def name_hook(request: Request) -> tuple[str, str]:
    """Name a call of kube-scheduler's, and the pod it is about."""
    site = hook_site(request.path)
    return site, _about(site, _read(request.body))[0]


def _about(site: str, said: dict[str, Any]) -> tuple[str, str, str]:
    """Give name, uid and node of the pod that a hook is asked about."""
    if site == "hook-bind":
        return said.get("PodName", ""), said.get("PodUID", ""), said.get("Node", "")
    about = (said.get("Pod") or {}).get("metadata") or {}
    return about.get("name", ""), about.get("uid", ""), ""


def _read(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


class HookWitness:
    """Stands at the hooks."""

    def __init__(self, record: Record, who: str = EXTENDER) -> None:
        self._record = record
        self._who = who

    def request_sent(self, request: Request) -> int:
        site = hook_site(request.path)
        _, uid, node = _about(site, _read(request.body))
        number = self._record.next_call()
        self._record.note(
            Asked(
                at=self._record.now(),
                call=number,
                hook=site.removeprefix("hook-"),
                to=self._who,
                uid=uid,
                node=node,
            )
        )
        return number

    def response_received(
        self, number: int, request: Request, answer: Answer, *, delivered: bool
    ) -> None:
        # Filter and preempt say no in the same way; only what bind says is yes or no.
        error = str(_read(answer.body).get("Error") or "")
        self._record.note(
            Answered(at=self._record.now(), call=number, status=answer.status, error=error)
        )

    def connection_lost(self, number: int, *, by_caller: bool) -> None:
        self._record.note(CutOff(at=self._record.now(), call=number, by_caller=by_caller))


class BindingWitness:
    """Stands at the API server, and looks at bindings alone."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def request_sent(self, request: Request) -> int:
        return 0

    def response_received(
        self, number: int, request: Request, answer: Answer, *, delivered: bool
    ) -> None:
        if site_of(request.method, request.path, request.query) != "bind":
            return
        said = _read(request.body)
        self._record.note(
            BindingAnswered(
                at=self._record.now(),
                uid=said.get("metadata", {}).get("uid", ""),
                node=said.get("target", {}).get("name", ""),
                status=answer.status,
                delivered=delivered,
            )
        )

    def connection_lost(self, number: int, *, by_caller: bool) -> None:
        pass
