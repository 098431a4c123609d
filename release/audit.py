"""Looks for known advisories against what is locked: `python -m release.audit`.

Ends with 0 if there is none, with 1 if there is one, and with 2 if it could not look: without a
list, with one that is too old to know of anything new, or with one that it cannot read. Nothing
found is said only where somebody has looked. The list is osv.dev's for PyPI; it is kept, and serves
until it is too old where there is no network.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from extender.text.plain import clean
from release.advisories import Advisories, Advisory, Unreadable, Verdict, one_line, read

ROOT = Path(__file__).parents[1]
CLEAN, FOUND, COULD_NOT_LOOK = 0, 1, 2
SOURCE = "https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"
#: The lists change every day or two; one that did not for so long has been forgotten.
OLDEST = timedelta(days=30)
#: Ten times what it takes today would be somebody else's file.
LARGEST = 1 << 30
#: Who gets what is in them.
LOCKS = {
    "requirements.lock": "runs",
    "requirements-build.lock": "builds",
    "requirements-dev.lock": "tests",
}
ACCEPTED = "accepted-advisories.toml"


@dataclass(frozen=True, slots=True)
class Locked:
    """A version that is installed from a lock, and what it does there."""

    package: str
    version: str
    does: str


@dataclass(frozen=True, slots=True)
class Finding:
    """An advisory about something locked; the same in several databases is one."""

    locked: Locked
    advisory: Advisory
    names: frozenset[str]
    verdict: Verdict

    @property
    def called(self) -> str:
        """All names, the one that everybody knows first."""
        return ", ".join(sorted(self.names, key=lambda name: (not name.startswith("CVE-"), name)))


@dataclass(frozen=True, slots=True)
class Accepted:
    """An advisory that somebody has looked into and that does not concern us, for a while."""

    why: str
    until: date


class BadFile(Exception):
    """One of our own files is not what it should be."""


def locked(root: Path) -> list[Locked]:
    """Read all locks; what runs is told of as such, wherever else it is needed."""
    found: dict[tuple[str, str], Locked] = {}
    for name, does in LOCKS.items():
        for line in (root / name).read_text().splitlines():
            if not line or line[0] in " #":
                continue
            pinned = re.match(r"([a-z0-9-]+)==([^\s;\\]+)", line)
            if pinned is None:
                raise BadFile(f"{name} has a line that is no package: {line}")
            package, version = pinned[1], pinned[2]
            found.setdefault((package, version), Locked(package, version, does))
    return sorted(found.values(), key=lambda each: (each.package, each.version))


def accepted(path: Path) -> dict[str, Accepted]:
    """Read what was accepted: why, and until when."""
    said: dict[str, Any] = tomllib.loads(path.read_text())
    found = {}
    for name, entry in said.items():
        terms = entry if isinstance(entry, dict) else {}
        why, until = terms.get("why"), terms.get("until")
        if not (isinstance(why, str) and why and type(until) is date and len(terms) == 2):
            raise BadFile(f"{path.name}: {name} needs a reason (why) and a day (until), no more")
        found[name] = Accepted(why, until)
    return found


def findings(packages: Iterable[Locked], known: Advisories) -> Iterator[Finding]:
    """Give every advisory that is about a locked version, or may be."""
    for each in packages:
        judged = [
            (advisory, verdict)
            for advisory in known.by_package.get(each.package, ())
            if (verdict := advisory.judges(each.package, each.version)) is not Verdict.NO
        ]
        # What is sure comes first, so that an undecided copy of it adds its name and no doubt.
        judged.sort(key=lambda pair: (pair[1] is Verdict.UNDECIDED, pair[0].id))
        while judged:
            advisory, verdict = judged.pop(0)
            names = advisory.names
            while same := [pair for pair in judged if pair[0].names & names]:
                names = names.union(*(pair[0].names for pair in same))
                judged = [pair for pair in judged if pair not in same]
            yield Finding(each, advisory, names, verdict)


def download(source: str, to: Path) -> None:
    """Bring the list here; whatever was here stays until there is a whole new one."""
    if not source.startswith("https://"):
        raise Unreadable(f"{source} is no https:// address")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        new = Path(folder) / to.name
        with new.open("wb") as file, _opened(source) as answer:
            while block := answer.read(1 << 20):
                file.write(block)
                if file.tell() > LARGEST:
                    raise Unreadable(f"{source} has more than {LARGEST >> 20} MiB")
        # One that was cut off has lost the table at its end.
        if not zipfile.is_zipfile(new):
            raise Unreadable(f"{source} answers with something that is no zip, or not a whole one")
        new.replace(to)


class _StaysSecret(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *words: Any) -> urllib.request.Request | None:
        asked = super().redirect_request(*words)
        if asked is not None and not asked.full_url.startswith("https://"):
            raise Unreadable(f"it leads to {asked.full_url}, which is no https:// address")
        return asked


def _opened(source: str) -> Any:
    return urllib.request.build_opener(_StaysSecret).open(source, timeout=60)


def cache() -> Path:
    """Where the list is kept from one time to the next."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gang-extender" / "advisories.zip"


def the_list(named: Path | None, source: str) -> Path:
    """Choose what to read: what was named, or a new copy, or the last one, and say which."""
    if named is not None:
        return named
    kept = cache()
    try:
        download(source, kept)
    except (OSError, Unreadable) as why:
        if not kept.exists():
            raise Unreadable(
                f"no list: {why}; none is kept in {kept}. Bring one from a machine with a network, "
                f"from {source}, and name it: make audit ADVISORIES=all.zip"
            ) from None
        _say(f"no new list: {why}; the last one is {kept}")
    return kept


def report(found: Iterable[Finding], excused: dict[str, Accepted], today: date) -> set[Verdict]:
    """Say each finding; give the verdicts of those that nobody accepted."""
    open_ones = set()
    used = set()
    for each in found:
        excuse = next((name for name in sorted(each.names) if name in excused), None)
        about = f"{each.locked.package} {each.locked.version} ({each.locked.does}): {each.called}"
        if excuse is not None:
            used.add(excuse)
            if excused[excuse].until >= today:
                _say(f"accepted   {about}: {excused[excuse].why} (until {excused[excuse].until})")
                continue
            _say(f"the acceptance of {excuse} has ended on {excused[excuse].until}")
        mended = ", ".join(each.advisory.mended_in(each.locked.package)) or "nothing yet"
        mark = "FOUND     " if each.verdict is Verdict.YES else "UNDECIDED "
        _say(f"{mark} {about}: {one_line(each.advisory)} Mended in: {mended}")
        open_ones.add(each.verdict)
    for name in sorted(excused.keys() - used):
        _say(f"{name} is accepted in {ACCEPTED} and concerns nothing that is locked any more")
    return open_ones


def doubts(known: Advisories, now: datetime) -> list[str]:
    """Say why nothing found in this list would not mean much."""
    said = []
    if known.newest is None:
        said.append("every entry of the list is of the future: it has no age")
    elif now - known.newest > OLDEST:
        age = (now - known.newest).days
        said.append(f"the newest entry of the list is {age} days old; {OLDEST.days} is the most")
    if known.unreadable:
        some = ", ".join(known.unreadable[:3])
        said.append(f"{len(known.unreadable)} files of the list are no advisories: {some}")
    return said


def audit(root: Path, source: Path, now: datetime) -> int:
    """Compare the locks of *root* with the list in *source*."""
    packages = locked(root)
    excused = accepted(root / "release" / ACCEPTED)
    known = read(source, {each.package for each in packages}, now)
    day = f"of {known.newest:%Y-%m-%d}" if known.newest else "of no day"
    _say(f"{len(packages)} locked versions, {known.count} advisories, the newest {day}: {source}")
    verdicts = report(findings(packages, known), excused, now.date())
    unsure = doubts(known, now)
    for each in unsure:
        _say(f"could not look: {each}")
    if Verdict.YES in verdicts:
        return FOUND
    if unsure or verdicts:
        return COULD_NOT_LOOK
    _say("audit: nothing known against what is locked")
    return CLEAN


def _say(sentence: str) -> None:
    # Summaries are written by strangers.
    sys.stdout.write(f"{clean(sentence)}\n")


def main(words: list[str]) -> int:
    """Look, and end with what came out."""
    parser = argparse.ArgumentParser(prog="python -m release.audit", description=__doc__)
    parser.add_argument("--advisories", type=Path, help="a list: a zip, or a folder of files")
    parser.add_argument("--source", default=SOURCE, help="where to get the list from, by https")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    told = parser.parse_args(words)
    try:
        return audit(told.root, the_list(told.advisories, told.source), datetime.now(UTC))
    except (Unreadable, BadFile, OSError, tomllib.TOMLDecodeError) as why:
        _say(f"could not look: {why}")
        return COULD_NOT_LOOK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
