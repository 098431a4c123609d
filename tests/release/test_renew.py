"""What pinned tags mean today: asked of a registry and a forge that the tests have made up.

`docker` is a script here that answers from files; `git` is the real one, and the forge a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from release import pins
from release.renew import COULD_NOT_LOOK, FINE, MOVED

from .test_pins import tree

__all__ = ["tree"]

BOTH = ("amd64", "arm64")
DOCKER = """#!/bin/sh
test "$1 $2 $3 $4" = "buildx imagetools inspect --raw" || exit 9
cat "{folder}/$(echo "$5" | tr '/:' '__')" 2>/dev/null || {{ echo "$5: no such host" >&2; exit 1; }}
"""


@dataclass(slots=True)
class Outside:
    """A registry and a forge."""

    folder: Path
    tree: Path

    def holds(self, image: str, *architectures: str, built: str = "") -> str:
        """Let the registry have an image under a tag; gives its digest."""
        parts = [{"platform": {"os": "linux", "architecture": a}} for a in architectures]
        raw = json.dumps({"manifests": parts, "built": built} if parts else {"config": {}}).encode()
        (self.folder / re.sub("[/:]", "_", image)).write_bytes(raw)
        return f"sha256:{hashlib.sha256(raw).hexdigest()}"

    def tags(self, action: str, release: str, message: str | None = None) -> str:
        """Let the forge have a release of an action; gives its commit."""
        place = self.folder / "forge" / action
        if not place.exists():
            self._git("init", "--quiet", str(place))
        name = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        self._git("-C", str(place), *name, "commit", "--quiet", "--allow-empty", "-m", release)
        how = ["--annotate", "-m", message] if message else []
        self._git("-C", str(place), *name, "tag", "--force", *how, release)
        return self._git("-C", str(place), "rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        ran = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def ask(self) -> tuple[int, str]:
        """Run it there: with this docker, and with the folder in the place of the forge."""
        environment = {
            **os.environ,
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.tree),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.file://{self.folder}/forge/.insteadOf",
            "GIT_CONFIG_VALUE_0": "https://github.com/",
        }
        ran = subprocess.run(
            [sys.executable, "-m", "release.renew"],
            cwd=self.tree, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.stderr == ""
        return ran.returncode, ran.stdout


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory, tree: Path) -> Outside:
    """All that the tree names is there, and is what it is pinned to."""
    here = Outside(tmp_path_factory.mktemp("outside"), tree)
    docker = here.folder / "docker"
    docker.write_text(DOCKER.format(folder=here.folder))
    docker.chmod(0o755)
    for each in set(pins.mentions(tree)):
        name, _, pin = each.what.partition("@")
        if pin.startswith("sha256:"):
            write(tree, pin, here.holds(name, *BOTH))
        else:
            commit, _, release = pin.partition(" # ")
            if not (here.folder / "forge" / name).exists():
                write(tree, commit, here.tags(name, release))
    return here


def write(tree: Path, old: str, new: str) -> None:
    for path in {each.path for each in pins.mentions(tree)}:
        text = (tree / path).read_text()
        (tree / path).write_text(text.replace(old, new))


def named(tree: Path, name: str) -> set[str]:
    return {each.what for each in pins.mentions(tree) if each.name == name}


SCHEDULER = "registry.k8s.io/kube-scheduler:v1.36.4"


def test_what_is_as_it_was_stays(outside: Outside) -> None:
    before = [each.what for each in pins.mentions(outside.tree)]

    assert outside.ask() == (FINE, f"pins: {len(set(before))} looked up\n")
    assert [each.what for each in pins.mentions(outside.tree)] == before


def test_a_tag_that_was_built_again_is_written_anew_wherever_it_is_named(outside: Outside) -> None:
    digest = outside.holds(SCHEDULER, *BOTH, built="again")

    outcome, said = outside.ask()

    assert outcome == FINE
    assert f"is {digest} now; written" in said
    assert named(outside.tree, SCHEDULER) == {f"{SCHEDULER}@{digest}"}
    assert len([e for e in pins.mentions(outside.tree) if e.name == SCHEDULER]) == 2


@pytest.mark.parametrize(
    ("architectures", "said"),
    [(("amd64",), "is not there for linux/arm64"), ((), "is an image for one platform")],
)
def test_an_image_that_one_architecture_lacks_is_not_taken(
    outside: Outside, architectures: tuple[str, ...], said: str
) -> None:
    before = named(outside.tree, SCHEDULER)
    outside.holds(SCHEDULER, *architectures)

    outcome, told = outside.ask()

    assert (outcome, named(outside.tree, SCHEDULER)) == (MOVED, before)
    assert f"{SCHEDULER} {said}" in told


def test_a_moved_tag_of_an_action_is_said_and_not_followed(outside: Outside) -> None:
    (before,) = named(outside.tree, "actions/cache")
    release = before.partition(" # ")[2]
    moved = outside.tags("actions/cache", release)

    outcome, said = outside.ask()

    assert (outcome, named(outside.tree, "actions/cache")) == (MOVED, {before})
    assert f"actions/cache {release} is {moved} now" in said
    assert "somebody moved the tag" in said


def test_the_commit_behind_a_tag_with_a_message_is_what_counts(outside: Outside) -> None:
    (before,) = named(outside.tree, "actions/cache")
    commit, _, release = before.partition("@")[2].partition(" # ")
    write(outside.tree, commit, outside.tags("actions/cache", release, message="signed"))

    assert outside.ask()[0] == FINE


def test_a_tag_that_is_gone_is_said(outside: Outside) -> None:
    shutil.rmtree(outside.folder / "forge" / "actions" / "cache")
    outside.tags("actions/cache", "v0.0.1")

    outcome, said = outside.ask()

    assert outcome == MOVED
    assert "actions/cache has no tag v" in said


def test_what_could_not_be_looked_up_is_told_apart_from_what_was(outside: Outside) -> None:
    (outside.folder / re.sub("[/:]", "_", SCHEDULER)).unlink()
    before = named(outside.tree, SCHEDULER)

    outcome, said = outside.ask()

    assert outcome == COULD_NOT_LOOK
    assert f"could not look up {SCHEDULER}: docker buildx imagetools inspect --raw" in said
    assert "no such host" in said
    assert "looked up\n" not in said
    assert named(outside.tree, SCHEDULER) == before


def test_nobody_is_asked_for_a_password(outside: Outside) -> None:
    """As forges do where a repository is gone; it would wait for ever."""
    git = outside.folder / "git"
    git.write_text(
        '#!/bin/sh\ntest "$GIT_TERMINAL_PROMPT" = 0 || { echo "Username:" >&2; exit 1; }\n'
        'read -r typed && { echo "typed $typed" >&2; exit 1; }\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    git.chmod(0o755)

    assert outside.ask()[0] == FINE
