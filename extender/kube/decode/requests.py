"""What a whole pod needs on its node, from what its containers ask for."""

from __future__ import annotations

from collections.abc import Sequence

from extender.model.resources import NOTHING, PODS, Resources

ONE_POD = Resources({PODS: 1})


def pod_requests(
    containers: Sequence[Resources],
    init: Sequence[tuple[Resources, bool]] = (),
    overhead: Resources = NOTHING,
    pod_level: Resources = NOTHING,
) -> Resources:
    """Add up a pod as kube-scheduler does, `pods: 1` included.

    *init* is in the order of the pod's spec; the flag says that the container is a sidecar
    (`restartPolicy: Always`), which keeps running beside everything that starts after it. Plain
    init containers run alone, so only the most demanding moment counts. A resource named at
    *pod_level* replaces what the containers add up to.
    """
    running, peak = NOTHING, NOTHING
    for amounts, is_sidecar in init:
        peak = peak.at_least(running + amounts)
        if is_sidecar:
            running = running + amounts
    needed = sum(containers, running).at_least(peak)
    return Resources({**needed, **pod_level}) + overhead + ONE_POD
