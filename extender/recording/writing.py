"""A recording as it grows: each pass as what changed since the last one that was written."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from extender import __version__
from extender.errors import BadInput
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.recording import changes
from extender.recording.folder import Folder
from extender.recording.forms import Forms
from extender.recording.layout import (
    BEGINNING,
    MOST_IN_A_FILE,
    MOST_IN_A_PASS,
    parcel,
)

_encode = msgspec.msgpack.Encoder().encode


class Writing:
    """Writes passes into a folder, one after the other; belongs to one thread."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: _File | None = None

    def write(self, snapshot: Snapshot, policy: Policy, plan: Plan, skipped: int = 0) -> None:
        """Write one pass, before which *skipped* others were not."""
        if self._file is not None:
            written = self._file.packed(snapshot, policy, plan, skipped)
            if len(written) <= self._folder.left and self._file.unpacked <= MOST_IN_A_FILE:
                self._folder.write(written)
                return
        self._file = None  # if the next one fails, nobody goes on with this one
        begun = _File()
        beginning = BEGINNING + begun.head()
        written = begun.packed(snapshot, policy, plan, skipped)
        self._folder.begin()
        if len(beginning) + len(written) > self._folder.left:
            raise BadInput(
                f"one pass takes {len(written)} bytes, and a file may have {self._folder.left};"
                " give --record-mib more"
            )
        self._folder.write(beginning + written)
        self._file = begun


class _File:
    """What one file has told so far."""

    def __init__(self) -> None:
        self._forms = Forms()
        self._seen = changes.of_snapshot(self._forms)
        self._decided = changes.of_plan(self._forms)
        self._policy = self._forms.of(Policy)
        self._zlib = zlib.compressobj(6)
        self._last: tuple[Any, Any, Any] = (changes.NONE, changes.NONE, changes.NONE)
        #: Bytes before they were compressed.
        self.unpacked = 0

    def head(self) -> bytes:
        told = {"version": __version__, "fields": self._forms.schema()}
        return self._parcel(_encode(told))

    def packed(self, snapshot: Snapshot, policy: Policy, plan: Plan, skipped: int) -> bytes:
        before, rules, decided = self._last
        told: dict[str, Any] = {
            "seen": _or_nothing(self._seen.between(before, snapshot)),
            "plan": _or_nothing(self._decided.between(decided, plan)),
        }
        if policy is not rules:
            told["policy"] = self._policy.write(policy)
        if skipped:
            told["skipped"] = skipped
        # Whatever speaks of a shape comes after it.
        content = _encode({"shapes": self._forms.shapes.take_new(), **told})
        if len(content) > MOST_IN_A_PASS:
            raise BadInput(f"one pass has {len(content)} bytes, more than is recorded")
        self._last = snapshot, policy, plan
        return self._parcel(content)

    def _parcel(self, content: bytes) -> bytes:
        self.unpacked += len(content)
        return parcel(self._zlib.compress(content) + self._zlib.flush(zlib.Z_SYNC_FLUSH))


def _or_nothing(change: Any) -> Any:
    return {} if change is changes.SAME else change
