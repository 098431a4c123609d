"""Is it still the same object? What the API server says when a uid in a patch does not match."""

from __future__ import annotations

from extender.errors import ApiError


def is_another(error: ApiError) -> bool:
    """Ask whether *error* means that the name belongs to another object by now.

    Custom resources answer 409; pods call the uid an immutable field.
    """
    return error.status == 409 or (error.status == 422 and "metadata.uid" in str(error))
