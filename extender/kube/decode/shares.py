"""What a namespace may have of queues, as its annotations say: mappings in YAML, or in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.errors import BadInput
from extender.model.queue import AT_LEAST, AT_MOST, Share
from extender.model.resources import NOTHING, Resources
from extender.text import written as documents
from extender.text.plain import as_text, shown

_EXAMPLE = "'{research: {cpu: 8}}'"
#: Of what is wrong; an annotation has a quarter of a megabyte, and every verdict would repeat it.
_LONGEST = 300


def read_shares(namespace: str, annotations: Mapping[str, str]) -> tuple[tuple[Share, ...], str]:
    """Read the shares of a namespace and, where an annotation cannot be read, why not.

    Nobody gets in by a typo: with such a sentence no gang of the namespace starts.
    """
    if AT_MOST not in annotations and AT_LEAST not in annotations:
        return (), ""
    problems: list[str] = []
    said: dict[str, Mapping[str, Resources]] = {}
    for annotation in (AT_MOST, AT_LEAST):
        try:
            said[annotation] = _by_queue(annotations.get(annotation, ""))
        except BadInput as error:
            said[annotation] = {}
            problems.append(
                f"the annotation {annotation} of namespace {namespace} cannot be read:"
                f" {str(error)[:_LONGEST]};"
                f" write it like {_EXAMPLE}"
            )
    most, least = said[AT_MOST], said[AT_LEAST]
    shares = tuple(
        Share(
            queue=queue,
            namespace=namespace,
            most=most.get(queue, NOTHING),
            least=least.get(queue, NOTHING).positive(),
        )
        for queue in sorted({*most, *least})
    )
    return shares, "; ".join(problems)


def _by_queue(text: str) -> Mapping[str, Resources]:
    try:
        document = documents.load(text)
    except BadInput as error:
        raise BadInput(f"it is neither YAML nor JSON ({error})") from error
    found = {}
    for queue, amounts in _mapping(document, "it", "queues to amounts").items():
        found[queue] = _amounts(_mapping(amounts, f"what it says of {queue}", "names to amounts"))
    return found


def _mapping(thing: Any, what: str, of: str) -> dict[str, Any]:
    """Take *thing* for a mapping; nothing at all is an empty one."""
    if thing is None:
        return {}
    if not isinstance(thing, dict) or not all(isinstance(name, str) for name in thing):
        raise BadInput(f"{what} is no mapping of {of}")
    return thing


def _amounts(written: Mapping[str, Any]) -> Resources:
    for name, text in written.items():
        if not isinstance(text, str | int | float):
            raise BadInput(f"{name}: {shown(text)} is not a quantity")
    amounts = Resources.parse(written)
    for name, amount in amounts.items():
        if amount < 0:
            raise BadInput(f"{name} is {as_text(written[name])}, and nothing can be less than 0")
    return amounts
