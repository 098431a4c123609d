"""Finds what a release runs that is not its own and not pinned: `python -m release.pins`.

A tag is moved by whoever owns it; a digest, or the commit of an action, is the thing itself. Looked
at are the Dockerfile, the Makefile, the workflows, the overlays and the chart. The standard library
suffices, so that the job that holds the credentials of a registry installs nothing for it. What is
written in a form that is not known here counts as not pinned.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Built from this tree, and by a release alone.
OURS = "gang-extender"
#: The tag as well: it says to people which release that is, and what to look up anew.
IMAGE = re.compile(r"[a-z0-9][\w.:/-]*:[\w.-]+@sha256:[0-9a-f]{64}")
ACTION = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
#: Who takes an image of its own choice, by a tag that moves, unless it is told another.
CHOOSES = {
    "docker/setup-qemu-action@": (r"^\s*image: ", "tonistiigi/binfmt:latest"),
    "docker/setup-buildx-action@": (r"^\s*driver-opts: image=", "moby/buildkit:buildx-stable-1"),
}
SCANNER = "docker/buildkit-syft-scanner:stable-1"

Named = Iterator[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Mention:
    """An image or an action of somebody else that something of ours runs, and where it says so."""

    path: str
    line: int
    #: `name:tag@digest`, or `owner/action@commit # version`; else whatever stands there.
    what: str

    @property
    def is_pinned(self) -> bool:
        """Whether nobody can put another in its place."""
        return bool(IMAGE.fullmatch(self.what) or ACTION.fullmatch(self.what))

    @property
    def name(self) -> str:
        """What is left without the pin."""
        return self.what.partition("@")[0]


def in_dockerfile(text: str) -> Named:
    """Give every image a build takes something from, but for its own stages."""
    stages = {"scratch"}
    for number, line in _steps(text):
        verb, *words = line.split()
        if verb.startswith("#"):
            yield number, line
        elif verb.upper() == "FROM":
            image, *rest = [word for word in words if not word.startswith("--")] or [""]
            if image.lower() not in stages:
                yield number, image
            stages |= {word.lower() for word in rest[1:]}
        for word in words:
            if not word.startswith("--"):
                break
            taken = re.findall(r"(?<=[-,=])from=([^,]+)", word)
            yield from ((number, each) for each in taken if each.lower() not in stages)


def _steps(text: str) -> Named:
    begun, so_far = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        # Of comments only these two mean something: another frontend, another mark of a line's end.
        if line.lstrip().startswith("#"):
            if re.match(r"\s*#\s*(syntax|escape)\s*=", line, re.IGNORECASE):
                yield number, line.strip()
            continue
        begun = begun if so_far else number
        so_far += line.rstrip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            if so_far.strip():
                yield begun, so_far
            so_far = ""


def in_makefile(text: str) -> Named:
    """Give the scanner that BuildKit runs over what it built."""
    for number, line in enumerate(text.splitlines(), 1):
        if "sbom=true" in line or "type=sbom" in line:
            chosen = re.search(r"generator=([^\s,]+)", line)
            yield number, chosen[1] if chosen else SCANNER


def in_workflow(text: str) -> Named:
    """Give actions, containers, and the images that actions run."""
    lines = text.splitlines()
    begins = [at for at, line in enumerate(lines) if re.match(r"\s*- |\S", line)]
    for at, end in pairwise([*begins, len(lines)]):
        step = "\n".join(lines[at:end])
        for action, (told, choice) in CHOOSES.items():
            if action in step and not re.search(told, step, re.MULTILINE):
                yield at + 1, choice
    for number, line in enumerate(lines, 1):
        if found := re.match(r"[^#]*\buses[\"']?\s*:\s*(.*)", line):
            if not found[1].startswith("./"):
                yield number, found[1].removeprefix("docker://")
        elif found := re.match(r"\s*(?:image|container|driver-opts):\s*(?:image=)?(.+)", line):
            yield number, found[1]


def in_kustomization(text: str) -> Named:
    """Give what `images:` puts in the place of names."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[^\s#-]", line):
            inside = line.startswith("images:")
            if line.removeprefix("images:").strip() and inside:
                yield number, line
        elif inside and re.match(r"\s*[^\s#]", line):
            told = dict(re.findall(r'(\w+): "?([^",}\s]+)', line))
            if told.get("name") != OURS:
                name = told.get("newName", told.get("name", line))
                yield number, f"{name}:{told.get('newTag', '')}@{told.get('digest', '')}"


def in_values(text: str) -> Named:
    """Give every `image:` of the chart's values, put together as its templates do."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if not (found := re.match(r"( *)image:(.*)", line)):
            continue
        told = {}
        for below in lines[at + 1 :]:
            if below.strip() and not below.startswith(found[1] + " "):
                break
            if pair := re.match(r" *(repository|tag|digest): (\S+)", below):
                told[pair[1]] = pair[2].strip('"')
        if told.get("repository") != OURS:
            digest = f"@{told['digest']}" if told.get("digest") else ""
            yield at + 1, f"{told.get('repository', line)}:{told.get('tag', '')}{digest}"


def in_template(text: str) -> Named:
    """Give images that a template of the chart names by itself."""
    for number, image in images_of(text):
        if not image.startswith('{{ include "gang-extender.image" '):
            yield number, image


def images_of(text: str) -> Named:
    """Give the images of containers, as they are written."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*(?:- )?image:\s*(.+)", line):
            yield number, found[1].strip()


READERS: tuple[tuple[str, Callable[[str], Named]], ...] = (
    ("Dockerfile", in_dockerfile),
    ("Makefile", in_makefile),
    (".github/workflows/*.y*ml", in_workflow),
    ("manifests/overlays/*/kustomization.yaml", in_kustomization),
    ("manifests/chart/values.yaml", in_values),
    ("manifests/chart/templates/*", in_template),
)


def mentions(root: Path) -> list[Mention]:
    """Give all there are, in the order in which they are looked for."""
    found = []
    for pattern, read in READERS:
        paths = sorted(root.glob(pattern))
        if not paths:
            raise FileNotFoundError(f"there is no {pattern} in {root}")
        for path in paths:
            where = str(path.relative_to(root))
            found += [Mention(where, line, what) for line, what in read(path.read_text())]
    return [*found, *_by_nobody(root)]


def _by_nobody(root: Path) -> Iterator[Mention]:
    """Give the images of the manifests that no overlay puts anything in the place of."""
    for path in sorted((root / "manifests").rglob("*.yaml")):
        where = path.relative_to(root)
        if where.parts[1] in ("examples", "chart") or path.name == "kustomization.yaml":
            continue
        above = path.with_name("kustomization.yaml")
        told = above.read_text() if above.exists() else ""
        replaced = {OURS, *re.findall(r"- \{name: ([^,}\s]+)", told)}
        for line, image in images_of(path.read_text()):
            if image not in replaced:
                yield Mention(str(where), line, image)


def troubles(found: Iterable[Mention]) -> list[str]:
    """Say what is not pinned, and what is pinned in two ways."""
    said = []
    pins: dict[str, Mention] = {}
    for each in found:
        here = f"{each.path}:{each.line}: {each.what}"
        first = pins.setdefault(each.name, each)
        if not each.is_pinned:
            said.append(f"{here} is not pinned: its tag may be another thing tomorrow")
        elif first.what != each.what:
            said.append(f"{here} is another than in {first.path}:{first.line}")
    return said


def main(root: Path = ROOT) -> int:
    """Say what is not pinned; 0 only where all is."""
    found = mentions(root)
    said = troubles(found)
    for each in said:
        sys.stdout.write(f"{each}\n")
    if not said:
        sys.stdout.write(f"pins: {len(found)} images and actions, each of them pinned\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
