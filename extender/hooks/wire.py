"""Decode kube-scheduler's calls and encode the answers, with the keys of Go's structs.

The Go structs of the extender API have no JSON tags, so keys are Go's field names. Three traps:
a score must be a JSON integer (10.0 voids the whole answer), an answer that is not 200 loses
its text, and a reason with a percent sign is mangled by the event recorder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from extender.errors import InvalidHookCall
from extender.text import clean

_Call = TypeVar("_Call")


class _NodeName(msgspec.Struct):
    name: str


class _NodeMeta(msgspec.Struct):
    metadata: _NodeName


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] = []


class FilterCall(msgspec.Struct, rename="pascal"):
    """A filter or prioritize call: a pod and the candidate nodes."""

    pod: msgspec.Raw
    nodes: _NodeList | None = None
    node_names: list[str] | None = None

    def offered(self) -> list[str]:
        """Return the names of the candidate nodes, however they were sent."""
        return self.node_names if self.node_names is not None else list(self.whole_nodes())

    def whole_nodes(self) -> dict[str, msgspec.Raw]:
        """Return the nodes that were sent as whole objects, unparsed, by name."""
        items = self.nodes.items if self.nodes else []
        return {_read(_node_decoder, item, "a node").metadata.name: item for item in items}

    @property
    def sent_whole_nodes(self) -> bool:
        """Return whether nodeCacheCapable is off, which makes 1.33+ score every node as idle."""
        return self.nodes is not None and self.node_names is None


class _Victim(msgspec.Struct):
    uid: str = msgspec.field(name="UID")


class _FullVictimMeta(msgspec.Struct):
    uid: str = ""


class _FullVictim(msgspec.Struct):
    metadata: _FullVictimMeta


class _MetaVictims(msgspec.Struct, rename="pascal"):
    pods: list[_Victim] | None = None
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class _FullVictims(msgspec.Struct, rename="pascal"):
    pods: list[_FullVictim] | None = None
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptCall(msgspec.Struct, rename="pascal"):
    """A preempt call: a pod and the victims on each candidate node."""

    pod: msgspec.Raw
    node_name_to_meta_victims: dict[str, _MetaVictims] | None = None
    node_name_to_victims: dict[str, _FullVictims] | None = None

    def victims(self) -> dict[str, list[str]]:
        """Return the uids of the victims on each candidate node."""
        if self.node_name_to_meta_victims is not None:
            return {
                node: [pod.uid for pod in victims.pods or ()]
                for node, victims in self.node_name_to_meta_victims.items()
            }
        return {
            node: [pod.metadata.uid for pod in victims.pods or ()]
            for node, victims in (self.node_name_to_victims or {}).items()
        }

    def violations(self, node: str) -> int:
        """Return the number of disruption budgets kube-scheduler would violate on *node*."""
        victims = (self.node_name_to_meta_victims or self.node_name_to_victims or {}).get(node)
        return victims.violations if victims else 0


class BindCall(msgspec.Struct):
    """A bind call: a pod and its node."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class _FilterAnswer(msgspec.Struct, rename="pascal"):
    node_names: Sequence[str] | None
    failed_and_unresolvable_nodes: Mapping[str, str]
    error: str = ""
    nodes: _NodeList | None = None
    failed_nodes: Mapping[str, str] = {}


class _HostPriority(msgspec.Struct, rename="pascal"):
    host: str
    score: int


_node_decoder = msgspec.json.Decoder(_NodeMeta)
_filter_decoder = msgspec.json.Decoder(FilterCall)
_preempt_decoder = msgspec.json.Decoder(PreemptCall)
_bind_decoder = msgspec.json.Decoder(BindCall)
_encode = msgspec.json.Encoder().encode


def read_filter(body: bytes) -> FilterCall:
    """Decode a filter or prioritize call."""
    return _read(_filter_decoder, body, "a filter call")


def read_preempt(body: bytes) -> PreemptCall:
    """Decode a preempt call."""
    return _read(_preempt_decoder, body, "a preempt call")


def read_bind(body: bytes) -> BindCall:
    """Decode a bind call; a pod without uid cannot be bound safely."""
    call = _read(_bind_decoder, body, "a bind call")
    if not (call.uid and call.name and call.namespace and call.node):
        raise InvalidHookCall("not a bind call: PodUID, PodName, PodNamespace and Node must be set")
    return call


def _read(decoder: msgspec.json.Decoder[_Call], body: bytes | msgspec.Raw, what: str) -> _Call:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidHookCall(f"not {what} of kube-scheduler: {error}".replace("%", "")) from error


def write_filter(call: FilterCall, nodes: Sequence[str], refused: Mapping[str, str]) -> bytes:
    """Encode the remaining nodes and the reason for every other one.

    A kube-scheduler that sent whole nodes reads only whole nodes.
    """
    if not call.sent_whole_nodes:
        return _encode(_FilterAnswer(nodes, refused))
    whole = call.whole_nodes()
    return _encode(_FilterAnswer(None, refused, nodes=_NodeList([whole[name] for name in nodes])))


def write_scores(scores: Mapping[str, int]) -> bytes:
    """Encode the answer to prioritize: a bare array of integers."""
    return _encode([_HostPriority(host, int(score)) for host, score in scores.items()])


def write_victims(call: PreemptCall, victims: Mapping[str, Sequence[str]]) -> bytes:
    """Encode the answer to preempt; no node at all is a veto."""
    return _encode(
        {
            "NodeNameToMetaVictims": {
                node: {
                    "Pods": [{"UID": uid} for uid in uids],
                    "NumPDBViolations": call.violations(node),
                }
                for node, uids in victims.items()
            }
        }
    )


def write_error(message: str) -> bytes:
    """Encode an error for any verb but prioritize; kube-scheduler ignores other fields then."""
    # It may contain a name sent by an untrusted caller, and people read it in a pod's events.
    return _encode({"Error": clean(message.replace("%", ""))})


BOUND = write_error("")
