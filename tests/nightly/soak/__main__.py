"""Many random stories: `python -m tests.nightly.soak permit|system [STORIES [SHARD]]`.

`permit` plays the state machine of permit, `system` the whole system in virtual time. Every shard
is a new process, because Hypothesis remembers all its examples. A shard that fails prints the
command that plays it again, alone.
"""

from __future__ import annotations

import argparse
import os
import secrets
import time
from functools import partial
from multiprocessing import get_context

from hypothesis import seed, settings

from tests import strategies  # noqa: F401 - registers the profile
from tests.nightly.soak.test_progress import GreedyScheduler
from tests.system import machine
from tests.unit.permit import test_filter_trace, test_machine

#: The default number of stories, and the stories of a shard.
STORIES = {"permit": 100_000, "system": 5_000}
SHARDS = {"permit": 2_500, "system": 500}
#: One of so many stories of permit is about gangs that block each other (I7).
PER_PROGRESS = 100
#: And one of so many is about filter calls alone (I10).
PER_FILTER = 10


def play_permit(number: int, stories: int) -> None:
    test_machine.play(seed(number)(test_machine.PermitMachine), stories)
    seed(number)(test_filter_trace.FilterMachine)
    test_filter_trace.play(stories // PER_FILTER)
    for story in range(stories // PER_PROGRESS):
        GreedyScheduler(number * 1_000_000 + story).run()


def play_system(number: int, stories: int) -> None:
    machine.play(seed(number)(machine.SystemMachine), stories)


def play_shard(part: str, shard: tuple[int, int]) -> int:
    number, stories = shard
    settings.load_profile("nightly")  # the landing profile plays the same stories every time
    try:
        {"permit": play_permit, "system": play_system}[part](number, stories)
    except BaseException:
        print(f"shard {number} fails: python -m tests.nightly.soak {part} {stories} {number}")
        raise
    return stories


def soak(part: str, stories: int) -> None:
    started, size = time.monotonic(), SHARDS[part]
    first = secrets.randbelow(10**6)  # other stories every time
    shards = [
        (first + number, min(size, stories - at))
        for number, at in enumerate(range(0, stories, size))
    ]
    played = 0
    with get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for done in pool.imap_unordered(partial(play_shard, part), shards, chunksize=1):
            played += done
            print(f"{played:,} stories, {time.monotonic() - started:.0f} s", flush=True)
    print(f"no story of {played:,} breaks a rule")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.soak", description=__doc__)
    parser.add_argument("part", choices=STORIES)
    parser.add_argument("stories", type=int, nargs="?")
    parser.add_argument("shard", type=int, nargs="?", help="play this shard alone")
    given = parser.parse_args()
    stories = given.stories or STORIES[given.part]
    if given.shard is None:
        soak(given.part, stories)
    else:
        play_shard(given.part, (given.shard, stories))
