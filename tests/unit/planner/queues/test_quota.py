"""Ceilings, those of ancestors, and guarantees: one rule for all three; and the tree of queues."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.queue_tree import MAX_DEPTH, is_too_deep, queue_tree
from extender.model.resources import NOTHING, Resources
from extender.planner.quota import TOP, QueueLimits, QuotaNode, left_of_all, tree


def cpu(amount: int) -> Resources:
    return Resources({"cpu": amount})


def left(quotas: dict[str, QuotaNode], queue: str, asked: int = 1) -> int:
    return quotas[queue].how_many(cpu(asked))[0]


def test_a_queue_takes_up_to_its_ceiling_and_says_which_it_reached() -> None:
    quotas = tree([QueueLimits("q", TOP, ceiling=cpu(4), used=cpu(3))], cpu(10))
    assert left(quotas, "q") == 1

    quotas["q"].take(cpu(1))

    times, problem = quotas["q"].how_many(cpu(1))
    assert times == 0
    assert problem is not None
    assert problem.message == "queue q uses 4m of at most 4m cpu; 1m more would exceed it"


def test_a_queue_without_limits_is_not_limited() -> None:
    quotas = tree([QueueLimits("q", TOP, used=cpu(100))], cpu(10))

    assert left(quotas, "q") > 1_000_000


def test_sibling_queues_share_the_ceiling_of_their_parent() -> None:
    quotas = tree(
        [
            QueueLimits("p", TOP, ceiling=cpu(4)),
            QueueLimits("a", "p", used=cpu(3)),
            QueueLimits("b", "p"),
        ],
        cpu(10),
    )
    assert left(quotas, "b") == 1

    quotas["b"].take(cpu(1))

    assert left(quotas, "a") == 0
    assert left(quotas, "b") == 0


def test_guarantees_below_a_ceiling_are_cut_to_it_in_the_order_of_their_queues() -> None:
    quotas = tree(
        [
            QueueLimits("a", "dept", guarantee=cpu(3)),
            QueueLimits("b", "dept", guarantee=cpu(2)),
            QueueLimits("c", "org", guarantee=cpu(1)),
            QueueLimits("dept", "org"),
            QueueLimits("org", TOP, ceiling=cpu(4)),
        ],
        cpu(20),
    )

    assert [quotas[name].unused_guarantee.amount("cpu") for name in ("c", "a", "b")] == [1, 3, 0]
    assert [left(quotas, name) for name in ("c", "a", "b", "org")] == [1, 3, 0, 0]


def test_the_guarantee_of_a_parent_covers_those_of_its_children_once() -> None:
    limits = [
        QueueLimits("a", "org", guarantee=cpu(2)),
        QueueLimits("b", "org", guarantee=cpu(2)),
        QueueLimits("org", TOP, ceiling=cpu(4), guarantee=cpu(4)),
    ]

    quotas = tree(limits, cpu(20))

    assert [quotas[name].unused_guarantee.amount("cpu") for name in ("a", "b")] == [2, 2]
    assert quotas[TOP].taken == {"cpu": 4}


def test_two_queues_leave_what_is_guaranteed_to_a_third() -> None:
    quotas = tree(
        [QueueLimits("a", TOP), QueueLimits("b", TOP), QueueLimits("c", TOP, guarantee=cpu(4))],
        cpu(10),
    )
    quotas["a"].take(cpu(5))

    assert left(quotas, "b") == 1
    assert left(quotas, "c") == 5, "its own guarantee, and what is left besides"


def test_the_message_says_that_a_guarantee_of_others_would_be_used() -> None:
    quotas = tree(
        [QueueLimits("a", TOP, used=cpu(6)), QueueLimits("c", TOP, guarantee=cpu(4))], cpu(10)
    )

    problem = quotas["a"].how_many(cpu(1))[1]

    assert problem is not None
    assert "guaranteed to others" in problem.message


def test_a_queue_within_its_guarantee_is_never_kept_waiting_by_a_shrunk_cluster() -> None:
    quotas = tree(
        [QueueLimits("a", TOP, used=cpu(9)), QueueLimits("c", TOP, guarantee=cpu(4))], cpu(5)
    )

    assert left(quotas, "a") == 0
    assert left(quotas, "c") == 4


def test_a_guarantee_below_a_guaranteed_parent_is_reserved_once() -> None:
    quotas = tree(
        [
            QueueLimits("p", TOP, guarantee=cpu(4)),
            QueueLimits("c", "p", guarantee=cpu(3)),
            QueueLimits("a", TOP),
        ],
        cpu(10),
    )

    assert left(quotas, "a") == 6
    assert left(quotas, "c") == 10


def test_a_childs_guarantee_is_reserved_against_its_siblings_too() -> None:
    quotas = tree(
        [
            QueueLimits("p", TOP, ceiling=cpu(10)),
            QueueLimits("a", "p"),
            QueueLimits("c", "p", guarantee=cpu(4)),
        ],
        cpu(20),
    )

    assert left(quotas, "a") == 6


def test_a_cycle_of_parents_ends_at_the_top() -> None:
    quotas = tree(
        [QueueLimits("a", "b", ceiling=cpu(2)), QueueLimits("b", "a", ceiling=cpu(1))], cpu(10)
    )

    assert left(quotas, "a") <= 2


AMOUNTS = st.integers(0, 6)
LIMITS = st.lists(
    st.tuples(st.sampled_from(["", "0", "1", "2"]), st.none() | AMOUNTS, AMOUNTS),
    min_size=1,
    max_size=5,
)


@given(LIMITS, st.integers(0, 20), st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3))))
def test_allowed_allocations_exceed_no_ceiling_and_use_no_guarantee_of_others(
    limits: list[tuple[str, int | None, int]], total: int, requests: list[tuple[int, int]]
) -> None:
    rows = [
        QueueLimits(
            str(index),
            parent if parent < str(index) else TOP,
            ceiling=NOTHING if most is None else cpu(most),
            guarantee=cpu(least if most is None else min(least, most)).positive(),
        )
        for index, (parent, most, least) in enumerate(limits)
    ]
    quotas, used = tree(rows, cpu(total)), dict.fromkeys((row.name for row in rows), 0)
    rows = cut(rows)
    # A cluster in which even the guarantees do not fit assures nothing beyond them.
    fits_at_first = need(rows, used, TOP) <= total
    for index, amount in requests:
        name = str(index % len(rows))
        if quotas[name].how_many(cpu(amount))[0]:
            quotas[name].take(cpu(amount))
            used[name] += amount

    guaranteed = any(row.guarantee for row in rows)
    for row in rows:
        if "cpu" in row.ceiling:
            assert need(rows, used, row.name) <= row.ceiling["cpu"]
    if guaranteed and fits_at_first:
        assert need(rows, used, TOP) <= total
    for row in rows:
        quotas[row.name].take(-cpu(used[row.name]))
    assert quotas[TOP].taken.get("cpu", 0) == need(rows, dict.fromkeys(used, 0), TOP)


def ancestors(rows: list[QueueLimits], row: QueueLimits) -> list[QueueLimits]:
    """Return all ancestors of *row*."""
    above = [each for each in rows if each.name == row.parent]
    return [*above, *ancestors(rows, above[0])] if above else []


def cut(rows: list[QueueLimits]) -> list[QueueLimits]:
    """Cut every guarantee to the most that breaks no ceiling above it, top rows first."""
    nothing = dict.fromkeys((row.name for row in rows), 0)
    known = {row.name: row._replace(guarantee=NOTHING) for row in rows}
    for row in sorted(rows, key=lambda row: len(ancestors(rows, row))):
        for least in range(row.guarantee.amount("cpu"), -1, -1):
            known[row.name] = row._replace(guarantee=cpu(least).positive())
            above = ancestors(rows, row)
            tried = list(known.values())
            if all(
                need(tried, nothing, each.name) <= each.ceiling.get("cpu", 99) for each in above
            ):
                break
    return list(known.values())


def need(rows: list[QueueLimits], used: dict[str, int], name: str) -> int:
    """Return what a queue and its children need, computed from the top down."""
    below = sum(need(rows, used, row.name) for row in rows if row.parent == name)
    own = next((row for row in rows if row.name == name), None)
    held = below + (used[name] if own else 0)
    return max(held, own.guarantee.amount("cpu")) if own else held


SOME_CPU = st.one_of(st.just(NOTHING), st.integers(0, 20).map(cpu))


@st.composite
def families(draw: st.DrawFn) -> list[QueueLimits]:
    """Queues below each other or without a parent; a cycle is possible too."""
    names = [f"q{number}" for number in range(draw(st.integers(1, 8)))]
    parent = st.sampled_from([*names, "nobody"])
    return [
        QueueLimits(name, draw(parent), draw(SOME_CPU), draw(SOME_CPU), draw(SOME_CPU))
        for name in names
    ]


@given(families())
def test_left_of_all_queues_at_once_is_what_is_left_of_each(limits: list[QueueLimits]) -> None:
    quotas = tree(limits, cpu(30)).values()

    assert left_of_all(quotas, "cpu") == {each: each.left("cpu") for each in quotas}


NAMES = [*"abcdefg", ROOT_QUEUE]


def chain(length: int) -> dict[str, Queue]:
    """Return queues each of which is below the one before it."""
    return {f"q{n}": Queue(name=f"q{n}", parent=f"q{n - 1}" if n else "") for n in range(length)}


def path(name: str, above: dict[str, str]) -> list[str]:
    found = [name]
    while found[-1] in above:
        found.append(above[found[-1]])
        assert len(found) <= len(above) + 1, "a cycle"
    return found


def test_a_cycle_is_cut_at_its_last_queue_and_known_for_all_queues_in_it() -> None:
    parents = {"a": "b", "b": "c", "c": "a", "below": "a", "own": "own"}
    found = queue_tree({name: Queue(name=name, parent=above) for name, above in parents.items()})

    assert found.parents == {"a": "b", "b": "c", "below": "a"}
    assert {*found.cycles} == {"a", "b", "c", "own"}
    assert found.cycles["own"] == ("own",)


def test_a_queue_that_is_too_deep_is_placed_at_the_maximum_depth() -> None:
    found = queue_tree(chain(800))

    assert max(len(path(name, found.effective_parents)) for name in found.level) == MAX_DEPTH
    assert path("q799", found.effective_parents)[1] == f"q{MAX_DEPTH - 2}"
    assert found.level["q799"] == 800


def test_the_depth_of_one_queue_is_judged_like_that_of_the_whole_tree() -> None:
    queues = chain(MAX_DEPTH + 2)

    deep = [name for name, each in queues.items() if is_too_deep(each, queues.get)]

    assert deep == [f"q{MAX_DEPTH}", f"q{MAX_DEPTH + 1}"]
    assert deep == [name for name, level in queue_tree(queues).level.items() if level > MAX_DEPTH]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "", "nobody"])))
def test_the_parents_of_every_queue_end_and_follow_the_written_ones(
    parents: dict[str, str],
) -> None:
    queues = {name: Queue(name=name, parent=parents[name]) for name in sorted(parents)}
    found = queue_tree(queues)

    assert {*found.level} == {*queues}
    seen: set[str] = set()
    for name, level in found.level.items():
        assert len(path(name, found.parents)) == level
        above = found.parents.get(name)
        assert above is None or above in seen, "parents come first"
        seen.add(name)
        written = queues[name].parent or (ROOT_QUEUE if name != ROOT_QUEUE else "")
        is_open = name in found.cycles and name == max(found.cycles[name])
        assert above == (written if written in queues and not is_open else None)
