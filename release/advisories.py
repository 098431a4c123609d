"""Reads lists of advisories in the format of OSV, and says which versions one is about.

A list is a zip of JSON files, as osv.dev gives one away for every ecosystem, or a folder with JSON
or YAML files, as a checkout of PyPI's own advisory database is.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

import msgspec
import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

#: No advisory is as long; whatever is longer is not unpacked.
LONGEST = 16 << 20
#: A clock may be wrong by so much; a list that is dated further ahead says nothing of its age.
AHEAD = timedelta(days=1)


class Unreadable(Exception):
    """A list that is none: nothing can be said by it."""


class Verdict(Enum):
    """Whether a version is one of those that an advisory is about."""

    YES = "yes"
    NO = "no"
    #: It names the package, but by nothing that can be compared with a version.
    UNDECIDED = "undecided"


class Event(msgspec.Struct, frozen=True):
    """Where trouble begins or ends."""

    introduced: str | None = None
    fixed: str | None = None
    last_affected: str | None = None


class Range(msgspec.Struct, frozen=True):
    """Begins and ends, of versions or of commits."""

    type: str
    events: tuple[Event, ...] = ()


class Package(msgspec.Struct, frozen=True):
    """Who it is about."""

    name: str
    ecosystem: str


class Affected(msgspec.Struct, frozen=True):
    """One package, and which versions of it."""

    package: Package | None = None
    ranges: tuple[Range, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The package's name as locks write it; empty for what is not from PyPI."""
        if self.package is None or self.package.ecosystem != "PyPI":
            return ""
        return canonicalize_name(self.package.name)


class Advisory(msgspec.Struct, frozen=True):
    """What somebody found."""

    id: str
    modified: datetime
    affected: tuple[Affected, ...] = ()
    aliases: tuple[str, ...] = ()
    summary: str = ""
    details: str = ""
    withdrawn: datetime | None = None

    @property
    def names(self) -> frozenset[str]:
        """All that it is called; the same finding has one in every database."""
        return frozenset({self.id, *self.aliases})

    def judges(self, package: str, version: str) -> Verdict:
        """Say whether *version* of *package* is one of those it is about."""
        about = [each for each in self.affected if each.name == package]
        verdicts = {_judge(each, version) for each in about}
        for verdict in (Verdict.YES, Verdict.UNDECIDED):
            if verdict in verdicts:
                return verdict
        return Verdict.NO

    def mended_in(self, package: str) -> list[str]:
        """Give the versions that have the trouble no more."""
        return [
            event.fixed
            for each in self.affected
            if each.name == package
            for one in _of_versions(each)
            for event in one.events
            if event.fixed
        ]


@dataclass(slots=True)
class Advisories:
    """What a list says of some packages, and how much it is."""

    by_package: dict[str, list[Advisory]] = field(default_factory=dict)
    count: int = 0
    newest: datetime | None = None
    #: Files of the list that may be about our packages and are no advisories.
    unreadable: list[str] = field(default_factory=list)


def read(source: Path, packages: Iterable[str], now: datetime) -> Advisories:
    """Read the whole list; keep what is about *packages*."""
    wanted = set(packages)
    found = Advisories()
    # One file that nobody can read must not make the rest worthless, unless it could concern us.
    concerns = re.compile(
        "|".join(re.escape(each).replace("\\-", "[-_.]+") for each in wanted), re.I
    )
    for name, content in _each(source):
        advisory = _decode(name, content) if content is not None else None
        if advisory is None:
            if content is None or concerns.search(content.decode(errors="replace")):
                found.unreadable.append(name)
            continue
        about = {each.name for each in advisory.affected} - {""}
        if not about:
            continue
        found.count += 1
        if advisory.modified <= now + AHEAD:
            found.newest = max(found.newest or advisory.modified, advisory.modified)
        if advisory.withdrawn is None:
            for package in about & wanted:
                found.by_package.setdefault(package, []).append(advisory)
    if not found.count:
        raise Unreadable(f"{source} holds no advisories about packages of PyPI")
    return found


def _each(source: Path) -> Iterator[tuple[str, bytes | None]]:
    """Give every file; without its content where that is too long."""
    try:
        if source.is_dir():
            for path in sorted(source.rglob("*")):
                if path.suffix in (".json", ".yaml", ".yml") and path.is_file():
                    short = path.stat().st_size <= LONGEST
                    yield str(path), path.read_bytes() if short else None
            return
        with zipfile.ZipFile(source) as archive:
            for each in archive.infolist():
                if each.filename.endswith(".json"):
                    short = each.file_size <= LONGEST
                    yield each.filename, archive.read(each) if short else None
    except (OSError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as why:
        raise Unreadable(f"{source} cannot be read: {why}") from None


def _decode(name: str, content: bytes) -> Advisory | None:
    try:
        if name.endswith(".json"):
            advisory = msgspec.json.decode(content, type=Advisory)
        else:
            # Whatever stands there is text: 1.10 is no number here.
            said = yaml.load(content, Loader=yaml.CBaseLoader)  # noqa: S506
            advisory = msgspec.convert(said, Advisory)
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError, RecursionError):
        return None
    if advisory.modified.tzinfo is None:
        return msgspec.structs.replace(advisory, modified=advisory.modified.replace(tzinfo=UTC))
    return advisory


def _judge(affected: Affected, version: str) -> Verdict:
    ours = Version(version)
    listed = [_parsed(each) for each in affected.versions]
    ranges = _of_versions(affected)
    if ours in listed:
        return Verdict.YES
    try:
        if any(_within(ours, each.events) for each in ranges):
            return Verdict.YES
    except InvalidVersion:
        return Verdict.UNDECIDED
    # A list of versions is complete by itself; without one somebody has to have said where it ends.
    return Verdict.NO if affected.versions or ranges else Verdict.UNDECIDED


def _of_versions(affected: Affected) -> list[Range]:
    return [each for each in affected.ranges if each.type in ("ECOSYSTEM", "SEMVER")]


def _parsed(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def _within(ours: Version, events: Iterable[Event]) -> bool:
    """Walk from begin to end: the last event at or below our version decides."""
    steps: list[tuple[Version, bool]] = []
    for event in events:
        if event.introduced is not None:
            # Zero means from the first on, and some of those are before 0.
            began = "0.dev0" if event.introduced == "0" else event.introduced
            steps.append((Version(began), True))
        if event.fixed is not None:
            steps.append((Version(event.fixed), False))
        if event.last_affected is not None and ours > Version(event.last_affected):
            steps.append((Version(event.last_affected), False))
    inside = False
    # At the same version an end comes after a begin: nothing is in a range of no length.
    for at, begins in sorted(steps, key=lambda step: (step[0], not step[1])):
        if ours >= at:
            inside = begins
    return inside


def one_line(advisory: Advisory) -> str:
    """Say what it is about, as shortly as its author did."""
    said = advisory.summary or advisory.details
    return re.sub(r"\s+", " ", said).strip()[:160]
