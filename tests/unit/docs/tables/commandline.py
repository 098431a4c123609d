"""The command line's page: every command, and every field of every document."""

from __future__ import annotations

import click

from extender.cli import schema
from extender.cli.main import main
from tests.unit.docs.tables.parts import table

_FAILS = "2 bad input"
_BAD_INPUT = "2 bad input, or nobody can be asked"
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
#: The items of each list.
_INSIDE = {
    "gang": "`items` of a GangList, `gangs` of a Plan or Picture",
    "queue": "`queues` of a Plan, `queue_figures` of an Explanation",
    "queue of a QueueList": "`items` of a QueueList, `queues` of a Picture",
    "share": "`shares`, `share_figures`",
    "eviction": "`evictions`, `victims`",
    "held": "`held`",
    "finding": "`findings` of a Plan",
    "difference": "`differences` of a Replay or a Plan",
    "problem": "`found` of a Diagnosis",
    "not checked": "`not_checked` of a Diagnosis",
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
    whole = [_part(kind, "", about) for kind, about in schema.DOCUMENTS.items()]
    inside = [_part(name, _INSIDE[name], about) for name, about in schema.ITEMS.items()]
    return "\n".join([*whole, *inside])


def _part(name: str, where: str, about: schema.Fields) -> str:
    title = f"### {name}\n\n" + (f"In {where}.\n\n" if where else "")
    return title + table(("field", ""), ((f"`{each}`", why) for each, why in about.items()))
