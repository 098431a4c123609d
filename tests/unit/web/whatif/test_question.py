"""What-if queries: parsed within limits, or refused in one sentence that names the fix."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import parse_qs

import pytest
from hypothesis import given, strategies

from extender.errors import InvalidInput
from extender.whatif import page
from extender.whatif.page import WhatIfGang, WhatIfQuery, read


def asked(query: str) -> WhatIfQuery | None:
    return read(parse_qs(query, keep_blank_values=True))


def test_a_query_without_changes_is_no_question() -> None:
    assert asked("") is None
    assert asked("name=&members=+&with=%0D%0A&unknown=x") is None


def test_a_gang_has_the_given_values_and_otherwise_the_defaults() -> None:
    usual = WhatIfGang("train", "default", "", 1, 1, (), None)
    typed = WhatIfGang(
        *("train", "a", "left", 4, 3),
        each=(("cpu", "500m"), ("memory", "4Gi"), ("nvidia.com/gpu", "2")),
        priority=-5,
    )

    assert asked("name=train") == WhatIfQuery(usual, (), ())
    assert asked(
        "name=train&namespace=a&queue=left&members=4&least=3&cpu=500m&memory=4Gi"
        "&others=nvidia.com/gpu%3D2&priority=-5"
    ) == WhatIfQuery(typed, (), ())


def test_changes_may_be_lines_of_one_field_or_separate_fields() -> None:
    changes = ("queue/a.weight=5", "queue/b.weight=2")

    assert asked("with=queue/a.weight%3D5%0D%0Aqueue/b.weight%3D2&without=node/n7") == WhatIfQuery(
        None, changes, ("node/n7",)
    )
    assert asked("with=queue/a.weight%3D5&with=queue/b.weight%3D2") == WhatIfQuery(
        None, changes, ()
    )


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("members=3", "members needs a gang with a name; add a name, such as train"),
        (
            "name=Tr%C3%A4in",
            "name: 'Träin' is not a valid name; write at most 63 of a-z, 0-9, - and .",
        ),
        ("name=x&namespace=a.b", "namespace: 'a.b' is not a valid namespace; write at most 63 of"),
        ("name=x&members=0", "members: '0' is not a number from 1 to 1000"),
        ("name=x&members=1001", "members: '1001' is not a number from 1 to 1000"),
        ("name=x&members=%D9%A3", "members: '٣' is not a number from 1 to 1000"),
        ("name=x&members=2&least=3", "least: '3' is not a number from 1 to 2"),
        ("name=x&priority=1e9", "priority: '1e9' is not a number from -1000000000 to"),
        ("name=x&cpu=lots", "cpu: 'lots' is not an amount, such as 2 or 64Gi"),
        ("name=x&memory=-1Gi", "memory: '-1Gi' is not an amount, such as 2 or 64Gi"),
        ("name=x&others=gpu", "others: 'gpu' is not an amount; write it like nvidia.com/gpu=1"),
        ("name=x&others=a/b%3Dx", "others: a/b: 'x' is not an amount, such as 2 or 64Gi"),
        (f"name={'x' * 64}", "is not a valid name; write at most 63 of"),
        (f"name=x&queue={'q' * 254}", "queue: the name of a queue has at most 253 characters"),
        (f"with={'x=1+' * 11}", "with: 11 changes are too many; write at most 10"),
        (f"without={'node/x+' * 99}", "without: 99 changes are too many; write at most 10"),
        (f"name=x&others={'a%3D1,' * 9}", "others: 9 are too many; write at most 8"),
        (f"name=x&cpu={'9' * 2000}", "is not an amount, such as 2 or 64Gi"),
        (f"{page.TOO_LONG}=1", "the query is too long for an address; change less"),
    ],
)
def test_an_invalid_query_is_refused_in_one_sentence(query: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(query)

    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 300


@given(strategies.dictionaries(strategies.sampled_from(page.FIELDS), strategies.text()))
def test_any_query_is_parsed_or_refused(typed: dict[str, str]) -> None:
    found = None
    with suppress(InvalidInput):
        found = read({name: [text] for name, text in typed.items()})

    assert found is None or found.gang or found.withs or found.withouts
