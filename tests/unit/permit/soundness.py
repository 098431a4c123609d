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


def check(machine: StateMachine) -> None:
    """Raise `IllegalTransition` for an inconsistency."""
    table = machine.table
    _demand(len(table.binds) <= table.max_binds, "more holds than the table may have")
    for bind in table.binds.values():
        _check_bind(bind, table)
    for key, attempt in table.attempts.items():
        _demand(attempt.key == key, f"{attempt.key} stands under another name")
        _check_attempt(attempt, table)
    siblings = {uid: key for key, each in table.attempts.items() for uid in each.siblings}
    _demand(siblings == table.siblings, "a sibling of no assembly, or of a wrong one")
    checked = table.attempts.keys() | {*table.alarms.gangs}
    _demand(table.partial_until.keys() <= checked, "a partial gang without a timer")
    waiting = {waiter.id: bind.uid for bind in table.binds.values() for waiter in bind.calls}
    _demand(waiting == table.calls, "a call without a waiting bind, or an unknown call")


def _check_bind(bind: WaitingBind, table: Table) -> None:
    _demand(bool(BIND_MOVES[bind.state]), f"{bind.uid} is over but still on the table")
    if bind.state is BindState.WAITING:
        _demand(len(bind.calls) == 1, f"{bind.uid} waits for no call or for several")
        _demand(table.attempt_of(bind) is not None, f"{bind.uid} waits for no gang")
    else:
        _demand(bind.state is BindState.BINDING, f"{bind.uid} was never parked or sent")


def _check_attempt(attempt: GangAttempt, table: Table) -> None:
    key = attempt.key
    _demand(bool(ATTEMPT_MOVES[attempt.state]), f"{key} is over but still on the table")
    for uid, bind in attempt.binds.items():
        _demand(table.binds.get(uid) is bind, f"{uid} of {key} is not on the table")
    states = {bind.state for bind in attempt.binds.values()}
    if attempt.state in BEFORE_COMMIT:
        _demand(states == {BindState.WAITING}, f"{key} assembles, but not all its binds wait")
    elif attempt.state is AttemptState.COMMITTING:
        _demand(BindState.BINDING in states, f"{key} waits for nothing that was sent")
    else:
        _demand(states <= {BindState.BINDING}, f"{key} was sent, but holds members back")
    sent = sum(bind.state is BindState.BINDING for bind in attempt.binds.values())
    _demand(attempt.under_way == sent, f"{key} counts {attempt.under_way} instead of {sent}")


def _demand(truth: bool, otherwise: str) -> None:
    if not truth:
        raise IllegalTransition(f"the table is inconsistent: {otherwise}")
