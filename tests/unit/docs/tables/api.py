"""The page of the HTTP API: its paths, and every field of every document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import FunctionType, MethodType

import msgspec
from flask import Flask

from extender.cli import schema
from extender.forecast.forecaster import Forecaster
from extender.metrics import Metrics
from extender.policy_file import PolicyFile
from extender.status.history import GangHistory
from extender.web import documents
from extender.web.app import create_app
from extender.web.dashboard.context import AppContext
from tests.unit.docs.tables.parts import table

#: Every kind, by its name.
KINDS: dict[str, type[msgspec.Struct]] = {
    each.__name__: each
    for each in (
        documents.Explanation,
        schema.GangList,
        schema.QueueList,
        schema.Picture,
        schema.Plan,
        schema.Replay,
        schema.Diagnosis,
    )
}
#: The parts of documents: where they are, and their fields.
PARTS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "gang": ("`items` of a GangList, `gangs` of a Plan or Picture", documents.Gang),
    "queue": ("`queues` of a Plan, `queue_figures` of an Explanation", documents.Queue),
    "queue of a QueueList": (
        "`items` of a QueueList, `queues` of a Picture",
        schema.CountedQueue,
    ),
    "share": ("`shares`, `share_figures`", documents.Share),
    "eviction": ("`evictions`, `victims`", documents.Eviction),
    "held": ("`held`", documents.Held),
    "scheduler": ("`schedulers`", documents.Scheduler),
    "estimate": ("`estimate`", documents.Estimate),
    "ending": ("`after` of an estimate", documents.Ending),
    "need": ("`needs` of an Explanation", documents.Need),
    "nearest node": ("`nearest` of a need", documents.Nearest),
    "gang ahead": ("`ahead` of an Explanation", documents.Ahead),
    "line": ("`history` of an Explanation", documents.Line),
    "finding": ("`findings` of a Plan", documents.Finding),
    "difference": ("`differences` of a Replay or a Plan", schema.Difference),
    "problem": ("`found` of a Diagnosis", schema.Problem),
    "not checked": ("`not_checked` of a Diagnosis", schema.NotChecked),
}
#: What a view does not say of itself.
_MEANINGS: Mapping[str, str] = {
    "/healthz": "200 while the process and the event loop of the hooks run",
    "/readyz": "200 while the hooks answer; else 503 and what is missing",
    "/warmz": "200 while the replica could lead; else 503 and what is missing",
    "/assets/<version>/<name>": "",
    "/events": "server-sent events: each new plan, and a sign of life every five seconds",
    "/metrics": "the [metrics](metrics.md), as text for Prometheus",
}


def operations_port(metrics: Metrics, history: GangHistory) -> Flask:
    """Return the application behind an operations port."""
    policies = PolicyFile()
    return create_app(
        AppContext(
            history=history,
            findings=list,
            policies=policies,
            metrics=metrics,
            why_not_ready=list,
            warmth=list,
            standby=list,
            notes=list,
            silence=dict,
            forecaster=Forecaster(policies.current),
        )
    )


def paths() -> str:
    """Write every path of the operations port."""
    app = operations_port(Metrics(), GangHistory())
    rules = sorted(
        (each for each in app.url_map.iter_rules() if "GET" in (each.methods or ())),
        key=lambda rule: (rule.rule.count("api"), rule.rule),
    )
    rows = (
        (_written(rule.rule), _meaning(rule.rule, app.view_functions[rule.endpoint]))
        for rule in rules
    )
    return table(("`GET`", "answer"), (row for row in rows if row[1]))


def _written(path: str) -> str:
    return "`" + re.sub(r"<(?:path:)?(\w+)>", lambda found: found[1].upper(), path) + "`"


def _meaning(path: str, view: object) -> str:
    if path in _MEANINGS:
        return _MEANINGS[path]
    if isinstance(view, FunctionType | MethodType) and view.__doc__:
        sentence = view.__doc__.partition("\n")[0].rstrip(".")
        return re.sub(r"^(Return|Show) ", "", sentence)
    return ""


def fields() -> str:
    """Write every field of every document."""
    whole = [_part(name, "", kind) for name, kind in KINDS.items()]
    inside = [_part(name, f"In {where}.\n\n", kind) for name, (where, kind) in PARTS.items()]
    return "\n".join([*whole, *inside])


def _part(name: str, where: str, kind: type[msgspec.Struct]) -> str:
    rows = ((f"`{each}`", meaning) for each, meaning in meanings(kind).items())
    return f"### {name}\n\n{where}" + table(("field", ""), rows)


def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the fields of *kind* that are printed, with their meanings."""
    found = {
        each.encode_name: each.type.__metadata__[0].description
        for each in msgspec.structs.fields(kind)
    }
    if kind is schema.Plan:
        del found["generation"]
    return found
