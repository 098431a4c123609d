"""The label by which a Service selects the leader: on our pod while we lead, and on no other.

A dead leader cannot remove the label, and a person may set it by hand. So the leader lists the
labelled pods periodically. It writes only in the term in which it listed them.
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
#: How often the leader lists the labelled pods.
CHECK_S = 5.0
#: After a failure; a conflict means that the pod has just been written.
_RETRY = Backoff(0.2, CHECK_S)
#: How long a shutdown waits until the label is removed. The next leader removes it as well.
RETIRE_S = 1.0


class LeaderLabel:
    """Keeps the label on the leader's pod alone, in a thread of its own."""

    def __init__(
        self,
        labels: LeaderLabels,
        fencing: Fencing,
        metrics: Metrics,
        *,
        retire_s: float = RETIRE_S,
    ) -> None:
        self._labels = labels
        self._retire_s = retire_s
        self._fencing = fencing
        self._metrics = metrics
        self._failures = 0
        self._awake = threading.Event()
        self._is_retiring = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-label", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begun(self) -> None:
        """Set the label soon: our term has begun; from any thread."""
        self._awake.set()

    def retire(self) -> None:
        """Remove the label from our pod as soon as possible, and never set it again."""
        self._is_retiring = True
        self._awake.set()

    def wait_until_retired(self) -> None:
        """Wait a short time until the label is removed."""
        self.retire()
        if self._thread.ident is not None:
            self._is_over.wait(self._retire_s)

    def step(self) -> float:
        """Correct the label once and return the seconds until the next step."""
        number = self._fencing.current()
        if not number:
            # The leader corrects the label; without a leader a wrong label does no harm.
            self._failures = 0
            if self._is_retiring:
                self._is_over.set()
            return CHECK_S
        try:
            if self._is_retiring:
                self._labels.withdraw(number)
                self._is_over.set()
            else:
                self._correct(number)
        except NotLeader:
            return 0.0
        except ApiError as error:
            return self._failed(error)
        self._failures = 0
        return CHECK_S

    def _correct(self, number: int) -> None:
        found = self._labels.read()
        # Ours first: a Service with two endpoints of which one answers is better than an empty one.
        if not found.is_ours:
            self._labels.put_on(number)
            event(log, logging.INFO, "leader label set")
        for other in found.others:
            self._remove(other, number)

    def _remove(self, other: LabelledPod, number: int) -> None:
        try:
            self._labels.take_off(other, number)
        except NotFound:
            return
        event(log, logging.INFO, "leader label removed", pod=other.pod)

    def _failed(self, error: ApiError) -> float:
        self._failures += 1
        if error.status != 409:
            self._metrics.leader_label_failures.inc()
            if self._failures == 1:
                why = "a Service may not find the leader, because its label could not be written"
                event(log, logging.WARNING, why, why=str(error))
        return _RETRY.delay_s(self._failures)

    def _run(self) -> None:
        while not self._is_over.is_set():
            # Cleared before the step: an event that is set during the step may need another step.
            self._awake.clear()
            try:
                delay_s = self.step()
            except Exception:
                # An unexpected error must not end the thread.
                log.exception("leader label: step failed")
                delay_s = CHECK_S
            if not self._is_over.is_set():
                self._awake.wait(delay_s)
