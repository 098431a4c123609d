"""The lock files have hashes, fit pyproject.toml, and install on both architectures.

The tests read the locks and the installed packages; they use no index.
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
    """One version of a package in a lock, and the environments in which it is installed."""

    package: str
    version: str
    marker: Marker | None
    hashes: tuple[str, ...]
    #: The packages that require it, by the comments of the lock.
    required_by: frozenset[str]

    def applies(self, **environment: str) -> bool:
        """Return whether it is installed in *environment*, or else in this one."""
        return self.marker is None or self.marker.evaluate(environment)


def read(name: str) -> list[Locked]:
    """Read a lock; fail on unknown syntax."""
    found = []
    text = (ROOT / name).read_text().replace(" \\\n", " ")
    for line, comments in re.findall(r"^([^#\s].*)\n((?:[ ]+#.*\n)*)", text, re.MULTILINE):
        pinned, *hashes = re.split(r"\s+--hash=", line.rstrip())
        what, _, marker = pinned.partition(" ; ")
        package, version = what.split("==")
        assert package == canonicalize_name(package)
        required_by = re.findall(r"#\s+(?:via )?(\S.*)", comments.replace("# via\n", "\n"))
        found.append(
            Locked(
                package,
                version,
                Marker(marker) if marker else None,
                tuple(hashes),
                frozenset(required_by),
            )
        )
    return found


def on(name: str, **environment: str) -> dict[str, Locked]:
    """Return the packages that a lock installs in *environment*, each once."""
    chosen = [pin for pin in read(name) if pin.applies(**environment)]
    by_name = {pin.package: pin for pin in chosen}
    assert len(by_name) == len(chosen), environment
    return by_name


def environments() -> list[dict[str, str]]:
    """Return the supported environments: each Python on Linux, on both architectures."""
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    return [
        {**linux, "python_version": minor, "python_full_version": full, "platform_machine": machine}
        for minor in SUPPORTED
        for full in (f"{minor}.0", f"{minor}.9")
        for machine in ("x86_64", "aarch64")
    ]


def requirements(*groups: str) -> list[Requirement]:
    """Return the requirements of groups of pyproject.toml, which may include others."""
    found = []
    for entry in (entry for group in groups for entry in GROUPS[group]):
        if isinstance(entry, str):
            found.append(Requirement(entry))
        else:
            found += requirements(entry["include-group"])
    return found


TO_RUN = [Requirement(entry) for entry in PROJECT["project"]["dependencies"]]
REQUIRED = {
    "requirements.lock": TO_RUN,
    "requirements-dev.lock": [*TO_RUN, *requirements("dev")],
    "requirements-build.lock": requirements("build"),
    "requirements-release.lock": requirements("release"),
}


@EVERY
def test_lock_has_only_packages_with_a_version_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    locked = read(name)

    assert locked
    for pin in locked:
        assert str(Version(pin.version)) == pin.version
        assert pin.hashes, pin.package
        assert len(set(pin.hashes)) == len(pin.hashes)
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes), pin.package
    assert text.count("--hash=") == sum(len(pin.hashes) for pin in locked)
    # No URL and no option: everything comes from an index.
    assert not re.findall(r"^(?!\s*#)(?:.*://.*|.* @ .*|-.*)$", text, re.MULTILINE)


@EVERY
def test_lock_has_every_requirement_in_every_environment(name: str) -> None:
    assert REQUIRED[name]
    for environment in environments():
        locked = on(name, **environment)
        for requirement in REQUIRED[name]:
            pin = locked[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin.version, prereleases=True), requirement


@EVERY
def test_lock_has_no_package_that_is_not_required(name: str) -> None:
    locked = read(name)
    required = {canonicalize_name(each.name) for each in REQUIRED[name]}

    by_comments = set()
    for pin in locked:
        by_project = {each for each in pin.required_by if each.startswith("gang-extender")}
        by_comments |= {pin.package} if by_project else set()
        by = {each for each in pin.required_by - by_project if not each.startswith("-c ")}
        assert pin.package in required or by, pin.package
        assert by <= {each.package for each in locked}, pin.package
    assert by_comments == required


def test_locks_have_the_same_version_of_a_package() -> None:
    known = {(pin.package, pin.version): pin.hashes for pin in read("requirements-dev.lock")}
    packages = {package for package, _ in known}

    for name in LOCKS:
        for pin in read(name):
            if pin.package in packages:
                assert known.get((pin.package, pin.version)) == pin.hashes, pin.package


def test_lock_has_the_requirements_of_its_packages() -> None:
    locked = on("requirements.lock")

    for package in locked:
        for line in distribution(package).requires or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                pin = locked[canonicalize_name(need.name)]
                assert need.specifier.contains(pin.version, prereleases=True), (package, line)


def test_installed_packages_have_the_locked_versions() -> None:
    for package, pin in on("requirements-dev.lock").items():
        assert distribution(package).version == pin.version


def test_compiled_packages_have_wheels_for_both_architectures() -> None:
    """A lock has hashes without file names, so the test counts them.

    The source and wheels of one architecture would have at most one hash more than there are
    supported Pythons.
    """
    locked = on("requirements.lock")
    compiled = {package for package in locked if not has_pure_wheel(package)}

    assert {"numpy", "uvloop", "cryptography"} <= compiled
    for package in compiled:
        assert len(locked[package].hashes) > len(SUPPORTED) + 1, package


def has_pure_wheel(package: str) -> bool:
    """Return whether the installed wheel is for every platform."""
    wheel = distribution(package).read_text("WHEEL") or ""
    tags = [tag for line in re.findall(r"^Tag: (.*)$", wheel, re.M) for tag in parse_tag(line)]
    assert tags, package
    return any(tag.platform == "any" for tag in tags)
