"""What if: the cluster of a running extender or of saved files, without and with a change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from extender.cli.foreseen.differing import print_compared
from extender.cli.live import answers
from extender.cli.reach.way import reached
from extender.cli.reach.whereabouts import Whereabouts
from extender.cli.saved import objects
from extender.cli.typed.names import in_use
from extender.errors import BadInput
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.recording.differences import Differing
from extender.whatif.compared import PlannedMoment, asked_for
from extender.whatif.objects import Objects, Thing, told as told_by
from extender.whatif.submitted import submitted
from extender.whatif.supposed import Supposed
from extender.whatif.weighed import Reading, weighed

Command = Callable[..., Any]
_OPTIONS = (
    click.option(
        "--live",
        is_flag=True,
        help="Plan the cluster as a running extender sees it. What -f names is what would be"
        " submitted: pods, PodGroups, Jobs, Deployments and the like, also nodes and queues.",
    ),
    click.option(
        "--with",
        "withs",
        multiple=True,
        metavar="PATH=VALUE",
        help="Suppose this, and say first what changes: queue/NAME.weight, .priority, .parent,"
        " .reclaimable, .lend, .guarantee.RESOURCE, .deserved.RESOURCE, .capability.RESOURCE;"
        " node/NAME.unschedulable. May be repeated.",
    ),
    click.option(
        "--without",
        "withouts",
        multiple=True,
        metavar="PATH",
        help="Suppose that this is gone: node/NAME, queue/NAME, gang/NAMESPACE/NAME,"
        " pod/NAMESPACE/NAME. Pods of a node that is gone wait again. May be repeated.",
    ),
)


def whatif_options(command: Command) -> Command:
    """Give *command* the flags that say what is supposed."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and about which cluster."""

    files: Sequence[str]
    live: bool
    where: Whereabouts
    supposed: Supposed
    now: float | None
    reading: Reading


@dataclass(slots=True)
class Answered:
    """The cluster as supposed, and what changes by it where something is supposed."""

    found: Objects
    after: PlannedMoment
    policy: Policy
    #: None where nothing is supposed.
    differing: list[Differing] | None = None
    remarks: list[str] = field(default_factory=list)

    def written(self) -> dict[str, Any]:
        """Give what a document has of it."""
        return {
            "asked": asked_for(self.after.snapshot),
            "differences": [each._asdict() for each in self.differing or ()],
        }

    def print(self, page: Callable[[Snapshot, Plan], None]) -> None:
        """Print what changes, if anything was supposed, and then the plan as *page* does."""
        if self.differing is not None:
            print_compared(self.after, self.differing, self.policy)
        page(self.after.snapshot, self.after.plan)


def answered(question: Question, policy: Policy) -> Answered:
    """Plan once, or twice where something is supposed."""
    if not question.files and not question.live:
        raise BadInput("plan needs -f FILE with saved objects, or --live for a running extender")
    named = {"--kubeconfig": question.where.kubeconfig, "--context": question.where.context}
    for flag in (flag for flag, said in named.items() if said and not question.live):
        raise BadInput(
            f"{flag} names a cluster, and only --live asks one: add that or leave it out"
        )
    now, reading = question.now, question.reading
    remarks, new = list[str](), list[Thing]()
    if question.live:
        now = time.time() if now is None else now
        there, said = _live(question.where)
        files = [*objects.written_in(question.files)]
        brought = submitted(
            files,
            there,
            namespace=in_use(question.where) if files else "",
            now=now,
            schedulers=reading.schedulers,
        )
        new, remarks = brought.things, brought.remarks
    else:
        there, said = [*objects.written_in(question.files)], None
    told = weighed(there, new, question.supposed, reading, policy, now)
    if said is not None:
        remarks += _doubts(said, told.before.plan)
    return Answered(told.found, told.after, policy, told.differing, remarks)


def _live(where: Whereabouts) -> tuple[list[Thing], dict[str, Any]]:
    """Give what a running extender sees, and what it plans for it."""
    with reached(where) as address:
        listed, said = answers.snapshot(address), answers.plan(address)
    return [*told_by(listed, str(address))], said


def _doubts(said: dict[str, Any], plan: Plan) -> Iterator[str]:
    """Say where the extender itself decides otherwise: its policy or its settings are others."""
    ours = {str(key): each.standing.value for key, each in plan.verdicts.items()}
    theirs = {f"{each['namespace']}/{each['name']}": each["verdict"] for each in said["gangs"]}
    other = sorted(key for key in ours if key in theirs and ours[key] != theirs[key])
    if other:
        first = other[0]
        yield (
            f"the extender itself decides otherwise about {len(other)} of the gangs ({first} is"
            f" {theirs[first]} there and {ours[first]} here); if it has a policy file or"
            " flags of its own, give them here too (--config)"
        )
