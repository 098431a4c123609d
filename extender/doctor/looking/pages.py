"""What the extender that leads says on its operations port."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from extender.doctor.seen import FindingSeen, Said
from extender.errors import BadInput

_STANDBY = "standby: "


class Page(NamedTuple):
    """An answer of the operations port."""

    status: int
    body: bytes
    #: How far its clock is ahead of ours, as far as that is certain.
    ahead_s: float | None = None


#: Reads a path of the operations port; `BadInput` when nobody answers.
Read = Callable[[str], Page]


class Told(NamedTuple):
    """All that it said."""

    said: Said
    findings: tuple[FindingSeen, ...]
    ahead_s: float | None
    #: Why its findings could not be read; probes are answered to all, and pages perhaps not.
    closed: str = ""


def ask(read: Read, where: str) -> Told:
    """Ask for readiness and findings; `BadInput` when who answers does not lead or is not us."""
    readiness = read("/readyz")
    lines = readiness.body.decode(errors="replace").splitlines()
    if readiness.status not in (200, 503) or not lines:
        raise BadInput(f"what answers at {where} is not an extender")
    if readiness.status == 503 and any(line.startswith(_STANDBY) for line in lines):
        told = next(line for line in lines if line.startswith(_STANDBY))
        raise BadInput(f"{told}; ask there")
    said = Said(where, readiness.status == 200, tuple(line for line in lines if line != "ok"))
    try:
        page = read("/api/v1/findings")
    except BadInput as error:
        return Told(said, (), readiness.ahead_s, str(error))
    return Told(said, _findings(page, where, said), readiness.ahead_s)


def _findings(page: Page, where: str, said: Said) -> tuple[FindingSeen, ...]:
    try:
        document = msgspec.json.decode(page.body)
        if page.status == 503 and isinstance(document, dict):
            if not said.is_ready:
                # Why it cannot tell is what it says of its readiness.
                return ()
            raise BadInput(f"the extender at {where} cannot tell: {document.get('error')}")
        return tuple(msgspec.convert(document, list[FindingSeen]))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadInput(
            f"what answers at {where} knows no findings; is it of this version?"
        ) from error
