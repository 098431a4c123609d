"""Shares: what queues get, compared with exact arithmetic and the textbook."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, strategies as st

from extender.model.gang import GangKey
from extender.model.resources import CPU
from extender.planner.planner import make_plan
from extender.planner.plugins.proportion import Bounds, divide
from tests.builders import after, gang, node, queue, snapshot
from tests.strategies import bounds

BOUNDS = st.lists(
    st.tuples(st.integers(1, 20), st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=6
).map(
    lambda rows: [
        Bounds(f"q{number}", weight, min(floor, ceiling), ceiling)
        for number, (weight, floor, ceiling) in enumerate(rows)
    ]
)


def exactly(capacity: int, queues: list[Bounds]) -> dict[str, Fraction]:
    """Find the level by bisection over its break points, in exact fractions."""

    def taken(level: Fraction) -> dict[str, Fraction]:
        return {
            each.name: min(Fraction(each.ceiling), max(Fraction(each.floor), each.weight * level))
            for each in queues
        }

    points = sorted(
        {Fraction(edge, each.weight) for each in queues for edge in (each.floor, each.ceiling)}
    )
    below = Fraction(0)
    for point in points:
        if sum(taken(point).values()) >= capacity:
            break
        below = point
    else:
        return taken(below)
    moving = sum(each.weight for each in queues if each.floor <= each.weight * below < each.ceiling)
    rest = capacity - sum(taken(below).values())
    return taken(below + Fraction(rest) / moving) if moving and rest > 0 else taken(below)


@given(st.integers(0, 1000), BOUNDS)
def test_the_division_is_the_exact_one_to_within_a_unit(
    capacity: int, queues: list[Bounds]
) -> None:
    exact = exactly(capacity, queues)
    given_out = divide(capacity, queues)

    for each in queues:
        assert abs(given_out[each.name] - exact[each.name]) <= 1


@given(st.integers(0, 1000), BOUNDS)
def test_no_capacity_is_unused_while_a_queue_still_wants_more(
    capacity: int, queues: list[Bounds]
) -> None:
    given_out = divide(capacity, queues)
    floors = sum(each.floor for each in queues)
    wanted = sum(each.ceiling for each in queues)

    assert sum(given_out.values()) == max(floors, min(capacity, wanted))
    assert all(each.floor <= given_out[each.name] <= each.ceiling for each in queues)


@given(st.integers(0, 1000), BOUNDS)
def test_splitting_a_queue_in_two_halves_changes_nothing_for_the_others(
    capacity: int, queues: list[Bounds]
) -> None:
    doubled = [Bounds(c.name, c.weight * 2, c.floor * 2, c.ceiling * 2) for c in queues]
    first, *others = doubled
    halves = [
        Bounds(f"{first.name}-{half}", first.weight // 2, first.floor // 2, first.ceiling // 2)
        for half in "ab"
    ]
    whole, split = divide(capacity * 2, doubled), divide(capacity * 2, [*halves, *others])

    assert all(abs(whole[each.name] - split[each.name]) <= 2 for each in others)


def test_the_textbook_example_of_dominant_resource_fairness() -> None:
    """9 cpus, 18 GB; tasks of 1 cpu and 4 GB, and of 3 cpus and 1 GB: three and two of them."""
    state = snapshot(
        [node("n1", cpu=9, memory=18)],
        [
            gang("a/memory", 9, min_member=0, cpu=1, memory=4),
            gang("b/cpu", 9, min_member=0, cpu=3, memory=1),
        ],
    )

    placements = make_plan(state).placements

    assert len(placements[GangKey("a/memory")].placements) == 3
    assert len(placements[GangKey("b/cpu")].placements) == 2


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=5))
def test_the_gang_furthest_below_its_dominant_share_goes_first(
    running: list[tuple[int, int]],
) -> None:
    """Brute force: the one free slot goes to the smallest dominant share, then to the oldest."""
    total_cpu = sum(cpu for cpu, _ in running) + 1
    total_memory = sum(memory for _, memory in running) + 1
    gangs, shares = [], []
    for number, (cpu, memory) in enumerate(running):
        parts = [
            gang(f"a/g{number}-c", cpu, on=["n1"] * cpu, cpu=1),
            gang(f"a/g{number}-m", memory, on=["n1"] * memory, memory=1),
        ]
        pods = [pod for part in parts for pod in part.pods]
        waiting = gang(f"a/g{number}", 1, cpu=1, memory=1, created=number).pods
        gangs.append(gang(f"a/g{number}", min_member=0, pods=[*pods, *waiting], created=number))
        shares.append(max(Fraction(cpu, total_cpu), Fraction(memory, total_memory)))
    state = snapshot([node("n1", cpu=total_cpu, memory=total_memory, pods=1000)], gangs)

    winners = [
        key for key, placement in make_plan(state).placements.items() if placement.placements
    ]

    assert winners == [f"a/g{shares.index(min(shares))}"]


def test_three_queues_under_saturation_settle_at_their_weights() -> None:
    queues = [queue("one", 1), queue("two", 2), queue("three", 3)]
    gangs = [
        gang(f"a/{each.name}-{number}", 2, queue=each.name, cpu=1)
        for each in queues
        for number in range(60)
    ]
    state = snapshot([node(f"n{number}", cpu=12) for number in range(10)], gangs, queues)

    for _ in range(4):
        state = after(state, make_plan(state))
    used = dict.fromkeys(("one", "two", "three"), 0)
    for each in state.gangs.values():
        used[each.queue] += each.allocated.amount(CPU) // 1000

    assert sum(used.values()) == 120
    for name, share in (("one", 20), ("two", 40), ("three", 60)):
        assert abs(used[name] - share) <= 2, used


capacities = st.integers(0, 500)


@given(capacities, bounds(), st.randoms(use_true_random=False))
def test_the_order_of_the_queues_does_not_matter(capacity, wanted, chance) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(wanted)
    chance.shuffle(shuffled)

    assert divide(capacity, shuffled) == divide(capacity, wanted)


def test_what_one_cannot_use_is_split_by_weight_among_the_others() -> None:
    wanted = [Bounds("small", 1, 0, 10), Bounds("one", 1, 0, 100), Bounds("two", 2, 0, 100)]

    assert divide(100, wanted) == {"small": 10, "one": 30, "two": 60}


def test_a_floor_is_kept_even_if_others_get_less_for_it() -> None:
    wanted = [Bounds("guaranteed", 1, 60, 100), Bounds("one", 1, 0, 100), Bounds("two", 1, 0, 100)]

    assert divide(100, wanted) == {"guaranteed": 60, "one": 20, "two": 20}


def test_units_that_do_not_divide_go_to_the_largest_remainder_then_by_name() -> None:
    assert divide(10, [Bounds(name, 1, 0, 10) for name in "abc"]) == {"a": 4, "b": 3, "c": 3}


def test_a_queue_without_weight_gets_its_floor_and_no_more() -> None:
    assert divide(100, [Bounds("zero", 0, 5, 50), Bounds("one", 1, 0, 50)]) == {
        "zero": 5,
        "one": 50,
    }
