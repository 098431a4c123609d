"""The command line's page: every command, and every field of every document."""

from __future__ import annotations

import click
import msgspec

from extender.cli import schema
from extender.cli.main import main
from extender.web import documents
from tests.unit.docs.tables.parts import table

_FAILS = "2 bad input"
_BAD_INPUT = "2 bad input, or no extender answers"
#: Exit codes of each command besides 0.
EXITS = {
    "serve": _FAILS,
    "demo": "1 a claim failed; 2 bad input",
    "plan": _BAD_INPUT,
    "simulate": _FAILS,
    "replay": "3 a decision differs; 2 bad input",
    "explain": f"1 there is no such gang; {_BAD_INPUT}",
    "gangs": _BAD_INPUT,
    "queues": _BAD_INPUT,
    "top": _BAD_INPUT,
    "doctor": "1 there is a problem; 2 bad input, or not everything could be checked",
    "scheduler-config": _FAILS,
    "certificates": _FAILS,
    "pair": _FAILS,
    "completion": _FAILS,
}
#: The document that `-o json` and `-o yaml` print.
DOCUMENTS = {
    "plan": "Plan",
    "replay": "Replay",
    "explain": "Explanation",
    "gangs": "GangList",
    "queues": "QueueList",
    "top": "Picture",
    "doctor": "Diagnosis",
}
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


def words() -> str:
    """Write every command with its purpose, its document and its exit codes."""
    return table(
        ("word", "", "`-o json`", "exit code, beside 0"),
        (
            (
                f"`{name}`",
                _short(command),
                f"[{DOCUMENTS[name]}](#documents)" if name in DOCUMENTS else "",
                EXITS[name],
            )
            for name, command in main.commands.items()
        ),
    )


def _short(command: click.Command) -> str:
    return (command.help or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")


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
