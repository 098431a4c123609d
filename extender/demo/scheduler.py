"""A small kube-scheduler: one pod at a time through the filter hook, binds in parallel.

It has the behaviour that an extender can observe. A refused pod waits until it is nominated. A pod
that fits no node waits until capacity is freed. A chosen node is assumed until the bind fails, and
a failed bind retries after a backoff. Every hook is called over real HTTP.
"""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from extender.demo.cluster import Object, SimCluster
from extender.model.resources import NOTHING, Resources

_RETRY_S = 1.0
_BIND_TIMEOUT_S = 45.0
_JSON = {"Content-Type": "application/json"}


class SimScheduler:
    """Schedule the pods of one SimCluster with the extender at *url*."""

    def __init__(self, cluster: SimCluster, url: str) -> None:
        self._cluster = cluster
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._active: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        self._nodes: dict[str, Resources] = {}
        self._placed: dict[str, tuple[str, Resources]] = {}
        #: Pods that fit no node, retried when capacity is freed.
        self._no_capacity: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._binders = ThreadPoolExecutor(max_workers=64, thread_name_prefix="bind")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sim scheduler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._cluster.listen(self._handle)
        self._thread.start()

    def stop(self) -> None:
        """Stop scheduling; the extender, which stops later, answers the waiting binds."""
        self._stopping.set()
        self._active.put(None)
        self._thread.join()
        self._binders.shutdown(wait=False, cancel_futures=True)

    @property
    def assumed(self) -> dict[str, str]:
        """Return the node of each bound or assumed pod by uid."""
        with self._lock:
            return {uid: node for uid, (node, _) in self._placed.items()}

    def _handle(self, verb: str, manifest: Object) -> None:
        if manifest["kind"] == "Node" and verb == "DELETED":
            self._nodes.pop(manifest["metadata"]["name"], None)
        elif manifest["kind"] == "Node":
            self._nodes[manifest["metadata"]["name"]] = Resources.parse(
                manifest["status"]["allocatable"]
            )
            self._retry_all()
        elif manifest["kind"] == "Pod":
            self._handle_pod(verb, manifest)

    def _handle_pod(self, verb: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if verb == "DELETED" or pod["status"].get("phase") == "Succeeded":
            with self._lock:
                self._no_capacity.pop(uid, None)
                was_placed = self._placed.pop(uid, None) is not None
            if was_placed:
                self._retry_all()
        elif not pod["spec"].get("nodeName") and uid not in self._placed:
            self._active.put(pod)

    def _retry_all(self) -> None:
        with self._lock:
            waiting, self._no_capacity = list(self._no_capacity.values()), {}
        for pod in waiting:
            self._active.put(pod)

    def _run(self) -> None:
        while (pod := self._active.get()) is not None and not self._stopping.is_set():
            self._schedule(pod)

    def _schedule(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        current = self._cluster.find("Pod", uid)
        if uid in self._placed or current is None:
            return
        pod = current
        requests = _requests(pod)
        nominated = pod["status"].get("nominatedNodeName")
        # The nominated node is tried alone first; if the pod does not fit, all nodes are.
        feasible = self._feasible(requests, [nominated] if nominated else ())
        feasible = feasible or self._feasible(requests, self._nodes)
        if not feasible:
            with self._lock:
                self._no_capacity[uid] = pod
            return
        answer = self._call("filter", {"Pod": pod, "Nodes": None, "NodeNames": feasible})
        nodes = answer.get("NodeNames") or []
        if answer.get("Error"):
            self._binders.submit(self._retry, pod)
        elif nodes:
            node = max(nodes, key=lambda name: self._free(name).amount("cpu"))
            with self._lock:
                self._placed[uid] = (node, requests)
            self._binders.submit(self._bind, pod, node)

    def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        answer = self._call(
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node,
            },
        )
        if answer.get("Error"):
            with self._lock:
                self._placed.pop(metadata["uid"], None)
            self._retry(pod)

    def _retry(self, pod: Object) -> None:
        self._stopping.wait(_RETRY_S)
        self._active.put(pod)

    def _feasible(self, requests: Resources, names: Iterable[str]) -> list[str]:
        return [name for name in sorted(names) if requests.fits_in(self._free(name))]

    def _free(self, node: str) -> Resources:
        with self._lock:
            used = sum((each for place, each in self._placed.values() if place == node), NOTHING)
        return self._nodes[node] - used

    def _call(self, verb: str, arguments: Object) -> dict[str, Any]:
        connection = http.client.HTTPConnection(*self._address, timeout=_BIND_TIMEOUT_S)
        try:
            connection.request("POST", f"/{verb}", json.dumps(arguments).encode(), _JSON)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except OSError as error:
            return {"Error": str(error)}
        finally:
            connection.close()
        return answer


def _requests(pod: Object) -> Resources:
    requests = Resources({"pods": 1})
    for container in pod["spec"]["containers"]:
        requests = requests + Resources.parse(container.get("resources", {}).get("requests", {}))
    return requests
