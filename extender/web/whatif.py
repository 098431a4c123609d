"""The what-if page: a form whose fields live in the address, and the result."""

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

#: Queues in the list of suggestions; any other name may be typed.
_MAX_SUGGESTED = 200
_MAX_LENGTH = 2048


class WhatIf:
    """Reads the form and has the result computed."""

    def __init__(
        self, suppose: RunWhatIf, policy: Callable[[], Policy], worker: BackgroundWorker
    ) -> None:
        self._suppose = suppose
        self._policy = policy
        self._worker = worker

    def page(
        self, given: Mapping[str, Sequence[str]], last: CycleResult | None
    ) -> tuple[dict[str, Any], int]:
        """Return the variables of the template, and the HTTP status."""
        variables = {
            "typed": {name: _typed(given.get(name, ())) for name in page.FIELDS},
            "offered": sorted(last.plan.queues)[:_MAX_SUGGESTED] if last is not None else [],
            "most_members": page.MOST_MEMBERS,
            "usual_priority": last.snapshot.usual_priority if last is not None else 0,
        }
        reply = self._reply(given, last)
        return {**variables, "reply": reply}, reply.status if reply is not None else 200

    def _reply(
        self, given: Mapping[str, Sequence[str]], last: CycleResult | None
    ) -> BackgroundReply[WhatIfResult] | None:
        try:
            query = page.read(given)
        except InvalidInput as error:
            return BackgroundReply(422, problem=str(error))
        if query is None or last is None:
            return None
        return self._worker.ask(query, partial(self._suppose, last, self._policy(), query))


def _typed(values: Sequence[str]) -> str:
    """Return what was typed, to show in the form: one line without control characters."""
    return clean(" ".join(" ".join(values)[:_MAX_LENGTH].split()))
