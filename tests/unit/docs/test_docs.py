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

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.kube.decode import objects
from extender.model.annotations import ALLOWED_CLASSES, ALLOWED_QUEUES, GUARANTEE, HOME_QUEUE, LIMIT
from extender.planner import policy_parser
from extender.settings import Settings
from tests.unit.kube.decode.test_dialects_page import assert_groups_are_named_by

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
#: Flags of operators that the pages install, of kube-batch, pip, pip-audit and the crash points.
FOREIGN_FLAGS = {
    "--batch-scheduler", "--gang-scheduling", "--gang-scheduler-name", "--require-hashes",
    "--scheduler-conf", "--leader-elect", "--schedule-period", "--priority-class",
    "--feature-gates", "--ignore-vuln",
    "--limit", "--sites", "--faults", "--lanes", "--planted",
}  # fmt: skip
#: A command of ours, inline or after a prompt.
OURS = r"`((?:gang-extender|kubectl gang) [^`]+)`|^ *\$ ((?:gang-extender|kubectl gang) .*)$"


@cache
def text(page: Path) -> str:
    return page.read_text()


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


@cache
def flags_of(command: str) -> set[str]:
    params = main.commands[command].params if command in main.commands else []
    return {"--help", *(flag for each in params for flag in (*each.opts, *each.secondary_opts))}


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


def test_a_plan_shown_on_a_page_is_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    shown = list(everywhere(r"^```console\n\$ gang-extender (plan .*?)^```$"))
    assert shown
    for place, block in shown:
        command, _, output = block.partition("\n")
        ran = CliRunner().invoke(main, command.split(), env={"COLUMNS": "160"})
        told = f"{ran.stdout}{ran.stderr}".rstrip().splitlines()
        assert [line.rstrip() for line in told] == output.splitlines(), place.partition("\n")[0]


def test_the_files_on_the_configuration_page_can_be_read() -> None:
    samples = [sample for _, sample in found(r"^```yaml\n(.*?)^```$", DOCS / "configuration.md")]
    whole, flat = (policy_parser.parse(each, "configuration.md") for each in samples[:2])
    quota = msgspec.convert(yaml.safe_load(samples[-1]), objects.RawQuota)

    assert (whole.actions, whole.tiers) == (
        policy_parser.DEFAULT.actions,
        policy_parser.DEFAULT.tiers,
    )
    assert [each.name for each in flat.tiers[0]] == [
        "gang", "priority", "drf", "predicates", "proportion",
    ]  # fmt: skip
    assert objects.to_quota(quota).weight == 3


def test_the_listed_annotations_and_labels_are_those_that_are_read() -> None:
    named = text(DOCS / "concepts.md").partition("## What a pod sets")[2]
    groups, _, rest = named.partition("Without any PodGroup")
    schedulers = rest.partition("one of ours\n(")[2].partition(")")[0]
    namespaces = text(DOCS / "namespaces.md").partition("## At work")[0]

    keys = re.findall(r"`([^`]+)`", groups)
    assert len(keys) == 5, "concepts.md"
    assert_groups_are_named_by(keys)
    assert tuple(re.findall(r"`([^`]+)`", schedulers)) == Settings().scheduler_name, "concepts.md"
    assert re.findall(r"^\| `([\w./-]+):", namespaces, re.M) == [
        HOME_QUEUE, ALLOWED_QUEUES, LIMIT, GUARANTEE, ALLOWED_CLASSES,
    ], "namespaces.md"  # fmt: skip
