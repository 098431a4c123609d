"""kube-scheduler in miniature: one pod at a time through the filter hook, binds in parallel.

It keeps what matters to an extender: refused pods are parked until they are nominated, those
that no node has room for until some becomes free, a chosen node is assumed until the bind fails, a
failed bind comes back after a pause, and every question goes over real HTTP.
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
    """Schedules the pods of one SimCluster by asking the extender at *url*."""

    def __init__(self, cluster: SimCluster, url: str) -> None:
        self._cluster = cluster
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._active: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        self._nodes: dict[str, Resources] = {}
        self._placed: dict[str, tuple[str, Resources]] = {}
        #: Pods that no node had room for; whenever some becomes free they are looked at again.
        self._no_capacity: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._binders = ThreadPoolExecutor(max_workers=64, thread_name_prefix="bind")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sim scheduler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._cluster.listen(self._handle)
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more; whoever is held is let go by the extender, which ends after us."""
        self._stopping.set()
        self._active.put(None)
        self._thread.join()
        self._binders.shutdown(wait=False, cancel_futures=True)

    @property
    def assumed(self) -> dict[str, str]:
        """Give the node of every pod, by uid, that is on one or whose bind is under way."""
        with self._lock:
            return {uid: node for uid, (node, _) in self._placed.items()}

    def _handle(self, verb: str, thing: Object) -> None:
        if thing["kind"] == "Node" and verb == "DELETED":
            self._nodes.pop(thing["metadata"]["name"], None)
        elif thing["kind"] == "Node":
            self._nodes[thing["metadata"]["name"]] = Resources.parse(thing["status"]["allocatable"])
            self._retry_all()
        elif thing["kind"] == "Pod":
            self._handle_pod(verb, thing)

    def _handle_pod(self, verb: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if verb == "DELETED" or pod["status"].get("phase") == "Succeeded":
            with self._lock:
                self._no_capacity.pop(uid, None)
                was_seated = self._placed.pop(uid, None) is not None
            if was_seated:
                self._retry_all()
        elif not pod["spec"].get("nodeName") and uid not in self._placed:
            self._active.put(pod)

    def _retry_all(self) -> None:
        with self._lock:
            again, self._no_capacity = list(self._no_capacity.values()), {}
        for pod in again:
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
        needs = _requests(pod)
        nominated = pod["status"].get("nominatedNodeName")
        # The node it is nominated to is tried alone first; without room there, all are.
        feasible = self._feasible(needs, [nominated] if nominated else ())
        feasible = feasible or self._feasible(needs, self._nodes)
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
                self._placed[uid] = (node, needs)
            self._binders.submit(self._bind, pod, node)

    def _bind(self, pod: Object, node: str) -> None:
        about = pod["metadata"]
        answer = self._call(
            "bind",
            {
                "PodName": about["name"],
                "PodNamespace": about["namespace"],
                "PodUID": about["uid"],
                "Node": node,
            },
        )
        if answer.get("Error"):
            with self._lock:
                self._placed.pop(about["uid"], None)
            self._retry(pod)

    def _retry(self, pod: Object) -> None:
        self._stopping.wait(_RETRY_S)
        self._active.put(pod)

    def _feasible(self, needs: Resources, names: Iterable[str]) -> list[str]:
        return [name for name in sorted(names) if needs.fits_in(self._free(name))]

    def _free(self, node: str) -> Resources:
        with self._lock:
            taken = sum((needs for seat, needs in self._placed.values() if seat == node), NOTHING)
        return self._nodes[node] - taken

    def _call(self, verb: str, call: Object) -> dict[str, Any]:
        connection = http.client.HTTPConnection(*self._address, timeout=_BIND_TIMEOUT_S)
        try:
            connection.request("POST", f"/{verb}", json.dumps(call).encode(), _JSON)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except OSError as error:
            return {"Error": str(error)}
        finally:
            connection.close()
        return answer


def _requests(pod: Object) -> Resources:
    needs = Resources({"pods": 1})
    for container in pod["spec"]["containers"]:
        needs = needs + Resources.parse(container.get("resources", {}).get("requests", {}))
    return needs
