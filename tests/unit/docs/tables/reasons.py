"""The tables of reasons: of verdicts, of events of a gang, and of findings."""

from __future__ import annotations

from extender import policy_file
from extender.findings import audit, namespaces, queues
from extender.findings.finding import ACCOUNT, NAMESPACE, POLICY, QUEUE
from extender.model.reason import Happening, Reason
from extender.status.desired import _WARNINGS
from tests.unit.docs.tables.parts import table

#: Kind -> reason -> what is wrong, and what the extender does until it is fixed.
FINDINGS = {
    QUEUE: {**queues.REASONS, **namespaces.REASONS[QUEUE]},
    NAMESPACE: namespaces.REASONS[NAMESPACE],
    POLICY: policy_file.REASONS,
    ACCOUNT: audit.REASONS,
}


def anchor(reason: Reason) -> str:
    """Link to the entry of *reason* on the troubleshooting page."""
    return f"[`{reason.value}`](troubleshooting.md#{reason.value.lower()})"


def reasons() -> str:
    """Write the meaning, the event and the remedy of each reason of a verdict."""
    return table(
        ("reason", "it means", "event", "what helps"),
        (
            (
                anchor(each),
                each.meaning.replace("minMember", "`minMember`").replace(
                    "--node-selector", "`--node-selector`"
                ),
                _event(each),
                each.mend,
            )
            for each in Reason
        ),
    )


def happenings() -> str:
    """Write the other events of gangs."""
    return table(
        ("word", "it means", "what helps"),
        ((f"`{each.value}`", each.meaning, each.mend) for each in Happening),
    )


def findings() -> str:
    """Write the meaning of each reason of a finding, and the behaviour until it is fixed."""
    return table(
        ("kind", "reason", "what is wrong", "what we do meanwhile"),
        (
            (kind, f"`{reason}`", flaw.wrong, flaw.until_mended)
            for kind, flaws in FINDINGS.items()
            for reason, flaw in flaws.items()
        ),
    )


def _event(reason: Reason) -> str:
    if reason is Reason.ADMITTED:
        return ""
    return "Warning" if reason in _WARNINGS else "Normal"
