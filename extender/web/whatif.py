"""The page that asks: a form whose fields live in the address, and what would be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from extender.errors import InvalidInput
from extender.planner.policy import Policy
from extender.status.history import CycleResult
from extender.text import clean
from extender.web.background import BackgroundReply, BackgroundWorker
from extender.whatif import page
from extender.whatif.page import RunWhatIf, WhatIfResult

#: Queues that are offered; any other may be typed.
_OFFERED = 200
_LONGEST = 2048


class WhatIf:
    """Reads what is asked, and has it worked out."""

    def __init__(
        self, suppose: RunWhatIf, policy: Callable[[], Policy], bench: BackgroundWorker
    ) -> None:
        self._suppose = suppose
        self._policy = policy
        self._bench = bench

    def page(
        self, given: Mapping[str, Sequence[str]], last: CycleResult | None
    ) -> tuple[dict[str, Any], int]:
        """Give what is to be shown, and its status."""
        shown = {
            "typed": {name: _typed(given.get(name, ())) for name in page.FIELDS},
            "offered": sorted(last.plan.queues)[:_OFFERED] if last is not None else [],
            "most_members": page.MOST_MEMBERS,
            "usual_priority": last.snapshot.usual_priority if last is not None else 0,
        }
        reply = self._reply(given, last)
        return {**shown, "reply": reply}, reply.status if reply is not None else 200

    def _reply(
        self, given: Mapping[str, Sequence[str]], last: CycleResult | None
    ) -> BackgroundReply[WhatIfResult] | None:
        try:
            asked = page.read(given)
        except InvalidInput as error:
            return BackgroundReply(422, problem=str(error))
        if asked is None or last is None:
            return None
        return self._bench.ask(asked, partial(self._suppose, last, self._policy(), asked))


def _typed(said: Sequence[str]) -> str:
    """Give what was typed, for the form to hold: its words, and nothing in them that steers."""
    return clean(" ".join(" ".join(said)[:_LONGEST].split()))
