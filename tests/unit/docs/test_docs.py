"""Commands, flags, files and links in the documentation exist. A failure names page and line."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from extender.cli.main import main
from extender.model.annotations import ALLOWED_CLASSES, ALLOWED_QUEUES, GUARANTEE, HOME_QUEUE, LIMIT
from tests.unit.docs.pages import DOCS, PAGES, ROOT, prose, text
from tests.unit.docs.test_samples import flags_of

INDEX = DOCS / "README.md"
#: Flags of operators that the pages install, of kube-batch, pip, pip-audit and the crash points.
FOREIGN_FLAGS = {
    "--batch-scheduler", "--gang-scheduling", "--gang-scheduler-name", "--require-hashes",
    "--scheduler-conf", "--leader-elect", "--schedule-period", "--priority-class",
    "--feature-gates", "--ignore-vuln",
    "--limit", "--sites", "--faults", "--lanes", "--planted",
}  # fmt: skip
#: A command of ours, inline or after a prompt.
OURS = r"`((?:gang-extender|kubectl gang) [^`]+)`|^ *\$ ((?:gang-extender|kubectl gang) .*)$"


def found(pattern: str, page: Path) -> Iterator[tuple[str, str]]:
    """Yield the first matching group of *pattern* in *page*, with page and line."""
    for each in re.finditer(pattern, text(page), re.M | re.S if "```" in pattern else re.M):
        line = text(page).count("\n", 0, each.start()) + 1
        said = next((group for group in each.groups() if group is not None), "")
        yield f"{page.relative_to(ROOT)}:{line}: {said}", said


def everywhere(pattern: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield from found(pattern, page)


def none_of(wrong: Iterable[str]) -> None:
    told = "\n".join(wrong)
    assert not told, f"\n{told}"


@cache
def things(folder: str) -> list[dict[str, Any]]:
    """Return the objects in the files of a directory of manifests."""
    files = (ROOT / "manifests" / folder).rglob("*.yaml")
    return [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]


@cache
def anchors(page: Path) -> set[str]:
    """Return the link anchors of the headings of *page*, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text(page), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, target: str) -> bool:
    place, _, anchor = target.partition("#")
    led_to = (page.parent / place).resolve() if place else page
    return led_to.exists() and (not anchor or anchor in anchors(led_to))


def test_every_link_leads_somewhere() -> None:
    broken = [
        place
        for page in PAGES
        for place, target in found(r"\]\(([^)\s]+)\)", page)
        if not target.startswith("https://") and not leads_somewhere(page, target)
    ]

    none_of(broken)


def test_the_index_has_every_page_once() -> None:
    rows = [row for _, row in found(r"^\| \[[^]]+\]\(([^)]+)\) \|", INDEX)]
    targets = [target for _, target in found(r"\]\(([^)#\s]+)", INDEX)]
    listed = {(DOCS / target).resolve() for target in targets} - {DOCS}

    assert [row for row, times in Counter(rows).items() if times > 1] == []
    # A directory is listed with everything in it.
    assert [p for p in DOCS.rglob("*.md") if p != INDEX and not {p, p.parent} & listed] == []


def test_every_command_and_every_flag_exists() -> None:
    known = FOREIGN_FLAGS.union(*map(flags_of, main.commands))
    wrong = []
    for place, shown in everywhere(OURS):
        command, *words = re.split(r" [|>] ", shown)[0].removeprefix("kubectl ").split()[1:]
        flags = {word.partition("=")[0] for word in words if word.startswith("-")}
        if command not in main.commands or not flags <= flags_of(command):
            wrong.append(place)
    alone = everywhere(r"`(--[a-z][^`]*)`")
    wrong += [place for place, flag in alone if re.split("[ =]", flag)[0] not in known]

    none_of(wrong)


def test_every_file_exists() -> None:
    shown = everywhere(r"`((?:extender|tests|manifests|docs)/[^`\s]*)`")

    none_of(place for place, path in shown if not list(ROOT.glob(path.rstrip("/"))))


def can_be_run(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@cache
def targets() -> set[str]:
    rules = re.findall(r"^([\w -]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
    return {target for rule in rules for target in rule.split()}


def test_every_target_of_make_and_every_module_exists() -> None:
    made = everywhere(r"`make ([\w-]+)[^`]*`|^ *\$ make ([\w-]+)")
    run = everywhere(r"`python -m ([\w.]+)[^`]*`|^ *\$ python -m ([\w.]+)")

    none_of(place for place, target in made if target not in targets())
    none_of(place for place, module in run if not can_be_run(module))


def test_make_without_a_target_prints_existing_targets() -> None:
    ran = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    printed = set(re.findall(r"^make ([\w-]+)", ran.stdout, re.M))

    assert {"demo", "test", "check", "cluster", "bench"} <= printed <= targets()


def test_a_directory_with_a_kustomization_is_applied_with_k() -> None:
    """With `-f`, kubectl takes the kustomization for an object and fails."""
    wrong = []
    for place, given in everywhere(r"kubectl (?:apply|delete)[^`\n|]* -([fk] manifests/[\w./-]+)"):
        flag, path = given.split()
        folder = ROOT / path / "kustomization.yaml"
        if not (folder.is_file() if flag == "k" else (ROOT / path).is_file()):
            wrong.append(place)

    none_of(wrong)


def test_named_objects_exist_in_the_manifests() -> None:
    deployments = {t["metadata"]["name"] for t in things("overlays") if t["kind"] == "Deployment"}
    named = everywhere(r"-n gang-system [^`\n]*deployment[/ ]([\w-]+)")
    none_of(place for place, name in named if name not in deployments)

    shown = [name for _, name in found(r"^\| `(gang-extender-[\w-]+)` \|", DOCS / "install.md")]
    admission = things("admission")
    rules = [t["metadata"]["name"] for t in admission if t["kind"].endswith("AdmissionPolicy")]
    bound = [t["spec"]["policyName"] for t in admission if t["kind"].endswith("PolicyBinding")]
    assert sorted(shown) == sorted(rules) == sorted(bound)


#: What cannot be broken: code, a link, a word.
UNBROKEN = re.compile(r"(?:`[^`]*`|!?\[[^]]*\]\([^)]*\)|[^\s`\[])+")


def test_prose_wraps_at_100_characters() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}:{number}: {len(line)}"
        for page in PAGES
        for number, line in enumerate(prose(page).splitlines(), start=1)
        if len(line) > 100
        and len(UNBROKEN.findall(line)) > 1
        and not line.lstrip().startswith(("|", ">", "#", "<!--"))
    ]

    none_of(wrong)


def test_the_page_of_queues_lists_the_annotations_of_a_namespace() -> None:
    part = text(DOCS / "queues.md").partition("## Policy per namespace")[2]

    assert re.findall(r"^\| `([\w./-]+):", part, re.M) == [
        HOME_QUEUE, ALLOWED_QUEUES, LIMIT, GUARANTEE, ALLOWED_CLASSES,
    ]  # fmt: skip


def test_every_annotation_of_ours_is_in_the_reference() -> None:
    """Also those that only manifests write, and none that does not exist."""
    pattern = re.compile(r"gang-extender\.io/(?!v\d)[a-z-]+")
    files = [*(ROOT / "extender").rglob("*.py"), *(ROOT / "manifests").rglob("*.yaml")]
    used = {name for file in files for name in pattern.findall(file.read_text(encoding="utf-8"))}

    assert set(pattern.findall(text(DOCS / "reference" / "configuration.md"))) == used
