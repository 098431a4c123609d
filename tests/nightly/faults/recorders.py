"""Records what the proxies see: hook calls, and responses to bindings."""

from __future__ import annotations

import json
from typing import Any

from tests.nightly.faults.fault_points import hook_site, pod_in, site_of
from tests.nightly.faults.framing import Answer, Request

from .record import Answered, Asked, BindingAnswered, CutOff, Record

EXTENDER = "gang-extender"


def name_call(request: Request) -> tuple[str, str]:
    """Return the site of an API request, and the pod it is about."""
    return site_of(request.method, request.path, request.query), pod_in(request.path)


def name_hook(request: Request) -> tuple[str, str]:
    """Return the site of a hook call, and the pod it is about."""
    site = hook_site(request.path)
    return site, _about(site, _read(request.body))[0]


def _about(site: str, body: dict[str, Any]) -> tuple[str, str, str]:
    """Return name, uid and node of the pod of a hook call."""
    if site == "hook-bind":
        return body.get("PodName", ""), body.get("PodUID", ""), body.get("Node", "")
    about = (body.get("Pod") or {}).get("metadata") or {}
    return about.get("name", ""), about.get("uid", ""), ""


def _read(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


class HookRecorder:
    """Records hook calls."""

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
        # For filter and preempt this is an error, for bind the result.
        error = str(_read(answer.body).get("Error") or "")
        self._record.note(
            Answered(at=self._record.now(), call=number, status=answer.status, error=error)
        )

    def connection_lost(self, number: int, *, by_caller: bool) -> None:
        self._record.note(CutOff(at=self._record.now(), call=number, by_caller=by_caller))


class BindingRecorder:
    """Records the API server's responses to bindings."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def request_sent(self, request: Request) -> int:
        return 0

    def response_received(
        self, number: int, request: Request, answer: Answer, *, delivered: bool
    ) -> None:
        if site_of(request.method, request.path, request.query) != "bind":
            return
        body = _read(request.body)
        self._record.note(
            BindingAnswered(
                at=self._record.now(),
                uid=body.get("metadata", {}).get("uid", ""),
                node=body.get("target", {}).get("name", ""),
                status=answer.status,
                delivered=delivered,
            )
        )

    def connection_lost(self, number: int, *, by_caller: bool) -> None:
        pass
