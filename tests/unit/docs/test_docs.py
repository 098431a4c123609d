"""What the manual shows is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.kube.decode import membership, objects
from extender.model.queue import (
    ALLOWED_CLASSES,
    ALLOWED_QUEUES,
    AT_LEAST,
    AT_MOST,
    HOME_QUEUE,
)
from extender.plan.policy import policies
from extender.settings import Settings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
#: Of operators that our pages tell how to set up, of kube-batch, and of pip.
FOREIGN_FLAGS = {
    "--batch-scheduler", "--gang-scheduling", "--gang-scheduler-name", "--require-hashes",
    "--scheduler-conf", "--leader-elect", "--schedule-period", "--priority-class",
    "--feature-gates",
}  # fmt: skip
#: Roots of the paths that our pages may name.
FOLDERS = ("extender", "tests", "manifests", "docs")


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)


def test_the_policy_of_the_manual_is_the_one_in_force_without_a_file() -> None:
    shown, *_ = yaml_blocks("configuration.md")

    parsed = policies.parse(shown, "manual")
    assert parsed.actions == policies.DEFAULT.actions
    assert parsed.tiers == policies.DEFAULT.tiers


def test_the_flat_file_of_the_manual_is_read() -> None:
    _, flat, *_ = yaml_blocks("configuration.md")

    (tier,) = policies.parse(flat, "manual").tiers
    assert " ".join(option.name for option in tier) == "gang priority drf predicates proportion"


def test_the_quota_of_the_manual_gives_its_namespace_a_weight() -> None:
    *_, written = yaml_blocks("configuration.md")
    raw = msgspec.convert(yaml.safe_load(written), objects.RawQuota)

    assert objects.to_quota(raw).weight == 3


def test_the_concepts_name_the_keys_of_groups_in_the_order_in_which_they_win() -> None:
    text = (DOCS / "concepts.md").read_text().partition("## What a pod sets")[2]
    named, _, rest = text.partition("Without any PodGroup")

    assert tuple(re.findall(r"`([^`]+)`", named)) == membership._GROUP_KEYS
    ours = re.search(r"one of ours\n\(([^)]*)\)", rest)
    assert ours is not None
    assert tuple(re.findall(r"`([^`]+)`", ours[1])) == Settings().scheduler_name


#: Every plan that a page shows with what it prints: page, command, output.
SHOWN_PLANS = [
    (page.stem, *shown.partition("\n")[::2])
    for page in DOCS.rglob("*.md")
    for shown in re.findall(
        r"^```console\n\$ (gang-extender plan .*?)^```$", page.read_text(), re.M | re.S
    )
]


@pytest.mark.parametrize(("page", "command", "output"), SHOWN_PLANS, ids=lambda text: text[:40])
def test_a_plan_that_a_page_shows_is_what_the_command_prints(
    page: str, command: str, output: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "extender", *command.split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "140"},
    )

    told = f"{ran.stdout}{ran.stderr}".rstrip().splitlines()
    assert [line.rstrip() for line in told] == output.splitlines()


def test_the_namespaces_page_names_the_annotations_there_are() -> None:
    table = (DOCS / "namespaces.md").read_text().partition("## At work")[0]

    assert re.findall(r"^\| `([\w./-]+):", table, re.M) == [
        HOME_QUEUE, ALLOWED_QUEUES, AT_MOST, AT_LEAST, ALLOWED_CLASSES
    ]  # fmt: skip


def test_the_policies_of_the_manual_are_those_in_the_manifests() -> None:
    shown = re.findall(
        r"^\| `(gang-extender-[\w-]+)` \|", (DOCS / "admission.md").read_text(), re.M
    )
    files = (ROOT / "manifests" / "admission").glob("*.yaml")
    things = [thing for file in files for thing in yaml.safe_load_all(file.read_text())]
    policies = [t["metadata"]["name"] for t in things if t["kind"].endswith("AdmissionPolicy")]
    bound = [t["spec"]["policyName"] for t in things if t["kind"].endswith("PolicyBinding")]

    assert sorted(shown) == sorted(policies) == sorted(bound)


def spans(page: Path, pattern: str) -> list[str]:
    """Find what *page* shows as code and looks like *pattern*."""
    return re.findall(rf"`({pattern})`", page.read_text())


def flags_of(command: str) -> set[str]:
    return {"--help", *(flag for each in main.commands[command].params for flag in each.opts)}


EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@EVERY_PAGE
def test_every_command_of_ours_that_a_page_names_exists_with_its_flags(page: Path) -> None:
    for shown in spans(page, "(?:gang-extender|kubectl gang) [^`]+"):
        command, *words = shown.removeprefix("kubectl ").split()[1:]
        named = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert named <= flags_of(command), shown


@EVERY_PAGE
def test_every_flag_that_a_page_names_alone_is_one_of_ours(page: Path) -> None:
    known = FOREIGN_FLAGS.union(*map(flags_of, main.commands))

    for shown in spans(page, "--[a-z][^`]*"):
        assert re.split("[ =]", shown)[0] in known, shown


@EVERY_PAGE
def test_folders_with_a_kustomization_are_given_to_kubectl_as_such(page: Path) -> None:
    """Else it applies the rest, takes the kustomization for an object, and fails."""
    given = re.findall(
        r"kubectl (?:apply|delete)[^`\n|]* -(f|k) (manifests/[\w./-]+)", page.read_text()
    )

    for flag, path in given:
        assert flag == ("k" if (ROOT / path).is_dir() else "f"), path
        assert (ROOT / path).is_file() or (ROOT / path / "kustomization.yaml").is_file(), path


@EVERY_PAGE
def test_every_tool_of_ours_that_a_page_names_exists(page: Path) -> None:
    words = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    for shown in spans(page, "make [^`]+"):
        assert shown.split()[1] in words, shown
    for shown in spans(page, "python -m [^`]+"):
        assert find_spec(shown.split()[2]) is not None, shown


@EVERY_PAGE
def test_every_file_of_ours_that_a_page_names_exists(page: Path) -> None:
    for shown in spans(page, rf"(?:{'|'.join(FOLDERS)})/[^`\s]*"):
        assert list(ROOT.glob(shown.rstrip("/"))), shown


def anchors(page: Path) -> set[str]:
    """Give the names by which the headings of *page* can be linked to, as forges make them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EVERY_PAGE
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        place, _, anchor = target.partition("#")
        led_to = (page.parent / place).resolve() if place else page
        assert led_to.exists(), target
        assert not anchor or anchor in anchors(led_to), target


INDEX = DOCS / "README.md"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_every_page_of_the_manual_is_in_its_index(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", INDEX.read_text())
    listed = {(DOCS / target).resolve() for target in targets}

    # A folder is listed with all that is in it.
    assert page == INDEX or {page, page.parent} & (listed - {DOCS})


@EVERY_PAGE
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = set(spans(page, r"test_\w+"))
    written = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))

    assert named <= set(re.findall(r"^(?:async )?def (test_\w+)", written, re.M))


def test_no_two_rows_of_the_index_lead_to_one_page() -> None:
    rows = re.findall(r"^\| \[[^]]+\]\(([^)]+)\) \|", INDEX.read_text(), re.M)

    assert len(rows) == len(set(rows))


@EVERY_PAGE
def test_every_deployment_of_ours_that_a_command_names_is_in_a_manifest(page: Path) -> None:
    files = (ROOT / "manifests" / "overlays").rglob("*.yaml")
    things = [thing for file in files for thing in yaml.safe_load_all(file.read_text()) if thing]
    known = {t["metadata"]["name"] for t in things if t.get("kind") == "Deployment"}

    assert (
        set(re.findall(r"-n gang-system [^`\n]*deployment[/ ]([\w-]+)", page.read_text())) <= known
    )


def test_a_flag_wins_over_its_variable_and_a_variable_may_have_several() -> None:
    names = {"GANG_EXTENDER_SCHEDULER_NAME": "one two", "GANG_EXTENDER_HOLD_S": "7"}
    with CliRunner().isolation(env=names):
        given = main.commands["serve"].make_context("serve", ["--hold-s=9"]).params

    assert (given["scheduler_name"], given["hold_s"]) == (("one", "two"), 9)


#: What the page about trouble lets people look for.
SAYINGS = (
    "first list not complete", "watch silent for", "the first plan is being made", "standby: ",
    "the extender is not ready", "no extender answers", "cannot tell: ", "there is no gang",
    "binds: kube-scheduler gives up after", "should have left long ago",
)  # fmt: skip


@pytest.mark.parametrize("saying", SAYINGS)
def test_what_the_page_about_trouble_quotes_is_said_by_the_code(saying: str) -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "extender").rglob("*.py"))

    assert saying in page
    assert saying in code
