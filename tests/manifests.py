"""Kubernetes objects as plain dicts, decoded as by the watches into a simulated API server."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec

from extender.clock import timestamp
from extender.kube.decode import resources
from extender.kube.decode.decoder import ObjectDecoder
from extender.model.gang import VOLCANO, PodGroup
from extender.model.queue import PriorityClass
from extender.ports import Clock
from extender.sim.api_server import ApiServer

from .objects import Object


class Manifests:
    """Writes manifests to *api*."""

    def __init__(
        self,
        api: ApiServer,
        clock: Clock,
        schedulers: Collection[str] = ("gang-scheduler",),
        exempt: Collection[str] = (),
    ) -> None:
        self._api = api
        self._clock = clock
        self._uids = count(1)
        namespaces = frozenset(exempt)
        self._codecs: dict[str, ObjectDecoder[Any]] = {
            "Node": resources.nodes(),
            "Pod": resources.pods(frozenset(schedulers), namespaces),
            "PodGroup": resources.groups(VOLCANO, namespaces),
            "Queue": resources.queues(VOLCANO),
        }

    def create(self, manifest: Object) -> Object:
        """Store a copy of *manifest* with a uid and a time, and return it."""
        made = deepcopy(manifest)
        made["metadata"] |= {
            "uid": f"uid-{next(self._uids):04d}",
            "creationTimestamp": timestamp(self._clock.now()),
        }
        self.put(made)
        return made

    def put(self, manifest: Object) -> None:
        """Store *manifest* as it is."""
        if manifest["kind"] == "PriorityClass":
            name = manifest["metadata"]["name"]
            self._api.put(PriorityClass(name=name, value=manifest["value"]))
            return
        item = self._codecs[manifest["kind"]].read(msgspec.json.encode(manifest))
        if isinstance(item, PodGroup) and item.key in self._api.groups:
            # Only the extender writes its phase.
            known = self._api.groups[item.key]
            item = replace(item, phase=known.phase, is_phaseless=known.is_phaseless)
        self._api.put(item)
