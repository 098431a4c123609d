"""Calls the hooks of an extender over HTTP, as kube-scheduler does."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from extender.hooks.gate import Filtered
from extender.model.annotations import GROUP_NAME
from extender.model.gang import Membership
from extender.model.pod import Pod
from extender.model.resources import PODS
from extender.ports import BindOrder
from extender.sim.clock import PacedClock
from extender.sim.kube_scheduler import BIND_TIMEOUT_S, HookError

_JSON = {"Content-Type": "application/json"}


class HookClient:
    """Implements the hooks for the simulated kube-scheduler; binds wait in threads."""

    def __init__(self, address: tuple[str, int], clock: PacedClock) -> None:
        self._address = address
        self._clock = clock
        self._binders = ThreadPoolExecutor(max_workers=64, thread_name_prefix="bind")
        self._calls = itertools.count(1)

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Return which of the *offered* nodes *pod* may use now."""
        arguments = {"Pod": _manifest(pod, member), "Nodes": None, "NodeNames": list(offered)}
        answer = self._call("filter", arguments)
        return Filtered(
            tuple(answer["NodeNames"] or ()), answer["FailedAndUnresolvableNodes"] or {}
        )

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return the nodes whose victims may be evicted."""
        offered = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for node, uids in victims.items()
        }
        arguments = {"Pod": _manifest(pod, member), "NodeNameToMetaVictims": offered}
        allowed = self._call("preempt", arguments)["NodeNameToMetaVictims"] or {}
        return {node: [each["UID"] for each in found["Pods"]] for node, found in allowed.items()}

    def bind(self, order: BindOrder, answer: Callable[[str], None]) -> int:
        """Bind a pod; *answer* is called in the thread of the clock."""
        self._binders.submit(self._bind, order, answer)
        return next(self._calls)

    def hang_up(self, call: int) -> None:
        """Do nothing: a bind call that times out closes its own connection."""

    def close(self) -> None:
        """Send no more binds; the extender, which stops later, answers the waiting ones."""
        self._binders.shutdown(wait=False, cancel_futures=True)

    def _bind(self, order: BindOrder, answer: Callable[[str], None]) -> None:
        arguments = {
            "PodName": order.name,
            "PodNamespace": order.namespace,
            "PodUID": order.uid,
            "Node": order.node,
        }
        error = ""
        try:
            self._call("bind", arguments)
        except HookError as failed:
            error = str(failed)
        self._clock.call_soon(lambda: answer(error))

    def _call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(*self._address, timeout=BIND_TIMEOUT_S)
        try:
            with closing(connection):
                connection.request("POST", f"/{verb}", json.dumps(arguments).encode(), _JSON)
                answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HookError(str(error)) from error
        if answer.get("Error"):
            raise HookError(answer["Error"])
        return answer


def _manifest(pod: Pod, member: Membership) -> dict[str, Any]:
    """Return the fields of a pod that the extender reads from a call."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": {GROUP_NAME: member.key.partition("/")[2]} if member.named else {},
        },
        "spec": {
            "schedulerName": pod.scheduler,
            "containers": [
                {"name": "main", "resources": {"requests": pod.requests.without(PODS).write()}}
            ],
        },
        "status": {"phase": "Pending", "nominatedNodeName": pod.nominated},
    }
