"""What must be true of the table after every event."""

from __future__ import annotations

from extender.errors import IllegalTransition
from extender.permit.machine import Book
from extender.permit.states import (
    ASSEMBLY_MOVES,
    GATHERING,
    HOLD_MOVES,
    Assembly,
    AssemblyState,
    Hold,
    HoldState,
    Table,
)


def check(book: Book) -> None:
    """Raise `IllegalTransition` for what is not as it must always be."""
    table = book._table
    _demand(len(table.holds) <= table.max_holds, "more holds than the table may have")
    for hold in table.holds.values():
        _check_hold(hold, table)
    for key, assembly in table.assemblies.items():
        _demand(assembly.key == key, f"{assembly.key} stands under another name")
        _check_assembly(assembly, table)
    siblings = {uid: key for key, each in table.assemblies.items() for uid in each.siblings}
    _demand(siblings == table.siblings, "a sibling of no assembly, or of a wrong one")
    looked_after = table.assemblies.keys() | {gang for _, gang in table.alarms._heap}
    _demand(table.short_until.keys() <= looked_after, "a gang in part that nobody looks after")
    waiting = {waiter.id: hold.uid for hold in table.holds.values() for waiter in hold.waiters}
    _demand(waiting == table.calls, "a call that waits for nobody, or nobody knows of")


def _check_hold(hold: Hold, table: Table) -> None:
    _demand(bool(HOLD_MOVES[hold.state]), f"{hold.uid} is over but still on the table")
    if hold.state is HoldState.HELD:
        _demand(len(hold.waiters) == 1, f"{hold.uid} is held for no call or for several")
        _demand(table.assembly_of(hold) is not None, f"{hold.uid} is held for no gang")
    else:
        _demand(hold.state is HoldState.COMMITTING, f"{hold.uid} was never parked or sent")


def _check_assembly(assembly: Assembly, table: Table) -> None:
    key = assembly.key
    _demand(bool(ASSEMBLY_MOVES[assembly.state]), f"{key} is over but still on the table")
    for uid, hold in assembly.holds.items():
        _demand(table.holds.get(uid) is hold, f"{uid} of {key} is not on the table")
    states = {hold.state for hold in assembly.holds.values()}
    if assembly.state in GATHERING:
        _demand(states == {HoldState.HELD}, f"{key} gathers, but not only held members")
    elif assembly.state is AssemblyState.COMMITTING:
        _demand(HoldState.COMMITTING in states, f"{key} waits for nothing that was sent")
    else:
        _demand(states <= {HoldState.COMMITTING}, f"{key} was sent, but holds members back")
    sent = sum(hold.state is HoldState.COMMITTING for hold in assembly.holds.values())
    _demand(assembly.under_way == sent, f"{key} counts {assembly.under_way} instead of {sent}")


def _demand(truth: bool, otherwise: str) -> None:
    if not truth:
        raise IllegalTransition(f"the barrier is inconsistent: {otherwise}")
