"""Size limits on tenant input: what exceeds a limit is cut, and reported as *excess*.

The API server limits the size of an object, to about 1.5 MB, but hardly any of its parts. Every
limit here is far above what a workload needs, and far below what would slow us down.

Resource requests of a pod on a node are never cut: a pod that is too large must not count as
smaller. Such a pod is read without the rest of its spec; a pending one is not scheduled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import accumulate, chain, islice
from typing import TypeVar

import msgspec
import numpy as np

from extender.kube.decode.raw import (
    Labels,
    Quantities,
    RawAffinity,
    RawNodeTerm,
    RawPod,
    RawPodAnnotations,
    RawRequirement,
    RawResources,
    RawToleration,
)

Amount = TypeVar("Amount")
#: The longest name of a Kubernetes object.
LONGEST_NAME = 253
#: The part of a longer name that is kept, for display.
_KEPT = 60
_LONGEST_SENTENCE = 300
#: Limits of a pod.
MOST_CONTAINERS = 1000
MOST_PORTS = 256
MOST_TOLERATIONS = 256
MOST_LABELS = 256
#: Characters of all labels.
MOST_LABEL_TEXT = 16_384
MOST_SELECTED = 128
#: Expressions of its node affinity plus their values.
MOST_AFFINITY = 1000
#: Kinds of resources of any object.
MOST_RESOURCES = 64
#: A prefix, a slash and a name.
_LONGEST_RESOURCE = 317
#: Limits of a PodGroup.
MOST_ROLES = 256
#: All pods of the largest cluster that Kubernetes supports. A larger minimum is kept, and reported.
MOST_MEMBERS = 150_000
#: A text of this length weighs as much as one value.
_WORD = 64
#: More than the JSON of `MOST_LABELS` labels can have: each has a prefix of at most 253 characters,
#: a name and a value of 63, and seven more.
_LONGEST_LABELS = 100_000
#: The part of longer labels that is kept. It must contain more labels than the limit, so that the
#: excess is noticed. For short labels the first of these sizes is enough.
_KEPT_LABELS = (8_000, 32_000, _LONGEST_LABELS)
#: The JSON before the first label and between two, as Go writes it.
_LABELS = b'"labels":'
_BETWEEN_LABELS = b'","'
#: The length of a prefix that suffices to find the labels in the JSON.
_BEGINNING = 64
_NO_LABELS = msgspec.Raw(b"")


class _LabelledMeta(msgspec.Struct, gc=False):
    labels: msgspec.Raw = _NO_LABELS


class _Labelled(msgspec.Struct, gc=False):
    metadata: _LabelledMeta = msgspec.field(default_factory=_LabelledMeta)


class _LabelledLine(_Labelled, gc=False):
    object: _Labelled | None = None


_line = msgspec.json.Decoder(_LabelledLine)
_known = msgspec.json.Decoder(RawPodAnnotations)
_encode = msgspec.json.Encoder().encode
_KNOWN_NAMES = {
    field.name: field.encode_name for field in msgspec.structs.fields(RawPodAnnotations)
}


def shorten_name(name: str) -> str:
    """Return *name*; if it is longer than a name can be, a practically unique abbreviation.

    The abbreviation contains a character that no name in Kubernetes has, so it equals no other.
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[:_KEPT]}~{digest[:32]}"


def shorten(sentence: object) -> str:
    """Return the text of an error; only its beginning if it quotes a long input."""
    text = str(sentence)
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"


def excess_of_members(least: int | None) -> str:
    """Return a phrase if a gang requires more members than a cluster can have pods."""
    return f"a minimum of {least:,} members" if least and least > MOST_MEMBERS else ""


def excess_of_text(what: str, text: str) -> str:
    """Return a phrase if a name is longer than a name can be."""
    return f"{what} of {len(text):,} characters" if len(text) > LONGEST_NAME else ""


def text_weight(text: str | None) -> int:
    """Return the weight of a text: a long one costs as much as many short ones."""
    return 1 + len(text or "") // _WORD


def excess_of_pod(pod: RawPod) -> str:
    """Return a phrase with the part of the spec of *pod* that exceeds its limit, usually empty."""
    spec = pod.spec
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if len(containers) > MOST_CONTAINERS:
        return f"more than {MOST_CONTAINERS} containers"
    if sum(len(each.ports or ()) for each in containers) > MOST_PORTS:
        ports = sum(bool(port.port) for each in containers for port in each.ports or ())
        if ports > MOST_PORTS:
            return f"more than {MOST_PORTS} host ports"
    amounts = [spec.overhead, *_amounts_of(spec.resources)]
    amounts += chain.from_iterable(_amounts_of(each.resources) for each in containers)
    if sum(len(each or ()) for each in amounts) > MOST_RESOURCES:
        kinds = excess_of_names({name for each in amounts for name in each or ()})
        if kinds:
            return kinds
    if _weight(spec.tolerations or ()) > MOST_TOLERATIONS:
        return f"more than {MOST_TOLERATIONS} tolerations"
    if spec.node_selector and len(spec.node_selector) > MOST_SELECTED:
        return f"more than {MOST_SELECTED} labels in its nodeSelector"
    if spec.affinity and _weight_of_affinity(spec.affinity) > MOST_AFFINITY:
        return f"more than {MOST_AFFINITY} expressions and values in its node affinity"
    return ""


def excess_of_labels(labels: Labels) -> str:
    """Return a phrase if a pod has more labels than are kept, usually empty."""
    if len(labels) > MOST_LABELS:
        return f"more than {MOST_LABELS} labels"
    if sum(map(len, chain(labels, labels.values()))) > MOST_LABEL_TEXT:
        return f"more than {MOST_LABEL_TEXT:,} characters in its labels"
    return ""


def first_labels(labels: Labels) -> Labels:
    """Return the first labels, up to the limit."""
    longest = accumulate(len(key) + len(value) for key, value in labels.items())
    number = sum(1 for text in islice(longest, MOST_LABELS) if text <= MOST_LABEL_TEXT)
    return dict(islice(labels.items(), number))


def _amounts_of(resources: RawResources | None) -> tuple[Quantities | None, ...]:
    return (resources.requests, resources.limits) if resources else ()


def excess_of_names(names: Collection[str], where: str = "") -> str:
    """Return a phrase if there are too many resource names, or too long ones, usually empty."""
    if len(names) > MOST_RESOURCES:
        return f"more than {MOST_RESOURCES} kinds of resources{where}"
    if any(len(name) > _LONGEST_RESOURCE for name in names):
        return f"a resource{where} whose name has over {_LONGEST_RESOURCE} characters"
    return ""


def limit_kinds(amounts: Mapping[str, Amount]) -> Mapping[str, Amount]:
    """Return as many kinds of resources as the limit allows, those of Kubernetes first."""
    if not excess_of_names(amounts):
        return amounts
    fit = (name for name in amounts if len(name) <= _LONGEST_RESOURCE)
    kept = sorted(fit, key=lambda name: ("/" in name, name))[:MOST_RESOURCES]
    return {name: amounts[name] for name in kept}


def weight_of(requirements: Iterable[RawRequirement]) -> int:
    """Return the weight of expressions and their values."""
    return sum(1 + sum(map(text_weight, each.values or ())) for each in requirements)


def _weight(tolerations: Iterable[RawToleration]) -> int:
    return sum(text_weight(each.key) + text_weight(each.value) - 1 for each in tolerations)


def _weight_of_affinity(affinity: RawAffinity) -> int:
    node = affinity.node_affinity
    if node is None:
        return 0
    required = (node.required.node_selector_terms if node.required else None) or ()
    preferred = (each.preference for each in node.preferred or ())
    return sum(map(_weight_of_term, (*required, *preferred)))


def _weight_of_term(term: RawNodeTerm | None) -> int:
    if term is None:
        return 1
    return 1 + weight_of((*(term.match_expressions or ()), *(term.match_fields or ())))


def drop_labels(data: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    """Remove most labels from the JSON of a pod, or of a line of a watch, if they are too long.

    A decoder would create two strings and an entry for each. That takes tens of milliseconds in
    which no other thread runs, those of hooks included. The first labels are kept, and those that
    we read. Invalid JSON is returned as it is; the decoder reports it.
    """
    if len(memoryview(data)) <= _LONGEST_LABELS:
        return data
    whole = bytes(data)
    try:
        read = _line.decode(whole)
        labels = bytes((read.object or read).metadata.labels)
        reduced = _reduced(labels) if len(labels) > _LONGEST_LABELS else b""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return whole
    if not reduced:
        return whole
    # Searched with the key: an annotation of the pod may contain the same text.
    begins = _LABELS + labels[:_BEGINNING]
    at = whole.find(begins)
    while at >= 0 and not whole.startswith(labels, at + len(_LABELS)):
        at = whole.find(begins, at + 1)
    if at < 0:
        return whole
    at += len(_LABELS)
    return b"".join((whole[:at], reduced, whole[at + len(labels) :]))


def _reduced(labels: bytes) -> bytes:
    """Return the JSON of the first *labels* and of those that we read; empty if they are few."""
    read = _known.decode(labels)
    used = {name: value for key, name in _KNOWN_NAMES.items() if (value := getattr(read, key))}
    for kept in _KEPT_LABELS:
        if labels.count(_BETWEEN_LABELS, 0, kept) > MOST_LABELS:
            first = labels[: labels.rfind(_BETWEEN_LABELS, 0, kept) + 1]
            return b"".join((first, b"," if used else b"", _encode(used)[1:]))
    return b""


#: No kind of Kubernetes is nested nearly as deeply.
DEEPEST = 64
_BLOCK = 1 << 20
_QUOTE = ord('"')
#: The change of depth by each character, outside of strings.
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[*b"[{"]] = 1
_STEPS[[*b"]}"]] = -1


def cut_nesting(data: bytes, deepest: int = DEEPEST, block_size: int = _BLOCK) -> bytes | None:
    """Return JSON with `null` in place of parts deeper than *deepest*; None if there are none.

    Invalid JSON remains invalid. *block_size* bytes are looked at in one step.
    """
    kept: list[bytes] = []
    done, is_deep = 0, False
    for at in _crossings(data, deepest, block_size):
        if is_deep:
            done = at + 1
        else:
            kept += (data[done:at], b"null")
        is_deep = not is_deep
    if not kept:
        return None
    return b"".join((*kept, b"" if is_deep else data[done:]))


def _crossings(data: bytes, deepest: int, block_size: int) -> Iterator[int]:
    """Yield the positions where brackets lead below *deepest* and, in turn, back again."""
    # Only strings contain backslashes. Without escaped quotes every quote begins or ends a string.
    characters = np.frombuffer(data.replace(rb"\\", b"  ").replace(rb"\"", b"  "), dtype=np.uint8)
    depth, is_quoted = 0, False
    for begin in range(0, len(characters), block_size):
        block = characters[begin : begin + block_size]
        quoted = np.logical_xor.accumulate(block == _QUOTE) ^ is_quoted
        steps = np.where(quoted, 0, _STEPS[block])
        depths = np.cumsum(steps, dtype=np.int64) + depth
        down = (steps == 1) & (depths == deepest + 1)
        up = (steps == -1) & (depths == deepest)
        yield from (np.flatnonzero(down | up) + begin).tolist()
        depth, is_quoted = int(depths[-1]), bool(quoted[-1])
