"""A hundred thousand stories of the permit machine: `python -m tests.nightly.soak.holds [STORIES]`.

Sharded over the processors; every shard is a fresh process, because Hypothesis remembers all it
has tried, and prints its seed when it fails, so that it can be played again alone.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from multiprocessing import get_context

from hypothesis import seed, settings

from tests.nightly.soak import test_progress
from tests.unit.permit import test_filter_trace, test_machine

STORIES = 100_000
SHARD = 2_500
#: Of so many stories one is a whole afternoon of gangs in each other's way (I7).
PER_AFTERNOON = 100
#: And one of ten is about questions only (I10).
PER_QUESTIONING = 10


def play_shard(number: int, stories: int) -> int:
    settings.load_profile("nightly")  # a landing plays the same stories every time
    try:
        test_machine.play(seed(number)(test_machine.PermitMachine), stories)
        seed(number)(test_filter_trace.FilterMachine)
        test_filter_trace.play(stories // PER_QUESTIONING)
        for afternoon in range(stories // PER_AFTERNOON):
            test_progress.GreedyScheduler(number * 1_000_000 + afternoon).run()
    except BaseException:
        print(f"shard {number} fails: python -m tests.nightly.soak.holds {stories} {number}")
        raise
    return stories


def soak(stories: int) -> None:
    started = time.monotonic()
    first = secrets.randbelow(10**6)  # other stories every time
    shards = [
        (first + number, min(SHARD, stories - at))
        for number, at in enumerate(range(0, stories, SHARD))
    ]
    played = 0
    with get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for done in pool.imap_unordered(_play, shards, chunksize=1):
            played += done
            print(f"{played:,} stories, {time.monotonic() - started:.0f} s", flush=True)
    print(f"no order of events broke an invariant in {played:,} stories")


def _play(shard: tuple[int, int]) -> int:
    return play_shard(*shard)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        play_shard(int(sys.argv[2]), int(sys.argv[1]))
    else:
        soak(int(sys.argv[1]) if len(sys.argv) > 1 else STORIES)
