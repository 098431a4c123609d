"""Everything this package raises on purpose.

ExtenderError
├── BadInput            a person gave us something we cannot read: the message names it and the mend
│   ├── BadQuantity     a resource amount that Kubernetes would not take either
│   └── BadConfiguration  a configuration file, flag or environment variable
├── MalformedCall       a hook was called with a body kube-scheduler never sends
├── NotOurs             a bind of another scheduler's pod about which nobody has asked us
├── ShuttingDown        nothing is begun any more
├── NotReady            too early, or a watch went silent: decide nothing
├── IllegalTransition   a hold was asked for what its state does not allow (our bug)
└── ApiError            the API server refused or could not be reached
    ├── Gone            404: the object is not there
    ├── Forbidden       403, and the API server says which right we lack
    ├── Terminating     403, because the namespace is being deleted
    ├── Unreachable     no answer; whether the request took effect is unknown
    └── OutOfTerm       not sent at all: we do not lead

A gang that must wait is not an error: it is a `Verdict` with a `Reason`.
"""

from __future__ import annotations

import reprlib


class ExtenderError(Exception):
    """The root; its message is one sentence for a person."""


class InvalidInput(ExtenderError):
    """A person gave us something we cannot read."""


class InvalidQuantity(InvalidInput):
    """*text* is no Kubernetes quantity."""

    def __init__(self, text: object) -> None:
        # Whoever wrote a megabyte is not told all of it.
        told = reprlib.repr(text) if len(str(text)) > 200 else repr(text)
        super().__init__(f"{told} is not a quantity; write it like 500m, 2, 1.5Gi or 3e6")
        self.text = text


class InvalidConfiguration(InvalidInput):
    """A configuration file, flag or environment variable cannot be used."""


class InvalidHookCall(ExtenderError):
    """A hook was called with a body kube-scheduler never sends."""


class OtherSchedulersPod(ExtenderError):
    """Another scheduler's pod, of which nobody has asked us where it may go."""

    def __init__(self) -> None:
        super().__init__("the pod is another scheduler's and has not passed filter here")


class ShuttingDown(ExtenderError):
    """Nothing is begun any more."""


class NotReady(ExtenderError):
    """The mirror of the cluster cannot be trusted (yet); nothing is decided."""


class IllegalTransition(ExtenderError):
    """A hold was asked to do what its state does not allow."""


class ApiError(ExtenderError):
    """The API server refused; *status* is its HTTP status, 0 when there was none."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotFound(ApiError):
    """The object is not there (any more)."""


class Forbidden(ApiError):
    """We lack a right; the message names it and the mend."""


class NamespaceTerminating(ApiError):
    """Nothing is made in a namespace that is being deleted; whatever is in it goes anyway."""


class NoResponse(ApiError):
    """No answer came; whether the request took effect is unknown."""


class NotLeader(ApiError):
    """The request was not sent, because we do not lead (any more)."""
