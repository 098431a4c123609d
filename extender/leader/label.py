"""The label that leads a Service to the leader: on our pod while we lead, and on no other.

A dead leader cannot take it off itself, and anybody may put it on by hand, so whoever leads looks
again and again who carries it. Nothing is written but in the term in which we looked.
"""

from __future__ import annotations

import logging
import threading

from extender.durations import Backoff
from extender.errors import ApiError, NotFound, NotLeader
from extender.logs import event
from extender.metrics import Metrics
from extender.ports import Fencing, LabelledPod, LeaderLabels

log = logging.getLogger(__name__)
#: How often the leader looks who carries it.
LOOK_S = 5.0
#: After a failure; after a conflict, somebody just wrote to that pod.
_AGAIN = Backoff(0.2, LOOK_S)
#: How long an orderly end waits until it is off. Whoever leads next takes it off as well.
LAST_S = 1.0


class LeaderLabel:
    """Keeps the label where it belongs, in a thread of its own."""

    def __init__(
        self, signs: LeaderLabels, mandate: Fencing, metrics: Metrics, *, last_s: float = LAST_S
    ) -> None:
        self._signs = signs
        self._last_s = last_s
        self._mandate = mandate
        self._metrics = metrics
        self._failures = 0
        self._awake = threading.Event()
        self._is_retiring = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="signpost", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def begun(self) -> None:
        """Hear that we lead; from any thread."""
        self._awake.set()

    def retire(self) -> None:
        """Take it off our pod as soon as possible, and never put it on again."""
        self._is_retiring = True
        self._awake.set()

    def wait_until_retired(self) -> None:
        """Wait until it is off, but not for long."""
        self.retire()
        if self._thread.ident is not None:
            self._is_over.wait(self._last_s)

    def step(self) -> float:
        """Do what is due and give the seconds until the next step."""
        number = self._mandate.current()
        if not number:
            # Whoever leads looks after it; while nobody does, it leads nobody astray.
            self._failures = 0
            if self._is_retiring:
                self._is_over.set()
            return LOOK_S
        try:
            if self._is_retiring:
                self._signs.withdraw(number)
                self._is_over.set()
            else:
                self._look(number)
        except NotLeader:
            return 0.0
        except ApiError as error:
            return self._stumble(error)
        self._failures = 0
        return LOOK_S

    def _look(self, number: int) -> None:
        marks = self._signs.read()
        # Ours first: a Service with one that answers and one that does not is better than none.
        if not marks.is_ours:
            self._signs.put_on(number)
            event(log, logging.INFO, "leader label put on")
        for mark in marks.others:
            self._take_off(mark, number)

    def _take_off(self, mark: LabelledPod, number: int) -> None:
        try:
            self._signs.take_off(mark, number)
        except NotFound:
            return
        event(log, logging.INFO, "leader label taken off", pod=mark.pod)

    def _stumble(self, error: ApiError) -> float:
        self._failures += 1
        if error.status != 409:
            self._metrics.leader_label_failures.inc()
            if self._failures == 1:
                why = "a Service may not find the leader, because its label could not be written"
                event(log, logging.WARNING, why, why=str(error))
        return _AGAIN.delay_s(self._failures)

    def _run(self) -> None:
        while not self._is_over.is_set():
            # Before we look: what we hear of while we do may have come too late for it.
            self._awake.clear()
            try:
                pause_s = self.step()
            except Exception:
                # One bad look must not be the last.
                log.exception("leader label: step failed")
                pause_s = LOOK_S
            if not self._is_over.is_set():
                self._awake.wait(pause_s)
