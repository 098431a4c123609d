"""Who is below whom, whatever is written."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.queue_tree import DEEPEST, is_too_deep, kinship

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
    kin = kinship({name: Queue(name=name, parent=above) for name, above in parents.items()})

    assert kin.above == {"a": "b", "b": "c", "below": "a"}
    assert {*kin.circles} == {"a", "b", "c", "own"}
    assert kin.circles["own"] == ("own",)


def test_who_is_too_far_down_hangs_beside_the_last_who_may_be() -> None:
    kin = kinship(chain(800))

    assert max(len(line(name, kin.hung)) for name in kin.level) == DEEPEST
    assert line("q799", kin.hung)[1] == f"q{DEEPEST - 2}"
    assert kin.level["q799"] == 800


def test_a_queue_alone_is_judged_as_in_its_family() -> None:
    queues = chain(DEEPEST + 2)

    deep = [name for name, each in queues.items() if is_too_deep(each, queues.get)]

    assert deep == [f"q{DEEPEST}", f"q{DEEPEST + 1}"]
    assert deep == [name for name, level in kinship(queues).level.items() if level > DEEPEST]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "", "nobody"])))
def test_everybody_has_a_line_that_ends_and_climbs_as_it_is_written(
    parents: dict[str, str],
) -> None:
    queues = {name: Queue(name=name, parent=parents[name]) for name in sorted(parents)}
    kin = kinship(queues)

    assert {*kin.level} == {*queues}
    seen: set[str] = set()
    for name, level in kin.level.items():
        assert len(line(name, kin.above)) == level
        above = kin.above.get(name)
        assert above is None or above in seen, "parents come first"
        seen.add(name)
        written = queues[name].parent or (ROOT_QUEUE if name != ROOT_QUEUE else "")
        is_open = name in kin.circles and name == max(kin.circles[name])
        assert above == (written if written in queues and not is_open else None)
