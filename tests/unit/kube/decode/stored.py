"""Objects of the model, read from objects as the API server stores them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from extender.kube.decode import podgroups, pods
from extender.model.gang import VOLCANO, Membership, PodGroup
from extender.model.pod import Pod
from extender.model.queue import Queue

SCHEDULERS = frozenset({"gang-scheduler"})
NONE: frozenset[str] = frozenset()


def read_pod(
    stored: dict[str, Any], exempt: frozenset[str] = NONE, schedulers: frozenset[str] = SCHEDULERS
) -> tuple[Pod, Membership]:
    written = json.dumps(stored, separators=(",", ":")).encode()  # as Go writes it
    return pods.to_pod(pods.pod(written), schedulers=schedulers, exempt=exempt)


def read_group(
    stored: dict[str, Any], dialect: str = VOLCANO, exempt: frozenset[str] = NONE
) -> PodGroup:
    return podgroups.to_group(msgspec.convert(stored, podgroups.RawGroup), dialect, exempt)


def read_queue(stored: dict[str, Any]) -> Queue:
    return podgroups.to_queue(msgspec.convert(stored, podgroups.RawQueue))
