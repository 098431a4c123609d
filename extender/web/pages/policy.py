"""The policy in force, as it was understood: actions in their order, tiers, rules, patience."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from extender.plan.policy.options import OURS, VOLCANO, PluginOption, Policy, Rules
from extender.policyfile import PolicyFile


def page(policies: PolicyFile) -> dict[str, Any]:
    """Give what the policy file says, and what of it is not in force."""
    policy = policies.current()
    return {
        "policy": policy,
        "problem": policies.problem,
        "tiers": [[_plugin(option) for option in tier] for tier in policy.tiers],
        "rules": _rules(policy),
        "manner": _manner(policy),
    }


def _plugin(option: PluginOption) -> dict[str, Any]:
    notes = [f"silent about {each}" for each in sorted(option.silenced)]
    if option.hierarchy:
        notes.append("over the tree of queues")
    if option.orders_namespaces:
        notes.append("namespaces before queues")
    notes += [f"{name} = {value}" for name, value in sorted(option.arguments.items())]
    return {"name": option.name, "notes": notes}


def _manner(policy: Policy) -> str:
    if policy.rules == OURS:
        return "our own"
    return "Volcano's" if policy.rules == VOLCANO else "mixed"


def _rules(policy: Policy) -> list[tuple[str, bool]]:
    return [
        (each.name.replace("_", " "), bool(getattr(policy.rules, each.name)))
        for each in fields(Rules)
        if isinstance(getattr(policy.rules, each.name), bool)
    ]
