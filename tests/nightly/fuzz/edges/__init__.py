"""The edges, one module each."""

from __future__ import annotations

from importlib import import_module

from tests.nightly.fuzz.edge import Edge

#: Each is imported when it is used.
EDGES = {
    "quantities": "Quantities",
    "policy": "PolicyFiles",
    "watch": "WatchEvents",
    "hooks": "HookBodies",
    "hook-port": "HookStreams",
    "page-port": "PageStreams",
    "plan": "PlanInput",
    "terminal": "Terminals",
    "scenario": "Scenarios",
    "recording": "Recordings",
    "handshakes": "Handshakes",
}


def new(name: str) -> Edge:
    """Return an edge, to be entered."""
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    made: Edge = getattr(module, EDGES[name])()
    return made
