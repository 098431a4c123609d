"""All acts, in the order in which they are told."""

from __future__ import annotations

from extender.sim.story import deadlock, fair_shares, giant, lending

ACTS = {each.ACT.name: each.ACT for each in (deadlock, fair_shares, lending, giant)}
