"""The recipe of the image: what it may do, and that nothing of it is left to chance."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .dockerfile import ROOT, Instruction, ours, stages

STAGES = ours()
FINAL = STAGES[-1]
STEPS = [step for stage in STAGES for step in stage.steps]
#: What Docker is given to build from.
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


def from_the_checkout() -> list[str]:
    copies = [step for step in STEPS if step.verb == "COPY" and "from" not in step.flags]
    return [source for step in copies for source in step.words[:-1]]


def is_sent(path: str) -> bool:
    """Whether Docker gets to see *path*: the last line that matches it or a folder above wins."""
    sent = True
    for line in IGNORED:
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            parts = [path, *[str(p) for p in Path(path).parents][:-1], Path(path).name]
            if any(fnmatch.fnmatch(part, pattern) for part in parts):
                sent = line.startswith("!")
    return sent


def test_the_linter_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    ran = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)

    assert (ran.stdout, ran.returncode) == ("", 0), ran.stderr


def test_it_stands_on_one_base_named_to_its_patch_release_and_by_its_digest() -> None:
    outside = [stage.base for stage in STAGES if stage.base not in {s.name for s in STAGES}]

    assert len(outside) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", outside[0])


def test_its_python_is_one_that_the_package_is_said_to_run_on() -> None:
    minor = re.findall(r"python:(3\.\d+)", STAGES[0].base)

    assert f"Python :: {minor[0]}" in (ROOT / "pyproject.toml").read_text()


def test_it_runs_as_a_user_with_a_number_that_is_not_root() -> None:
    # A kubelet that has to see runAsNonRoot kept does not know names.
    assert FINAL.last("USER").body == "10001:10001"


def test_it_starts_without_a_shell() -> None:
    for verb in ("ENTRYPOINT", "CMD"):
        assert FINAL.last(verb).body.startswith("[")


def test_the_last_stage_runs_nothing_and_takes_only_what_was_built() -> None:
    assert FINAL.all("RUN") == []
    assert [step.flags for step in FINAL.all("COPY")] == [{"from": "build"}]


def test_whatever_is_installed_from_an_index_is_held_to_the_hashes_of_a_lock() -> None:
    runs = [step.body for step in STEPS if step.verb == "RUN"]
    installs = [one for body in runs for one in body.split("&&") if " install " in one]

    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or {"--no-index", "--no-deps"} <= set(install.split())


def test_nothing_is_fetched_but_by_pip() -> None:
    assert {step.verb for step in STEPS} <= {
        "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "LABEL", "RUN", "USER", "WORKDIR",
    }  # fmt: skip
    for step in STEPS:
        assert not re.search(r"\b(curl|wget|git|apt-get|uname|TARGETARCH)\b", step.text), step


@pytest.mark.parametrize("source", from_the_checkout())
def test_what_it_copies_exists_and_is_sent_to_docker(source: str) -> None:
    assert (ROOT / source).exists()
    assert is_sent(source)


@pytest.mark.parametrize(
    "path", [".git", ".venv", "tests", "docs", "kubeconfig", "extender/__pycache__"]
)
def test_what_it_does_not_copy_stays_out_of_reach(path: str) -> None:
    assert not is_sent(path)


def test_the_manifests_mount_all_that_is_written_to() -> None:
    assert written_to() == ["/tmp"]  # noqa: S108


def written_to() -> list[str]:
    """Every folder that a container of ours may write to, as the manifests have it."""
    mounts = []
    for path in sorted((ROOT / "manifests" / "overlays").rglob("*.yaml")):
        for thing in yaml.safe_load_all(path.read_text()):
            if thing and thing.get("kind") == "Deployment":
                pod = thing["spec"]["template"]["spec"]
                empty = {v["name"] for v in pod["volumes"] if "emptyDir" in v}
                (ours,) = [c for c in pod["containers"] if c["name"] == "extender"]
                assert ours["securityContext"]["readOnlyRootFilesystem"]
                mounts += [
                    m["mountPath"]
                    for m in ours["volumeMounts"]
                    if m["name"] in empty and not m.get("readOnly")
                ]
    return sorted(set(mounts))


def test_continued_lines_comments_and_flags_are_read_as_docker_reads_them() -> None:
    text = (
        'FROM a AS b\n# why\nRUN --mount=type=cache one \\\n    && two\nFROM b\nCMD ["x", "y z"]\n'
    )
    first, second = stages(text)

    assert first.steps == [Instruction("RUN", "--mount=type=cache one && two")]
    assert first.steps[0].flags == {"mount": "type=cache"}
    assert (first.steps[0].body, second.base) == ("one && two", "b")
    assert second.last("CMD").words == ["x", "y z"]
