"""Thousands of stories of the whole system: `python -m tests.nightly.soak.soak [STORIES]`.

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

from tests import strategies  # noqa: F401 - registers the profile
from tests.system.machine import SystemMachine, play

STORIES = 5_000
SHARD = 500


def play_shard(shard: tuple[int, int]) -> int:
    number, stories = shard
    settings.load_profile("nightly")  # a landing plays the same stories every time
    try:
        play(seed(number)(SystemMachine), stories)
    except BaseException:
        print(f"shard {number} fails: python -m tests.nightly.soak.soak {stories} {number}")
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
        for done in pool.imap_unordered(play_shard, shards, chunksize=1):
            played += done
            print(f"{played:,} stories, {time.monotonic() - started:.0f} s", flush=True)
    print(f"no order of events broke a rule in {played:,} stories")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        play_shard((int(sys.argv[2]), int(sys.argv[1])))
    else:
        soak(int(sys.argv[1]) if len(sys.argv) > 1 else STORIES)
