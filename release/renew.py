"""Looks up what pinned tags mean today, and writes their digests anew: `python -m release.renew`.

The tag of a base is moved whenever the base is built again with the mends of its distribution, so
new digests are usual there, and go through a review like any change. The tag of an action never
moves by right: if one did, that is said and nothing is written. Needs Docker, git and a network.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from release.pins import IMAGE, ROOT, Mention, mentions, troubles

FORGE = "https://github.com"
#: Those that our image is built for; a digest of one alone would be no good for the other.
PLATFORMS = {"linux/amd64", "linux/arm64"}
FINE, MOVED, COULD_NOT_LOOK = 0, 1, 2


class NotLookedUp(Exception):
    """Nobody could be asked, or the answer was no answer."""


class Moved(Exception):
    """What was asked for is not what it was, or not what we need."""


def digest_of(name: str) -> str:
    """Ask the registry what a tag means; the digest is made here, from what it answers."""
    raw = _answer("docker", "buildx", "imagetools", "inspect", "--raw", name)
    try:
        parts = json.loads(raw)["manifests"]
        offered = {f"{each['platform']['os']}/{each['platform']['architecture']}" for each in parts}
    except (ValueError, KeyError, TypeError):
        raise Moved(f"{name} is an image for one platform") from None
    if missing := PLATFORMS - offered:
        raise Moved(f"{name} is not there for {', '.join(sorted(missing))}")
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def commit_of(action: str, release: str) -> str:
    """Ask the forge for the commit of a release of an action."""
    owner, repository = action.split("/")[:2]
    tag = f"refs/tags/{release}"
    told = _answer("git", "ls-remote", f"{FORGE}/{owner}/{repository}", tag, f"{tag}^{{}}").decode()
    commits = {name: commit for commit, name in map(str.split, told.splitlines())}
    # A tag with a message is an object of its own; the commit is behind it.
    commit = commits.get(f"{tag}^{{}}", commits.get(tag))
    if commit is None:
        raise Moved(f"{action} has no tag {release} any more")
    return commit


def _answer(*command: str) -> bytes:
    try:
        # A forge asks for a password where a repository is gone; nobody is there to give one.
        ran = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        raise NotLookedUp(f"{command[0]}: {why}") from None
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        raise NotLookedUp(f"{' '.join(command)}: {said[-1]}")
    return ran.stdout


def renewed(each: Mention) -> str:
    """Give *each* as it should be written now."""
    name, _, pin = each.what.partition("@")
    if IMAGE.fullmatch(each.what):
        return f"{name}@{digest_of(name)}"
    commit, _, release = pin.partition(" # ")
    if (now := commit_of(name, release)) != commit:
        raise Moved(f"{name} {release} is {now} now and was {commit}: somebody moved the tag")
    return each.what


def renew(root: Path, found: Iterable[Mention]) -> int:
    """Write all that changed, say it, and say what could not be looked up."""
    outcome = FINE
    asked: dict[str, str] = {}
    for each in found:
        if each.what in asked:
            continue
        asked[each.what] = each.what
        try:
            asked[each.what] = renewed(each)
        except Moved as why:
            outcome = outcome or MOVED
            sys.stdout.write(f"{why}\n")
        except NotLookedUp as why:
            outcome = COULD_NOT_LOOK
            sys.stdout.write(f"could not look up {each.name}: {why}\n")
    for path in sorted({each.path for each in found}):
        text = (root / path).read_text()
        for old, new in asked.items():
            text = text.replace(old.partition("@")[2], new.partition("@")[2])
        (root / path).write_text(text)
    for old, new in asked.items():
        if old != new:
            sys.stdout.write(f"{old} is {new.partition('@')[2]} now; written\n")
    if outcome == FINE:
        sys.stdout.write(f"pins: {len(asked)} looked up\n")
    return outcome


def main(root: Path = ROOT) -> int:
    """0 if all were looked up, 1 if one is not what it was, 2 if one could not be looked up."""
    found = mentions(root)
    if said := troubles(found):
        sys.stdout.write("\n".join([*said, "pin these first, with any digest"]) + "\n")
        return MOVED
    return renew(root, found)


if __name__ == "__main__":
    sys.exit(main())
