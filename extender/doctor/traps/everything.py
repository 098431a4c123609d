"""All traps that we know, and all that are set."""

from __future__ import annotations

from extender.doctor.seen import Seen
from extender.doctor.trap import Caught, Severity, Trap
from extender.doctor.traps import (
    certificates,
    clocks,
    configuration,
    deployment,
    features,
    findings,
    kinds,
    leases,
    names,
    rights,
)

#: By where one looks; the manual has them in this order.
KNOWN: dict[str, tuple[Trap, ...]] = {
    "kube-scheduler's configuration": configuration.TRAPS,
    "names of schedulers": names.TRAPS,
    "the Deployment": deployment.TRAPS,
    "leadership": leases.TRAPS,
    "rights": rights.TRAPS,
    "kinds": kinds.TRAPS,
    "certificates": certificates.TRAPS,
    "clocks": clocks.TRAPS,
    "features of Kubernetes": features.TRAPS,
    "what the extender says": findings.TRAPS,
}


def catch(seen: Seen) -> list[Caught]:
    """Name every trap that is set; those that only hint come last."""
    caught = [
        *(each for told in seen.configurations for each in configuration.of_configuration(told)),
        *names.of_names(seen),
        *deployment.of_deployments(seen),
        *leases.of_leases(seen),
        *rights.of_rights(seen),
        *kinds.of_kinds(seen),
        *certificates.of_certificates(seen),
        *clocks.of_clocks(seen),
        *features.of_features(seen),
        *findings.of_findings(seen),
    ]
    return sorted(caught, key=lambda each: each.trap.severity is Severity.HINT)
