"""The tree of queues, whatever parents are written."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.queue_tree import MAX_DEPTH, is_too_deep, queue_tree

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
