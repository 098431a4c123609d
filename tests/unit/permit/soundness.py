"""What must be true of the table after every event."""

from __future__ import annotations

from extender.errors import IllegalTransition
from extender.permit.machine import StateMachine
from extender.permit.states import (
    ATTEMPT_MOVES,
    BEFORE_COMMIT,
    BIND_MOVES,
    AttemptState,
    BindState,
    GangAttempt,
    Table,
    WaitingBind,
)


def check(book: StateMachine) -> None:
    """Raise `IllegalTransition` for what is not as it must always be."""
    table = book._table
    _demand(len(table.binds) <= table.max_binds, "more holds than the table may have")
    for hold in table.binds.values():
        _check_hold(hold, table)
    for key, assembly in table.attempts.items():
        _demand(assembly.key == key, f"{assembly.key} stands under another name")
        _check_assembly(assembly, table)
    siblings = {uid: key for key, each in table.attempts.items() for uid in each.siblings}
    _demand(siblings == table.siblings, "a sibling of no assembly, or of a wrong one")
    looked_after = table.attempts.keys() | {gang for _, gang in table.alarms._heap}
    _demand(table.partial_until.keys() <= looked_after, "a gang in part that nobody looks after")
    waiting = {waiter.id: hold.uid for hold in table.binds.values() for waiter in hold.calls}
    _demand(waiting == table.calls, "a call that waits for nobody, or nobody knows of")


def _check_hold(hold: WaitingBind, table: Table) -> None:
    _demand(bool(BIND_MOVES[hold.state]), f"{hold.uid} is over but still on the table")
    if hold.state is BindState.WAITING:
        _demand(len(hold.calls) == 1, f"{hold.uid} is held for no call or for several")
        _demand(table.attempt_of(hold) is not None, f"{hold.uid} is held for no gang")
    else:
        _demand(hold.state is BindState.BINDING, f"{hold.uid} was never parked or sent")


def _check_assembly(assembly: GangAttempt, table: Table) -> None:
    key = assembly.key
    _demand(bool(ATTEMPT_MOVES[assembly.state]), f"{key} is over but still on the table")
    for uid, hold in assembly.binds.items():
        _demand(table.binds.get(uid) is hold, f"{uid} of {key} is not on the table")
    states = {hold.state for hold in assembly.binds.values()}
    if assembly.state in BEFORE_COMMIT:
        _demand(states == {BindState.WAITING}, f"{key} gathers, but not only held members")
    elif assembly.state is AttemptState.COMMITTING:
        _demand(BindState.BINDING in states, f"{key} waits for nothing that was sent")
    else:
        _demand(states <= {BindState.BINDING}, f"{key} was sent, but holds members back")
    sent = sum(hold.state is BindState.BINDING for hold in assembly.binds.values())
    _demand(assembly.under_way == sent, f"{key} counts {assembly.under_way} instead of {sent}")


def _demand(truth: bool, otherwise: str) -> None:
    if not truth:
        raise IllegalTransition(f"the barrier is inconsistent: {otherwise}")
