"""Compare this tree with an older one: the same inputs, byte for byte the same output.

    git worktree add ../before COMMIT
    python -m tests.move.compare ../before

Every behaviour table of kube-batch and Volcano is planned under our rules and under Volcano's, the
example of a what-if is planned, and every scenario but the longest is simulated. For each of these
clusters the JSON of the API is compared, and the explanation of every gang, as `explain` prints it.
The recorded calls of kube-scheduler are compared by tests/unit/hooks/wire.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.unit.planner.case_objects import cases, objects, policy_file

ROOT = Path(__file__).parents[2]
SCENARIOS = ("backfill", "deadlock", "greedy-queue", "mixed-drf", "node-loss", "starving-giant")
#: Runs in either tree: commands in, exit codes and outputs out. `api FILE POLICY` prints the API.
RUN = """
import io, json, sys
import msgspec
from contextlib import redirect_stdout
from click.testing import CliRunner
from flask import Flask
from extender.cli import explain, saved, schema
from extender.cli.main import main
from extender.cli.output import Terminal
from extender.findings.audit import audit
from extender.forecast.forecaster import Forecaster
from extender.planner.planner import make_plan
from extender.policy_file import PolicyFile
from extender.settings import Settings
from extender.status.history import GangHistory
from extender.web import documents
from extender.web.api import Api
from extender.whatif.compare import Reading

def api(cluster, rules):
    reading, policy = Reading.of(Settings()), PolicyFile(rules).current()
    snapshot = reading.snapshot(reading.read([*saved.read_manifests([cluster])]), None)
    history, app = GangHistory(), Flask("extender")
    history.note(snapshot, make_plan(snapshot, policy))
    app.register_blueprint(Api(
        history,
        lambda: policy,
        lambda: snapshot.now + 90.0,
        findings=lambda: audit(snapshot),
        forecaster=Forecaster(lambda: policy, spent=lambda: 0.0, monotonic=lambda: 0.0),
    ).blueprint())
    gangs = [f"gangs/{key}" for key in snapshot.gangs]
    for path in ("queues", "gangs", "plan", "findings", "snapshot", *gangs, "gangs/not/here"):
        yield path, app.test_client().get(f"/api/v1/{path}").text
    for path in gangs:
        reply = app.test_client().get(f"/api/v1/{path}").data
        with redirect_stdout(io.StringIO()) as printed:
            explanation = msgspec.json.decode(reply, type=documents.Explanation)
            print(json.dumps(schema.document(explanation)))
            explain.print_explanation(explanation, Terminal(), is_wide=True)
        yield f"explain {path}", printed.getvalue()

told = []
for words in json.load(sys.stdin):
    if words[0] == "api":
        told.append([*api(*words[1:])])
    else:
        ran = CliRunner().invoke(main, words, env={"COLUMNS": "120"})
        told.append([ran.exit_code, ran.output])
json.dump(told, sys.stdout)
"""


def commands(folder: Path) -> Iterator[list[str]]:
    """Write the inputs below *folder* and return the commands that read them."""
    for number, case in enumerate(cases()):
        if "nodes" not in case or "actions" not in case or case.get("kind") is not None:
            continue
        cluster = folder / f"{number}.json"
        cluster.write_text(json.dumps(objects(case)))
        for rules in ("", "volcano"):
            policy = folder / f"{number}-{rules or 'ours'}.yaml"
            policy.write_text(yaml.safe_dump(policy_file(case, rules)))
            yield ["plan", "-f", str(cluster), "--config", str(policy), "-o", "json"]
            yield ["api", str(cluster), str(policy)]
    example = str(ROOT / "manifests" / "examples" / "what-if.yaml")
    yield ["plan", "-f", example, "-o", "json"]
    yield ["plan", "-f", example]
    yield ["api", example, ""]
    for name in SCENARIOS:
        yield ["simulate", "-f", name]


def outputs(tree: Path, wanted: list[list[str]]) -> list[list[object]]:
    """Run the commands in *tree*."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )
    return list(json.loads(ran.stdout))


def main() -> int:
    """Compare, and print the first difference of each command."""
    before = Path(sys.argv[1]).resolve()
    different = 0
    with TemporaryDirectory() as folder:
        wanted = list(commands(Path(folder)))
        for words, old, new in zip(
            wanted, outputs(before, wanted), outputs(ROOT, wanted), strict=True
        ):
            if old != new:
                different += 1
                pairs = enumerate(zip(old, new, strict=False))
                at = next((number for number, (was, now) in pairs if was != now), 0)
                print(f"{' '.join(words)}\n- {str(old[at:])[:400]}\n+ {str(new[at:])[:400]}")
    print(f"{len(wanted)} commands compared, {different} differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
