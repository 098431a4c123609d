"""Nothing is published that takes an image or an action of somebody else by a tag alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import pins
from tests.image.dockerfile import ours

from .test_versions import made

ROOT = Path(__file__).parents[2]
DIGEST = f"sha256:{'0' * 64}"
COMMIT = "0" * 40
PINNED = f"app:1.2@{DIGEST}"
#: All that is looked at.
LOOKED_AT = ("Dockerfile", "Makefile", ".github", "manifests", "pyproject.toml", "release")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what a release is made from, to spoil."""
    for name in LOOKED_AT:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def refused(tree: Path) -> str:
    """What the step of a release says that nothing passes unpinned; empty where it is content."""
    ran = subprocess.run(
        ["make", "pinned", f"PYTHON={sys.executable} -I -S -c 'import sys; sys.path[:0] = [\"\"]; "
         "import runpy; runpy.run_module(sys.argv[2], run_name=\"__main__\")'"],
        cwd=tree, capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.stdout if ran.returncode else ""


def test_all_that_a_release_takes_from_others_is_pinned() -> None:
    found = pins.mentions(ROOT)

    assert pins.troubles(found) == []
    names = {each.name for each in found}
    assert {"python:3.13.15-slim-trixie", "registry.k8s.io/kube-scheduler:v1.36.4"} <= names


def test_the_step_of_the_release_needs_nothing_that_is_installed(tree: Path) -> None:
    # As on the machine of a release: no packages, nothing of this environment.
    assert refused(tree) == ""


@pytest.mark.parametrize("target", ["image-push", "chart-push", "publish"])
def test_whatever_publishes_looks_first(target: str) -> None:
    steps = made(target, f"TAG=v{'0.0.0'}")
    publishes = re.search(r"buildx build|helm push|gh release create", steps)

    assert publishes is not None
    assert 0 <= steps.index("-m release.pins") < publishes.start()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("Dockerfile", r"(?<=slim-trixie)@\S+", ""),
        ("Dockerfile", r"python:3\S+", "python:latest"),
        ("Dockerfile", r"@sha256:[0-9a-f]{64}", "@sha256:7c61056e"),
        ("Dockerfile", r"FROM base$", "FROM debian:trixie-slim"),
        ("Dockerfile", r"--from=build ", "--from=busybox:1.36 "),
        ("Makefile", r",generator=\S+", ""),
        ("Makefile", r"--attest type=sbom,generator=\S+", "--sbom=true"),
        (".github/workflows/release.yml", r"(?<=login-action)@\w+ # v[\d.]+", "@v4"),
        (".github/workflows/release.yml", r"(?<=login-action)@\w+ # v[\d.]+", "@main"),
        (".github/workflows/release.yml", r"(?<=login-action@)[0-9a-f]{40}", "4907a6d"),
        (".github/workflows/release.yml", r"driver-opts: .*", "install: true"),
        (".github/workflows/release.yml", r"image: tonistiigi.*", "cache-image: false"),
        (".github/workflows/checks.yml", r"    steps:", "    container: python:3.13\n    steps:"),
        ("manifests/overlays/second-scheduler/kustomization.yaml", r", digest: [^}]*", ""),
        ("manifests/overlays/second-scheduler/deployment.yaml", r"image: reg.*", "image: busybox"),
        ("manifests/overlays/default-scheduler/deployment.yaml", r"image: gang.*", "image: a:1"),
        ("manifests/chart/values.yaml", r"(?<=tag: v1.36.4)@\S+", ""),
        ("manifests/chart/templates/deployment.yaml", r"image: .*", "image: busybox:1.36"),
    ],
)  # fmt: skip
def test_a_tree_that_takes_anything_by_a_tag_is_not_published(
    tree: Path, path: str, old: str, new: str
) -> None:
    text = (tree / path).read_text()
    spoilt = re.sub(old, new, text, count=1, flags=re.MULTILINE)
    assert spoilt != text
    (tree / path).write_text(spoilt)

    assert re.search(rf"^{re.escape(path)}:\d+: .* is not pinned", refused(tree), re.MULTILINE)


@pytest.mark.parametrize("gone", ["Dockerfile", "Makefile", ".github", "manifests/overlays"])
def test_a_tree_in_which_there_is_nothing_to_look_at_is_not_taken_for_a_good_one(
    tree: Path, gone: str
) -> None:
    (shutil.rmtree if (tree / gone).is_dir() else Path.unlink)(tree / gone)

    with pytest.raises(FileNotFoundError, match="there is no"):
        pins.mentions(tree)


def test_two_places_that_name_one_image_have_the_same_one(tree: Path) -> None:
    values = tree / "manifests" / "chart" / "values.yaml"
    values.write_text(re.sub(r"@sha256:\w{8}", "@sha256:00000000", values.read_text()))

    (said,) = pins.troubles(pins.mentions(tree))

    assert "is another than in manifests/overlays/second-scheduler/kustomization.yaml:" in said


@pytest.mark.parametrize(
    ("read", "text", "named"),
    [
        (pins.in_dockerfile, f"FROM {PINNED} AS a\nFROM a\n", [PINNED]),
        (pins.in_dockerfile, "from app as a\nFROM A\n", ["app"]),
        (pins.in_dockerfile, "FROM --platform=$BUILDPLATFORM app:1\n", ["app:1"]),
        (pins.in_dockerfile, "ARG BASE=app:1\nFROM ${BASE}\n", ["${BASE}"]),
        (pins.in_dockerfile, "FROM \\\n  app:1\nRUN FROM\n", ["app:1"]),
        (pins.in_dockerfile, "# syntax=docker/dockerfile:1\n", ["# syntax=docker/dockerfile:1"]),
        (pins.in_dockerfile, "#escape=`\n", ["#escape=`"]),
        (pins.in_dockerfile, "RUN --mount=type=bind,from=tool:1,target=/x y\n", ["tool:1"]),
        (pins.in_dockerfile, "RUN tar --from=x\n", []),
        (pins.in_dockerfile, "FROM scratch\n", []),
        (pins.in_workflow, f"  - uses: docker://{PINNED}\n", [PINNED]),
        (pins.in_workflow, "    uses: ./.github/workflows/checks.yml\n", []),
        (pins.in_workflow, "  - uses: a/b@v1 # v1.0.0\n", ["a/b@v1 # v1.0.0"]),
        (pins.in_workflow, "  - {name: x, uses: a/b@v1}\n", ["a/b@v1}"]),
        (pins.in_workflow, "  - 'uses' : a/b@v1\n", ["a/b@v1"]),
        (pins.in_workflow, "    # uses: nothing\n", []),
        (pins.in_workflow, "    container:\n      image: app:1\n", ["app:1"]),
        (pins.in_kustomization, "images: [{name: app, newTag: v1}]\n",
         ["images: [{name: app, newTag: v1}]"]),
        (pins.in_kustomization, "images:\n- {name: app, newTag: v1}\n", ["app:v1@"]),
        (pins.in_kustomization, f"images:\n- {{name: x, newName: app, newTag: '1.2', "
         f"digest: \"{DIGEST}\"}}\n", [f"app:'1.2'@{DIGEST}"]),
        (pins.in_values, "image: app:1\n", ["image: app:1:"]),
        (pins.in_values, f"image:\n  repository: app\n  tag: '1'\n  digest: {DIGEST}\nx: 1\n",
         [f"app:'1'@{DIGEST}"]),
        (pins.in_template, "      - image: app\n", ["app"]),
    ],
)  # fmt: skip
def test_images_are_found_however_they_are_written(
    read: Callable[[str], Iterator[tuple[int, str]]], text: str, named: list[str]
) -> None:
    assert [what for _, what in read(text)] == named


@pytest.mark.parametrize(
    ("what", "is_pinned"),
    [
        (PINNED, True),
        (f"registry.example:5000/some/app:v1.2@{DIGEST}", True),
        (f"a/b@{COMMIT} # v1.2.3", True),
        (f"a/b/c@{COMMIT} # v1.2.3", True),
        (f"app@{DIGEST}", False),
        ("app:1.2", False),
        ("app:1.2@", False),
        (f"app:1.2@{DIGEST}0", False),
        (f"${{BASE}}:1@{DIGEST}", False),
        (f"a/b@{COMMIT}", False),
        (f"a/b@{COMMIT} # v1", False),
        (f"a/b@{COMMIT[:-1]} # v1.2.3", False),
        ("a/b@v1.2.3 # v1.2.3", False),
    ],
)
def test_only_a_whole_digest_or_commit_beside_its_release_is_a_pin(
    what: str, is_pinned: bool
) -> None:
    assert pins.Mention("somewhere", 1, what).is_pinned is is_pinned


def test_a_reader_of_yaml_and_docker_finds_no_image_that_was_not_looked_at() -> None:
    """The same once more by those who know the formats: the lines above are read by hand."""
    seen = {each.what for each in pins.mentions(ROOT)}
    stages = ours()
    names = {stage.name for stage in stages}
    used = {stage.base for stage in stages} - names
    for path in ROOT.glob(".github/workflows/*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            assert not {"container", "services"} & set(job)
            used |= {step["uses"] for step in job.get("steps", ()) if "uses" in step}
    for path in ROOT.glob("manifests/overlays/*/kustomization.yaml"):
        used |= set(replaced(yaml.safe_load(path.read_text())))
    scheduler = yaml.safe_load((ROOT / "manifests/chart/values.yaml").read_text())["kubeScheduler"]
    used.add(f"{scheduler['image']['repository']}:{scheduler['image']['tag']}")

    assert len(used) > 7
    assert used <= {each.partition(" ")[0] for each in seen}


def replaced(kustomization: dict[str, Any]) -> Iterator[str]:
    for image in kustomization["images"]:
        if image["name"] != "gang-extender":
            yield f"{image['name']}:{image['newTag']}@{image['digest']}"
