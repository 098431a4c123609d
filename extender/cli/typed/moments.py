"""Moments as a flag: written as we print them, in UTC where nothing else is said."""

from __future__ import annotations

from datetime import UTC, datetime

from extender.errors import BadInput


def moment(text: str, flag: str) -> float:
    """Give the seconds since the epoch, whatever the time zone of this machine is."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{flag}: {text!r} is not a time; write 2026-01-31T12:00:00Z") from error
