"""Room that is kept for a gang is used meanwhile by a pod whose deadline nobody can lengthen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.planner.policy_parser import DEFAULT_TEXT
from tests import objects

from .api import Api, ApiError, Object
from .control_plane import ControlPlane
from .extender_process import Extender
from .stage import Pool
from .waiting import wait_for

NAME = "backfill-scheduler"
FLAG = f"--scheduler-name={NAME}"
LONG_S = 60


def said(extender: Extender, namespace: str, gang: str) -> str:
    status, told = extender.ask(f"/api/v1/gangs/{namespace}/{gang}")
    return str(json.loads(told).get("message", "")) if status == 200 else ""


def test_kept_room_is_for_those_whom_the_kubelet_ends_in_time(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Callable[..., Pool],
    create: Callable[..., list[Object]],
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{DEFAULT_TEXT}\nstarvation: {{after: 1s, hold: 10m}}\n")
    pool = nodes(2, cpu="4")
    about = {"scheduler": NAME, "node_selector": pool.selector}

    def node_of(name: str) -> str | None:
        return objects.node_of(api.get("pods", name, namespace))

    with (
        plane.extender(FLAG, f"--config={policy}") as extender,
        plane.scheduler(plane.scheduler_config(extender, FLAG)),
    ):
        word = {"gang-extender.io/duration": "2h"}
        create(objects.pod("old", namespace, cpu="2", annotations=word, **about))
        wait_for(lambda: node_of("old"), LONG_S, "the long one is bound")
        create(objects.pod_group("large", namespace, 2))
        create(*objects.pods(2, "large", namespace, gang="large", cpu="4", **about))
        wait_for(
            lambda: "capacity is reserved for it" in said(extender, namespace, "large"),
            LONG_S,
            "room is kept",
        )
        boast = {"gang-extender.io/duration": "1m"}
        create(objects.pod("boaster", namespace, annotations=boast, **about))
        wait_for(
            lambda: "only gangs that activeDeadline" in said(extender, namespace, "pod:boaster"),
            LONG_S,
            "one without a deadline is told why it waits",
        )

        create(objects.pod("brief", namespace, activeDeadlineSeconds=300, **about))
        wait_for(
            lambda: node_of("brief"),
            LONG_S,
            "one with a deadline is bound",
            seeing=lambda: said(extender, namespace, "pod:brief"),
        )
        assert node_of("boaster") is None
        assert node_of("large-0") is None

        for longer in (301, None):
            with pytest.raises(ApiError) as refused:
                api.patch("pods", "brief", {"spec": {"activeDeadlineSeconds": longer}}, namespace)
            assert refused.value.status == 422
