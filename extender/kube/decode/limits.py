"""How large what tenants write may be; what is beyond is cut, and named.

The API server bounds an object as a whole, at about a megabyte and a half, and hardly anything in
it. Every bound here is far above what anybody needs and far below what would cost us.

What takes up room is never cut from a pod that has some: whoever is too large must not count for
less. Such a pod is read without what else it says; one that waits does not start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import accumulate, chain, islice
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

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
#: The longest name of anything in Kubernetes.
LONGEST_NAME = 253
#: Of a longer one so much is kept, for people.
_KEPT = 60
_LONGEST_SENTENCE = 300
#: Of a pod.
MOST_CONTAINERS = 1000
MOST_PORTS = 256
MOST_TOLERATIONS = 256
MOST_LABELS = 256
#: Characters of all of them.
MOST_LABEL_TEXT = 16_384
MOST_SELECTED = 128
#: Expressions of its node affinity, and their values, all together.
MOST_AFFINITY = 1000
#: Kinds of resources, of whatever asks for some or has some.
MOST_RESOURCES = 64
#: A prefix, a slash and a name.
_LONGEST_RESOURCE = 317
#: Of a PodGroup.
MOST_ROLES = 256
#: All pods of the largest cluster that Kubernetes supports. More may be asked for, and is named.
MOST_MEMBERS = 150_000
#: So much of a text counts as one value.
_WORD = 64
#: Longer than `MOST_LABELS` can be: each has a prefix of at most 253 signs, a name and a value of
#: 63, and seven more.
_LONGEST_LABELS = 100_000
#: So much is kept of longer ones, at least: more labels than are read, for them to be known as too
#: many. Short ones are enough in the first of these.
_KEPT_LABELS = (8_000, 32_000, _LONGEST_LABELS)
#: Before the first label and between two, as Go writes them.
_LABELS = b'"labels":'
_BETWEEN_LABELS = b'","'
#: Enough of them to find where they stand.
_BEGINNING = 64
_NO_LABELS = msgspec.Raw(b"")


class _LabelledMeta(msgspec.Struct, gc=False):
    labels: msgspec.Raw = _NO_LABELS


class _Labelled(msgspec.Struct, gc=False):
    metadata: _LabelledMeta = msgspec.field(default_factory=_LabelledMeta)


class _LabelledLine(_Labelled, gc=False):
    object: _Labelled | None = None


_line = msgspec.json.Decoder(_LabelledLine)
_marks = msgspec.json.Decoder(RawPodAnnotations)
_encode = msgspec.json.Encoder().encode
_MARKS = {field.name: field.encode_name for field in msgspec.structs.fields(RawPodAnnotations)}


def short(name: str) -> str:
    """Give *name*, or if it is longer than any can be one that is as good as unique.

    With a sign in it that no name of Kubernetes has, so that it is never taken for another.
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[:_KEPT]}~{digest[:32]}"


def shorten(sentence: object) -> str:
    """Give a complaint, or the beginning of one that quotes at length what was written."""
    text = str(sentence)
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"


def excess_of_members(least: int | None) -> str:
    """Say that a gang asks for more members than there can be pods (a phrase)."""
    return f"a minimum of {least:,} members" if least and least > MOST_MEMBERS else ""


def excess_of_text(what: str, text: str) -> str:
    """Say that a name is longer than any can be (a phrase)."""
    return f"{what} of {len(text):,} characters" if len(text) > LONGEST_NAME else ""


def words(text: str | None) -> int:
    """Weigh a text: long ones are as dear as many."""
    return 1 + len(text or "") // _WORD


def excess_of_pod(pod: RawPod) -> str:
    """Say what of the spec of *pod* is more than anybody needs (a phrase), mostly nothing."""
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
    """Say that a pod has more labels than are kept (a phrase), mostly nothing."""
    if len(labels) > MOST_LABELS:
        return f"more than {MOST_LABELS} labels"
    if sum(map(len, chain(labels, labels.values()))) > MOST_LABEL_TEXT:
        return f"more than {MOST_LABEL_TEXT:,} characters in its labels"
    return ""


def first_of(labels: Labels) -> Labels:
    """Keep as many labels as there may be, the first."""
    longest = accumulate(len(key) + len(value) for key, value in labels.items())
    number = sum(1 for text in islice(longest, MOST_LABELS) if text <= MOST_LABEL_TEXT)
    return dict(islice(labels.items(), number))


def _amounts_of(resources: RawResources | None) -> tuple[Quantities | None, ...]:
    return (resources.requests, resources.limits) if resources else ()


def excess_of_names(names: Collection[str], where: str = "") -> str:
    """Say that there are too many kinds of resources, or too long names of them, mostly nothing."""
    if len(names) > MOST_RESOURCES:
        return f"more than {MOST_RESOURCES} kinds of resources{where}"
    if any(len(name) > _LONGEST_RESOURCE for name in names):
        return f"a resource{where} whose name has over {_LONGEST_RESOURCE} characters"
    return ""


def some(amounts: Mapping[str, Amount]) -> Mapping[str, Amount]:
    """Keep as many kinds of resources as are read, Kubernetes' own first."""
    if not excess_of_names(amounts):
        return amounts
    fit = (name for name in amounts if len(name) <= _LONGEST_RESOURCE)
    kept = sorted(fit, key=lambda name: ("/" in name, name))[:MOST_RESOURCES]
    return {name: amounts[name] for name in kept}


def weight_of(requirements: Iterable[RawRequirement]) -> int:
    """Count expressions and their values."""
    return sum(1 + sum(map(words, each.values or ())) for each in requirements)


def _weight(tolerations: Iterable[RawToleration]) -> int:
    return sum(words(each.key) + words(each.value) - 1 for each in tolerations)


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
    """Cut most labels out of the JSON of a pod, or of a watch's line, where they are too long.

    A decoder would make two strings and an entry of each, for tens of milliseconds in which no
    other thread has a turn, hooks included. The first are left, and those that tell us something.
    What is no JSON stays as it is, for others to complain about.
    """
    if len(memoryview(data)) <= _LONGEST_LABELS:
        return data
    whole = bytes(data)
    try:
        read = _line.decode(whole)
        labels = bytes((read.object or read).metadata.labels)
        few = _few(labels) if len(labels) > _LONGEST_LABELS else b""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return whole
    if not few:
        return whole
    # With their key: whoever writes the pod may well have its annotations say the same.
    begins = _LABELS + labels[:_BEGINNING]
    at = whole.find(begins)
    while at >= 0 and not whole.startswith(labels, at + len(_LABELS)):
        at = whole.find(begins, at + 1)
    if at < 0:
        return whole
    at += len(_LABELS)
    return b"".join((whole[:at], few, whole[at + len(labels) :]))


def _few(labels: bytes) -> bytes:
    """Write the first of *labels*, and those that tell us something; nothing if they are few."""
    marks = _marks.decode(labels)
    telling = {name: said for key, name in _MARKS.items() if (said := getattr(marks, key))}
    for kept in _KEPT_LABELS:
        if labels.count(_BETWEEN_LABELS, 0, kept) > MOST_LABELS:
            first = labels[: labels.rfind(_BETWEEN_LABELS, 0, kept) + 1]
            return b"".join((first, b"," if telling else b"", _encode(telling)[1:]))
    return b""


#: Kubernetes' own kinds end far above this.
DEEPEST = 64
_BLOCK = 1 << 20
_QUOTE = ord('"')
#: What each sign does to the depth, outside of strings.
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[*b"[{"]] = 1
_STEPS[[*b"]}"]] = -1


def cut_nesting(data: bytes, deepest: int = DEEPEST) -> bytes | None:
    """Write `null` for whatever is deeper than *deepest*; None when nothing is.

    What is no JSON stays none.
    """
    kept: list[bytes] = []
    done, is_deep = 0, False
    for at in _crossings(data, deepest):
        if is_deep:
            done = at + 1
        else:
            kept += (data[done:at], b"null")
        is_deep = not is_deep
    if not kept:
        return None
    return b"".join((*kept, b"" if is_deep else data[done:]))


def _crossings(data: bytes, deepest: int) -> Iterator[int]:
    """Give where brackets lead below *deepest* and back again, in turns."""
    # Only strings have backslashes. Without escaped ones every quote begins or ends a string.
    signs = np.frombuffer(data.replace(rb"\\", b"  ").replace(rb"\"", b"  "), dtype=np.uint8)
    depth, is_quoted = 0, False
    for begin in range(0, len(signs), _BLOCK):
        block = signs[begin : begin + _BLOCK]
        quoted = np.logical_xor.accumulate(block == _QUOTE) ^ is_quoted
        steps = np.where(quoted, 0, _STEPS[block])
        depths = np.cumsum(steps, dtype=np.int64) + depth
        yield from (np.flatnonzero(_is_crossing(steps, depths, deepest)) + begin).tolist()
        depth, is_quoted = int(depths[-1]), bool(quoted[-1])


def _is_crossing(
    steps: npt.NDArray[np.int8], depths: npt.NDArray[np.int64], deepest: int
) -> npt.NDArray[np.bool_]:
    down: npt.NDArray[np.bool_] = (steps == 1) & (depths == deepest + 1)
    up: npt.NDArray[np.bool_] = (steps == -1) & (depths == deepest)
    return np.logical_or(down, up)
