"""No check is one that cannot fail: every mend's story passes with it and fails without."""

from __future__ import annotations

import pytest

from .mends import MENDS, Mend, is_noticed

every_mend = pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.without)


@every_mend
def test_the_story_of_a_mend_fails_when_the_mend_is_taken_out(mend: Mend) -> None:
    assert is_noticed(mend)


@every_mend
def test_the_story_of_a_mend_passes_once_the_mend_is_put_back(mend: Mend) -> None:
    with mend.taken_out():
        pass

    mend.tell()
