"""What docs/security.md says is not told is not told, and what it says is open is open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from extender.cli.saved import objects
from extender.web.dump import dump

ROOT = Path(__file__).parents[1]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, annotations: {note: whisper}}
spec:
  schedulerName: gang-scheduler
  volumes: [{name: v, secret: {secretName: hush}}]
  containers:
  - name: main
    image: registry.example/hidden
    command: [covert]
    env: [{name: TOKEN, value: hunter2}]
    volumeMounts: [{name: v, mountPath: /hush}]
"""


@pytest.mark.parametrize("word", ["whisper", "hush", "hidden", "covert", "TOKEN", "hunter2"])
def test_what_a_pod_runs_is_not_in_the_snapshot(tmp_path: Path, word: str) -> None:
    saved = tmp_path / "pod.yaml"
    saved.write_text(POD)
    told = json.dumps(dump(objects.read([str(saved)], frozenset({"gang-scheduler"})).snapshot()))

    assert '"p"' in told
    assert word not in told


def test_the_role_reads_no_secrets_and_neither_creates_nor_deletes_what_people_write() -> None:
    things = yaml.safe_load_all((ROOT / "manifests" / "base" / "rbac.yaml").read_text())
    rules = [rule for thing in things for rule in thing.get("rules", ())]
    granted = {
        (what, verb) for rule in rules for what in rule["resources"] for verb in rule["verbs"]
    }

    assert ("pods/binding", "create") in granted
    assert not {what for what, _ in granted} & {"secrets", "configmaps", "*"}
    written = {"pods", "podgroups", "queues"}
    assert not {(w, v) for w, v in granted if w in written} & {
        (w, v)
        for w in written
        for v in ("create", "delete", "deletecollection", "update", "patch", "*")
    }
