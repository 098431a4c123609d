"""A minimal extender: the cost of the two calls and of the binding of a pod, without decisions.

The usual stack (uvicorn on uvloop with its C parser) answers filter with the first node. Binds wait
until the gang is complete; they are sent through the product's pipeline. There is no watch, no plan
and no reservation. What the product costs beyond this is the cost of its decisions.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from extender.kube.client import ApiClient
from extender.kube.pipeline import Pipeline
from extender.kube.write.bind import ApiBinder
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome
from tests.cluster.components import answers
from tests.cluster.extender_process import Extender

GROUP = "scheduling.k8s.io/group-name"


class _Metadata(msgspec.Struct):
    uid: str
    annotations: dict[str, str] = {}


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Filter(msgspec.Struct):
    Pod: _Pod
    NodeNames: list[str]


class _Bind(msgspec.Struct):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


_read_filter = msgspec.json.Decoder(_Filter).decode
_read_bind = msgspec.json.Decoder(_Bind).decode


class App:
    """The ASGI application; a gang has *size* members."""

    def __init__(self, binder: ApiBinder, size: int) -> None:
        self._binder = binder
        self._size = size
        self._gangs: dict[str, str] = {}
        self._orders: dict[str, list[BindOrder]] = defaultdict(list)
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        if scope["path"] in ("/filter", "/bind"):
            message = await receive()
            body = message["body"]
            while message["more_body"]:
                message = await receive()
                body += message["body"]
        if scope["path"] == "/filter":
            answer = self._filter(_read_filter(body))
        elif scope["path"] == "/bind":
            await self._bind(_read_bind(body))
            answer = b'{"Error":""}'
        else:
            answer = b"{}"
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _filter(self, call: _Filter) -> bytes:
        pod = call.Pod.metadata
        self._gangs[pod.uid] = pod.annotations.get(GROUP, pod.uid)
        return msgspec.json.encode({"NodeNames": call.NodeNames[:1]})

    async def _bind(self, call: _Bind) -> None:
        gang = self._gangs.pop(call.PodUID)
        self._waiting[call.PodUID] = answer = asyncio.get_running_loop().create_future()
        order = BindOrder(
            uid=PodUid(call.PodUID),
            namespace=call.PodNamespace,
            name=call.PodName,
            node=call.Node,
        )
        self._orders[gang].append(order)
        if len(self._orders[gang]) == self._size:
            self._binder.bind(self._orders.pop(gang), self._settle, time.monotonic() + 10)
        await answer

    def _settle(self, order: BindOrder, outcome: BindOutcome) -> None:
        self._waiting.pop(order.uid).set_result(None)


class Bare(Extender):
    """This file as a process, instead of `serve`."""

    def __init__(self, logs: Path, *, kubeconfig: Path, size: int) -> None:
        super().__init__("bare", logs, kubeconfig=kubeconfig)
        self._size = size

    def command(self) -> list[str | Path]:
        return [
            sys.executable,
            *("-m", "tests.bench.bare"),
            self._kubeconfig,
            str(self.ports[0]),
            str(self._size),
        ]

    def is_ready(self) -> bool:
        return answers(f"{self.url}/readyz")


async def serve(kubeconfig: str, port: int, size: int) -> None:
    """Answer until killed."""
    pipeline = Pipeline(ApiClient.load(kubeconfig), asyncio.get_running_loop())
    app = App(ApiBinder(pipeline), size)
    config = uvicorn.Config(app, port=port, loop="uvloop", http="httptools", access_log=False)
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
