"""The lock files: every file by its hash, in step with pyproject.toml, fit for both architectures.

All of it is read from the locks and from what is installed from them; no index is asked.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]
LOCKS = (
    *("requirements.lock", "requirements-dev.lock"),
    *("requirements-build.lock", "requirements-release.lock"),
)
EVERY = pytest.mark.parametrize("name", LOCKS)
SUPPORTED = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))


@dataclass(frozen=True, slots=True)
class Locked:
    """One version of one package of a lock, and where it is the one to be installed."""

    package: str
    version: str
    marker: Marker | None
    hashes: tuple[str, ...]
    #: Who wants it, by the lock's own word.
    wanted_by: frozenset[str]

    def belongs(self, **environment: str) -> bool:
        """Whether it is installed on such a machine; this one, where nothing is said."""
        return self.marker is None or self.marker.evaluate(environment)


def read(name: str) -> list[Locked]:
    """Read a lock as it is written, and trip over whatever is not known here."""
    found = []
    text = (ROOT / name).read_text().replace(" \\\n", " ")
    for line, comments in re.findall(r"^([^#\s].*)\n((?:[ ]+#.*\n)*)", text, re.MULTILINE):
        pinned, *hashes = re.split(r"\s+--hash=", line.rstrip())
        what, _, marker = pinned.partition(" ; ")
        package, version = what.split("==")
        assert package == canonicalize_name(package)
        wanted_by = re.findall(r"#\s+(?:via )?(\S.*)", comments.replace("# via\n", "\n"))
        found.append(
            Locked(
                package,
                version,
                Marker(marker) if marker else None,
                tuple(hashes),
                frozenset(wanted_by),
            )
        )
    return found


def on(name: str, **environment: str) -> dict[str, Locked]:
    """What is installed from a lock on such a machine; no package comes twice."""
    chosen = [pin for pin in read(name) if pin.belongs(**environment)]
    by_name = {pin.package: pin for pin in chosen}
    assert len(by_name) == len(chosen), environment
    return by_name


def machines() -> list[dict[str, str]]:
    """Every one that we promise: our Pythons on Linux, on both architectures."""
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    return [
        {**linux, "python_version": minor, "python_full_version": full, "platform_machine": machine}
        for minor in SUPPORTED
        for full in (f"{minor}.0", f"{minor}.9")
        for machine in ("x86_64", "aarch64")
    ]


def wanted(*groups: str) -> list[Requirement]:
    """What pyproject.toml asks for: to run, or by groups that may include others."""
    asked = []
    for entry in (entry for group in groups for entry in GROUPS[group]):
        if isinstance(entry, str):
            asked.append(Requirement(entry))
        else:
            asked += wanted(entry["include-group"])
    return asked


TO_RUN = [Requirement(entry) for entry in PROJECT["project"]["dependencies"]]
ASKED = {
    "requirements.lock": TO_RUN,
    "requirements-dev.lock": [*TO_RUN, *wanted("dev")],
    "requirements-build.lock": wanted("build"),
    "requirements-release.lock": wanted("release"),
}


@EVERY
def test_every_package_has_a_version_and_hashes_and_the_lock_has_nothing_else(name: str) -> None:
    text = (ROOT / name).read_text()
    locked = read(name)

    assert locked
    for pin in locked:
        assert str(Version(pin.version)) == pin.version
        assert pin.hashes, pin.package
        assert len(set(pin.hashes)) == len(pin.hashes)
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes), pin.package
    assert text.count("--hash=") == sum(len(pin.hashes) for pin in locked)
    # No address, no option, nothing that comes from anywhere but an index.
    assert not re.findall(r"^(?!\s*#)(?:.*://.*|.* @ .*|-.*)$", text, re.MULTILINE)


@EVERY
def test_what_the_project_asks_for_is_there_on_every_machine_at_a_version_that_it_takes(
    name: str,
) -> None:
    assert ASKED[name]
    for machine in machines():
        locked = on(name, **machine)
        for asked in ASKED[name]:
            pin = locked[canonicalize_name(asked.name)]
            assert asked.specifier.contains(pin.version, prereleases=True), asked


@EVERY
def test_what_the_lock_says_the_project_asks_for_is_what_it_asks_for(name: str) -> None:
    by_the_lock = {
        pin.package
        for pin in read(name)
        if any(each.startswith("gang-extender") for each in pin.wanted_by)
    }

    assert by_the_lock == {canonicalize_name(asked.name) for asked in ASKED[name]}


@EVERY
def test_nothing_is_locked_that_nobody_wants(name: str) -> None:
    locked = read(name)
    asked_for = {canonicalize_name(asked.name) for asked in ASKED[name]}

    for pin in locked:
        by = {each for each in pin.wanted_by if not each.startswith(("-c ", "gang-extender"))}
        assert pin.package in asked_for or by, pin.package
        assert by <= {each.package for each in locked}, pin.package


def test_the_locks_agree_wherever_they_name_the_same_package() -> None:
    known = {(pin.package, pin.version): pin.hashes for pin in read("requirements-dev.lock")}
    packages = {package for package, _ in known}

    for name in LOCKS:
        for pin in read(name):
            if pin.package in packages:
                assert known.get((pin.package, pin.version)) == pin.hashes, pin.package


def test_whatever_is_installed_from_the_lock_finds_all_it_needs_in_it() -> None:
    locked = on("requirements.lock")

    for package in locked:
        for line in distribution(package).requires or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                pin = locked[canonicalize_name(need.name)]
                assert need.specifier.contains(pin.version, prereleases=True), (package, line)


def test_what_runs_here_is_what_is_locked() -> None:
    for package, pin in on("requirements-dev.lock").items():
        assert distribution(package).version == pin.version


def test_the_image_can_be_had_for_both_architectures_as_far_as_a_lock_tells() -> None:
    """A wheel for any machine is one for both; of the rest the lock must hold a choice.

    A lock has no names of files. A wheel for one machine alone beside the source would make two
    hashes, and one for each of our Pythons one more than there are.
    """
    locked = on("requirements.lock")
    compiled = {package for package in locked if not is_for_any(package)}

    assert {"numpy", "uvloop", "cryptography"} <= compiled
    for package in compiled:
        assert len(locked[package].hashes) > len(SUPPORTED) + 1, package


def is_for_any(package: str) -> bool:
    """Whether the wheel that is installed would do on every machine."""
    told = distribution(package).read_text("WHEEL") or ""
    tags = [tag for line in re.findall(r"^Tag: (.*)$", told, re.M) for tag in parse_tag(line)]
    assert tags, package
    return any(tag.platform == "any" for tag in tags)
