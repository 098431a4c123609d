"""Who is below whom, whatever is written."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.queue_tree import MAX_DEPTH, is_too_deep, queue_tree

NAMES = [*"abcdefg", ROOT_QUEUE]


def chain(length: int) -> dict[str, Queue]:
    """Give queues each of which is below the one before it."""
    return {f"q{n}": Queue(name=f"q{n}", parent=f"q{n - 1}" if n else "") for n in range(length)}


def line(name: str, above: dict[str, str]) -> list[str]:
    found = [name]
    while found[-1] in above:
        found.append(above[found[-1]])
        assert len(found) <= len(above) + 1, "a circle"
    return found


def test_a_circle_is_opened_at_its_last_queue_and_known_to_all_in_it() -> None:
    parents = {"a": "b", "b": "c", "c": "a", "below": "a", "own": "own"}
    kin = queue_tree({name: Queue(name=name, parent=above) for name, above in parents.items()})

    assert kin.parents == {"a": "b", "b": "c", "below": "a"}
    assert {*kin.cycles} == {"a", "b", "c", "own"}
    assert kin.cycles["own"] == ("own",)


def test_who_is_too_far_down_hangs_beside_the_last_who_may_be() -> None:
    kin = queue_tree(chain(800))

    assert max(len(line(name, kin.effective_parents)) for name in kin.level) == MAX_DEPTH
    assert line("q799", kin.effective_parents)[1] == f"q{MAX_DEPTH - 2}"
    assert kin.level["q799"] == 800


def test_a_queue_alone_is_judged_as_in_its_family() -> None:
    queues = chain(MAX_DEPTH + 2)

    deep = [name for name, each in queues.items() if is_too_deep(each, queues.get)]

    assert deep == [f"q{MAX_DEPTH}", f"q{MAX_DEPTH + 1}"]
    assert deep == [name for name, level in queue_tree(queues).level.items() if level > MAX_DEPTH]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "", "nobody"])))
def test_everybody_has_a_line_that_ends_and_climbs_as_it_is_written(
    parents: dict[str, str],
) -> None:
    queues = {name: Queue(name=name, parent=parents[name]) for name in sorted(parents)}
    kin = queue_tree(queues)

    assert {*kin.level} == {*queues}
    seen: set[str] = set()
    for name, level in kin.level.items():
        assert len(line(name, kin.parents)) == level
        above = kin.parents.get(name)
        assert above is None or above in seen, "parents come first"
        seen.add(name)
        written = queues[name].parent or (ROOT_QUEUE if name != ROOT_QUEUE else "")
        is_open = name in kin.cycles and name == max(kin.cycles[name])
        assert above == (written if written in queues and not is_open else None)
