"""The page of the command line: every command and every flag."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from extender.cli.main import main
from extender.settings import Settings, flag
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
#: Flags that every command has which asks a running extender, or lists gangs.
SHARED = {
    "to find the extender": (
        "--ops-url", "--kubeconfig", "--context", "--extender-namespace", "--token-from",
    ),
    "to choose gangs": ("--queue", "--reason", "--verdict"),
}  # fmt: skip
_SETTINGS = frozenset(flag(name) for name in Settings.__dataclass_fields__)


def words() -> str:
    """Write every command with its purpose, its document and its exit codes."""
    return table(
        ("command", "", "`-o json`", "exit code, beside 0"),
        (
            (
                f"[`{name}`](#{name})",
                _short(command),
                f"[{DOCUMENTS[name]}](api.md#{DOCUMENTS[name].lower()})"
                if name in DOCUMENTS
                else "",
                EXITS[name],
            )
            for name, command in main.commands.items()
        ),
    )


def shared() -> str:
    """Write the flags that several commands share."""
    known = {_name(each): each for command in main.commands.values() for each in _options(command)}
    explain = {_name(each): each for each in _options(main.commands["explain"])}
    return "\n".join(
        f"**Flags {purpose}:**\n\n"
        + table(_HEAD, (_row(explain.get(name, known[name])) for name in names))
        for purpose, names in SHARED.items()
    )


def commands() -> str:
    """Write every command with its flags."""
    return "\n".join(_command(name, command) for name, command in main.commands.items())


_HEAD = ("flag", "default", "meaning")


def _command(name: str, command: click.Command) -> str:
    own = [each for each in _options(command) if _name(each) not in _said(name)]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    names = (each.make_metavar(_CONTEXT) for each in arguments)
    usage = " ".join([f"gang-extender {name}", *names])
    parts = [f"### {name}\n", f"`{usage}`: {_short(command)}.\n"]
    if own:
        parts.append(table(_HEAD, map(_row, own)))
    shared_flags = [purpose for purpose, names in SHARED.items() if _uses(command, names)]
    if name == "serve":
        parts.append("Every [setting](configuration.md#settings) is a flag.\n")
    elif name == "plan":
        same = [_name(each) for each in _options(command) if _name(each) in _settings_of(command)]
        parts.append(
            "These [settings](configuration.md#settings) mean the same as in `serve`: "
            + ", ".join(f"`{each}`" for each in same)
            + ".\n"
        )
    if shared_flags:
        parts.append(f"Also the [shared flags](#shared-flags) {' and '.join(shared_flags)}.\n")
    return "\n".join(parts)


_CONTEXT = click.Context(main)


def _settings_of(command: click.Command) -> frozenset[str]:
    if command.name not in ("plan", "serve"):
        return frozenset()
    return _SETTINGS - {"--config", "--kubeconfig"}


def _said(name: str) -> set[str]:
    command = main.commands[name]
    said = set(_settings_of(command))
    if name == "serve":
        said |= _SETTINGS
    for names in SHARED.values():
        if _uses(command, names):
            said |= set(names)
    return said


def _uses(command: click.Command, names: Sequence[str]) -> bool:
    return set(names) <= {_name(each) for each in _options(command)}


def _options(command: click.Command) -> Iterator[click.Option]:
    return (each for each in command.params if isinstance(each, click.Option))


def _name(option: click.Option) -> str:
    return next(each for each in option.opts if each.startswith("--"))


def _row(option: click.Option) -> Sequence[str]:
    flags = ", ".join(f"`{each}`" for each in sorted(option.opts, key=len))
    if isinstance(option.type, click.Choice):
        flags += " " + ", ".join(f"`{each}`" for each in option.type.choices)
    elif not option.is_flag:
        flags += " " + option.make_metavar(_CONTEXT).replace("INTEGER RANGE", "N")
    if isinstance(option.envvar, str):
        flags += f", `{option.envvar}`"
    return flags, _default(option), re.sub(r"\s+", " ", option.help or "")


def _default(option: click.Option) -> str:
    value = option.default
    if option.is_flag or option.multiple or not isinstance(value, str | int | float) or value == "":
        return ""
    return f"`{value}`"


def _short(command: click.Command) -> str:
    return (command.help or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")
