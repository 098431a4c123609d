"""docs/dialects.md is a promise: its tables are the code's, and its samples do what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from extender.kube.decode import membership, pods
from extender.model.dialect import MOST_TRUSTED_FIRST
from extender.model.gang import Membership

PAGE = (Path(__file__).parents[3] / "docs" / "dialects.md").read_text(encoding="utf-8")
SAMPLES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def made_from(template: dict[str, Any], **meta: Any) -> Membership:
    """The membership of a pod that a controller makes from *template*."""
    about = {"name": "p", "namespace": "a", **template.get("metadata", {}), **meta}
    pod = {"metadata": about, "spec": template.get("spec", {})}
    return membership.membership_of(pods.pod(json.dumps(pod).encode()))


def test_the_keys_on_the_page_are_those_we_read_in_that_order() -> None:
    table = PAGE[PAGE.index("| key | who writes it |") : PAGE.index("The group is the PodGroup")]

    assert tuple(re.findall(r"^ +\| `([^`]+)`", table, re.MULTILINE)) == membership._GROUP_KEYS
    assert all(key in PAGE for key in membership._SIZE_KEYS)


def test_the_dialects_on_the_page_are_those_we_read_in_that_order() -> None:
    table = PAGE[PAGE.index("| API | PodGroup |") : PAGE.index("If two dialects have")]

    assert re.findall(r"^\| `([^/`]+)/", table, re.MULTILINE) == [
        name for name in MOST_TRUSTED_FIRST if name
    ]


def test_the_sample_of_a_job_makes_the_job_a_gang() -> None:
    job = SAMPLES[0]
    owner = {"kind": job["kind"], "name": job["metadata"]["name"], "uid": "u", "controller": True}
    made = made_from(job["spec"]["template"], ownerReferences=[owner])

    assert (made.key, made.named, made.min_member) == ("a/job:train", True, 8)
    assert job["spec"]["parallelism"] == made.min_member


def test_the_sample_of_a_jobset_makes_one_gang_of_all_its_jobs() -> None:
    jobs = [{"kind": "Job", "name": name, "uid": name, "controller": True} for name in ("x", "y")]
    gangs = [made_from(SAMPLES[1]["template"], ownerReferences=[job]) for job in jobs]

    assert [(made.key, made.min_member) for made in gangs] == [("a/train", 9)] * 2
