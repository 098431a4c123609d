"""kube-batch's flat file (until 0.3), rewritten with tiers: one row of plugins is one tier.

    plugins: "gang, drf"
    plugin.gang.jobready: "true"

It comes from a ConfigMap, so all its values are texts. Where it has switches, an opinion without
one is off, as it was there; a file without any means what the same plugins mean in a tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from extender.errors import BadConfiguration
from extender.text.plain import as_text, shown

_SWITCHES = {
    "jobready": "enableJobReady",
    "joborder": "enableJobOrder",
    "taskorder": "enableTaskOrder",
    "preemptable": "enablePreemptable",
}


def with_tiers(document: Any, source: str) -> Any:
    """Give *document* with tiers if it is flat; any other stays as it is."""
    if not isinstance(document, Mapping) or "plugins" not in document:
        return document
    if "tiers" in document:
        raise BadConfiguration(f"{source}: plugins beside tiers; move them into one")
    switches = {key: value for key, value in document.items() if as_text(key).startswith("plugin.")}
    options = [_option(entry, switches) for entry in _row(document["plugins"], source)]
    _check(switches, options, source)
    rest = {
        key: value for key, value in document.items() if key != "plugins" and key not in switches
    }
    return {**rest, "tiers": [{"plugins": options}]}


def _row(written: object, source: str) -> Sequence[Any]:
    if isinstance(written, str):
        written = [name for word in written.split(",") if (name := word.strip())]
    if not isinstance(written, Sequence):
        raise BadConfiguration(f"{source}: plugins must be a list, found {shown(written)}")
    if not written:
        raise BadConfiguration(f"{source}: plugins is empty; name at least one")
    return written


def _option(entry: Any, switches: Mapping[str, Any]) -> dict[str, Any]:
    option = dict(entry) if isinstance(entry, Mapping) else {"name": as_text(entry)}
    if switches:
        for word, flag in _SWITCHES.items():
            option[flag] = switches.get(_key(option, word), False)
    return option


def _key(option: Mapping[str, Any], word: str) -> str:
    return f"plugin.{option.get('name')}.{word}"


def _check(switches: Mapping[str, Any], options: Sequence[Any], source: str) -> None:
    known = dict.fromkeys(_key(option, word) for option in options for word in _SWITCHES)
    for key in switches:
        if key not in known:
            (near,) = get_close_matches(key, known, n=1, cutoff=0)
            raise BadConfiguration(f"{source}: unknown key {shown(key)}; did you mean {near!r}?")
