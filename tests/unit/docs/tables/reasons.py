"""The tables of reasons: of verdicts, of what befalls a gang, and of findings."""

from __future__ import annotations

from extender import policy_file
from extender.findings import audit, namespaces, queues
from extender.findings.finding import ACCOUNT, NAMESPACE, POLICY, QUEUE
from extender.model.reason import Happening, Reason
from extender.status.desired import _WARNINGS
from tests.unit.docs.tables.parts import table

#: Kinds of objects -> reason -> what is wrong, and what we do meanwhile.
FINDINGS = {
    QUEUE: {**queues.REASONS, **namespaces.REASONS[QUEUE]},
    NAMESPACE: namespaces.REASONS[NAMESPACE],
    POLICY: policy_file.REASONS,
    ACCOUNT: audit.REASONS,
}


def anchor(reason: Reason) -> str:
    """Link to what the page about trouble says of *reason*."""
    return f"[`{reason.value}`](troubleshooting.md#{reason.value.lower()})"


def reasons() -> str:
    """Write what each reason of a verdict means, which event it makes, and what helps."""
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
    """Write what else is told of gangs."""
    return table(
        ("word", "it means", "what helps"),
        ((f"`{each.value}`", each.meaning, each.mend) for each in Happening),
    )


def findings() -> str:
    """Write what each reason of a finding means, and what we do until it is mended."""
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
