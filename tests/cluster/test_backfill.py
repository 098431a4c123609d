"""Reserved capacity is used meanwhile by pods whose activeDeadlineSeconds ends them in time."""

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
from .train_gang import Pool
from .waiting import wait_for

NAME = "backfill-scheduler"
FLAG = f"--scheduler-name={NAME}"
TIMEOUT_S = 60


def message_of(extender: Extender, namespace: str, gang: str) -> str:
    status, text = extender.get(f"/api/v1/gangs/{namespace}/{gang}")
    return str(json.loads(text).get("message", "")) if status == 200 else ""


def test_reserved_capacity_is_open_to_pods_with_a_deadline_alone(
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
        duration = {"gang-extender.io/duration": "2h"}
        create(objects.pod("old", namespace, cpu="2", annotations=duration, **about))
        wait_for(lambda: node_of("old"), TIMEOUT_S, "the long pod is bound")
        create(objects.pod_group("large", namespace, 2))
        create(*objects.pods(2, "large", namespace, gang="large", cpu="4", **about))
        wait_for(
            lambda: "capacity is reserved for it" in message_of(extender, namespace, "large"),
            TIMEOUT_S,
            "capacity is reserved",
        )
        duration = {"gang-extender.io/duration": "1m"}
        create(objects.pod("no-deadline", namespace, annotations=duration, **about))
        wait_for(
            lambda: (
                "only gangs that activeDeadline"
                in message_of(extender, namespace, "pod:no-deadline")
            ),
            TIMEOUT_S,
            "the pod without a deadline has the reason",
        )

        create(objects.pod("brief", namespace, activeDeadlineSeconds=300, **about))
        wait_for(
            lambda: node_of("brief"),
            TIMEOUT_S,
            "the pod with a deadline is bound",
            seeing=lambda: message_of(extender, namespace, "pod:brief"),
        )
        assert node_of("no-deadline") is None
        assert node_of("large-0") is None

        for longer in (301, None):
            with pytest.raises(ApiError) as refused:
                api.patch("pods", "brief", {"spec": {"activeDeadlineSeconds": longer}}, namespace)
            assert refused.value.status == 422
