"""All exceptions that this package raises on purpose.

ExtenderError
├── InvalidInput            input of a person cannot be read: the message states it and the remedy
│   ├── InvalidQuantity     a resource amount that Kubernetes does not accept either
│   └── InvalidConfiguration  a configuration file, flag or environment variable
├── InvalidHookCall         a hook request that kube-scheduler never sends
├── OtherSchedulersPod      bind for another scheduler's pod that was never filtered here
├── ShuttingDown            no new work is started
├── NotReady                the cache is not synced or a watch is silent: no decisions
├── IllegalTransition       a waiting bind's state does not allow the transition (a bug of ours)
└── ApiError                the API server refused or could not be reached
    ├── NotFound            404: the object does not exist
    ├── Forbidden           403: the message names the missing permission
    ├── NamespaceTerminating  403: the namespace is being deleted
    ├── NoResponse          no answer; whether the request took effect is unknown
    └── NotLeader           not sent: this replica does not lead

A gang that must wait is not an error: it is a `Verdict` with a `Reason`.
"""

from __future__ import annotations

import reprlib


class ExtenderError(Exception):
    """The base class; its message is one sentence for a person."""


class InvalidInput(ExtenderError):
    """Input of a person cannot be read."""


class InvalidQuantity(InvalidInput):
    """*text* is not a Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        # Quote only a part of a text that may have a megabyte.
        quoted = reprlib.repr(text) if len(str(text)) > 200 else repr(text)
        super().__init__(f"{quoted} is not a quantity; write it like 500m, 2, 1.5Gi or 3e6")
        self.text = text


class InvalidConfiguration(InvalidInput):
    """A configuration file, flag or environment variable cannot be used."""


class InvalidHookCall(ExtenderError):
    """A hook was called with a body that kube-scheduler never sends."""


class OtherSchedulersPod(ExtenderError):
    """Bind was called for another scheduler's pod that was never filtered here."""

    def __init__(self) -> None:
        super().__init__("the pod has another schedulerName and was not filtered here")


class ShuttingDown(ExtenderError):
    """No new work is started."""


class NotReady(ExtenderError):
    """The cache is not synced or not fresh; nothing is decided."""


class IllegalTransition(ExtenderError):
    """The state of a waiting bind does not allow the transition."""


class ApiError(ExtenderError):
    """The API server refused; *status* is its HTTP status, 0 when there was none."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotFound(ApiError):
    """The object does not exist (any more)."""


class Forbidden(ApiError):
    """A permission is missing; the message names it and the remedy."""


class NamespaceTerminating(ApiError):
    """The namespace is being deleted: it accepts no new object, and its objects will be deleted."""


class NoResponse(ApiError):
    """No response came; whether the request took effect is unknown."""


class NotLeader(ApiError):
    """The request was not sent, because this replica does not lead (any more)."""
