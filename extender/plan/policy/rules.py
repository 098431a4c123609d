"""Where we decide otherwise than Volcano, point by point; one key turns it all back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Each field is one deliberate difference; `True` is our way."""

    #: A tier that voted and left no victim ends the vote; Volcano starts afresh in the next tier.
    vetoes_are_final: bool = True
    #: Whole numbers and exact water-filling; Volcano works in floats with a tolerance of 0.1.
    exact: bool = True
    #: `pods` limits a node but is no dimension of a queue's or gang's share.
    pods_have_no_share: bool = True
    #: Victims are surplus members or whole gangs, as few pods as possible; Volcano takes single
    #: pods, node by node in the order of their scores.
    gangs_leave_whole: bool = True
    #: A gang may carry its queue over its due when nobody within their due can use the room.
    #: Without this, two queues with one gang each of 60 % of the cluster wait for ever.
    may_overshoot: bool = True
    #: A member without requests counts once it has a node, not while it is pending.
    members_need_nodes: bool = True
    #: When no plugin has an opinion, a gang with waiting members wants more (as in kube-batch,
    #: whose files know no such opinion); in Volcano nobody then ever reclaims or preempts.
    waiting_is_starving: bool = True
    #: Without the enqueue action no gang is kept out of its queue; in Volcano only allocate sees
    #: it that way.
    only_enqueue_keeps_out: bool = True
    #: A gang that waits too long gets room kept for it.
    starving_gangs_get_room: bool = True
    #: Of a queue's gangs, one that runs with too few members is first in line for room and the
    #: last to give any: what it has is of no use without the rest.
    torn_gangs_are_first: bool = True


OURS = Rules()
VOLCANO = Rules(
    vetoes_are_final=False,
    exact=False,
    pods_have_no_share=False,
    gangs_leave_whole=False,
    may_overshoot=False,
    members_need_nodes=False,
    waiting_is_starving=False,
    only_enqueue_keeps_out=False,
    starving_gangs_get_room=False,
    torn_gangs_are_first=False,
)
