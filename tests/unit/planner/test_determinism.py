"""Same input, same output, byte for byte, whatever the interpreter's hash seed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from tests import objects
from tests.unit.replay.runs import recorded

ROOT = Path(__file__).parents[3]
SCENARIO = """
span: 10m
nodes: [{name: n, count: 2, has: {cpu: 4}}]
queues: [{name: red, weight: 2}, {name: blue}]
arrivals:
- {queue: red, name: r, count: 6, before: 2m, size: {between: [1, 4]}, each: {cpu: 1}, lasts: 1m}
- {queue: blue, name: b, count: 3, every: 30s, size: 8, each: {cpu: 1}, lasts: 30s}
mishaps: [{at: 1m, lose: n-1}, {at: 5m, restore: n-1}]
"""
_RUN = """
import sys
from click.testing import CliRunner
from extender.cli.main import main

cluster, scenario, recording = sys.argv[1:]
for words in (
    ["plan", "-f", cluster, "-o", "json"],
    ["simulate", "-f", scenario, "--html", "page.html"],
    ["replay", recording],
):
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    print(done.stdout, end=chr(0) if words[0] != "replay" else "")
"""


def crowded(chance: random.Random) -> list[objects.Object]:
    """Many gangs that run, wait, borrow and matter differently."""
    listed = {"gang-extender.io/priority-classes": "p0, p10"}
    things = [
        *(objects.node(f"n{number}", cpu="8", pods=20) for number in range(6)),
        *(objects.queue(f"q{number}", number + 1) for number in range(3)),
        *(objects.priority_class(f"p{value}", value) for value in (0, 10)),
        objects.namespace("a", listed),
    ]
    for number in range(24):
        name, size = f"g{number}", chance.randint(1, 4)
        group = objects.pod_group(
            name,
            min_member=chance.randint(1, size),
            queue=f"q{number % 3}",
            priorityClassName=chance.choice(["p0", "p0", "p10"]),
        )
        homes = [f"n{(number + index) % 6}" if number < 8 else "" for index in range(size)]
        pods = [
            objects.stored_pod(f"{name}-w-{index}", node=home, gang=name, cpu="2")
            for index, home in enumerate(homes)
        ]
        things += [group, *pods]
    return things


def outputs(seed: str, folder: Path, cluster: Path, scenario: Path, recording: Path) -> list[str]:
    """Give what each command prints in a process with that hash seed, and the page it writes."""
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, str(cluster), str(scenario), str(recording)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
    )
    return [*ran.stdout.split("\0"), (folder / "page.html").read_text()]


def test_shuffled_files_and_other_hash_seeds_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    things = crowded(chance)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": things}))
    chance.shuffle(things)
    second.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": things}))
    scenario, recording = tmp_path / "scenario.yaml", tmp_path / "recording"
    scenario.write_text(SCENARIO)
    recorded(recording)

    one = outputs("1", tmp_path / "one", first, scenario, recording)
    another = outputs("4711", tmp_path / "another", second, scenario, recording)

    assert one == another
    planned, _, replayed, page = one
    assert json.loads(planned)["evictions"], "a plan without evictions would prove little"
    assert "no decision differs" in replayed
    assert "<polygon" in page
