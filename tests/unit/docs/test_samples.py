"""Every sample of the manual is read, and every command of the manual is run.

A yaml block whose first line is `# NAME.yaml` or `# NAME.conf` is a file for the commands below it
on the page. `# policy`, `# scenario` and `# trace` name what the block is. Other blocks with a
`kind` are objects that `plan` accepts; controllers are replaced by their pods before.

A console block has commands after `$`, each with its output. Commands of ours on files that exist
are run and their output is compared, where `...` stands for any lines. For all others, commands
that need a cluster among them, the flags are checked.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.planner import policy_parser
from extender.settings import Settings
from extender.sim import scenario as scenarios
from extender.whatif.manifests import Manifest
from extender.whatif.workloads import submitted
from tests.unit.docs.pages import PAGES, ROOT, Block, blocks, text

FILE = re.compile(r"[\w-]+\.(?:yaml|conf)")
#: Commands that work on files alone.
OFFLINE = ("plan", "simulate", "scheduler-config", "replay")
#: Samples of a trace become part of this scenario.
NODES = "span: 1d\nnodes: [{name: n, count: 2, has: {cpu: 64, nvidia.com/gpu: 8}}]\n"


class Command(NamedTuple):
    """A command with the output that the page shows."""

    place: str
    words: list[str]
    output: list[str]

    def run(self) -> list[str]:
        """Return the lines that the command prints."""
        ran = CliRunner().invoke(main, self.words, env={"COLUMNS": "160"})
        assert ran.exit_code == 0, f"{self.place}: {ran.output}"
        return [line.rstrip() for line in f"{ran.stdout}{ran.stderr}".rstrip().splitlines()]


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of ours in a console block."""
    for each in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE):
        line, _, output = each.partition("\n")
        words = line.removeprefix("$ ").removeprefix("kubectl gang").removeprefix("gang-extender")
        if words != line.removeprefix("$ "):
            yield Command(block.place, shlex.split(words), output.rstrip().splitlines())


def can_run(command: Command, folder: Path) -> bool:
    """Return whether *command* needs nothing but files of *folder* and this repository."""
    words = command.words
    if words[0] not in OFFLINE or "--live" in words or {"|", ">"} & set(words):
        return False
    files = [value for flag, value in itertools.pairwise(words) if flag in READ]
    known = ("deadlock",) if words[0] == "simulate" else ()
    return all(file in known or (folder / file).exists() for file in files + places(words))


READ = ("-f", "--config", "--compare", "--hook-secret-file")


def places(words: Sequence[str]) -> list[str]:
    """Return the arguments of *words* that name a folder."""
    return [words[1]] if words[0] == "replay" else []


def matches(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Return whether *printed* is what is *shown*, with any lines in place of `...`."""
    parts = [".*\n" if line == "..." else re.escape(f"{line}\n") for line in shown]
    pattern = "".join(parts).replace(".*\n", "(?:.*\n)*")
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def check_yaml(block: Block, folder: Path) -> None:
    """Read a yaml block as what it says it is."""
    if FILE.fullmatch(block.title):
        (folder / block.title).write_text(block.text)
    kind = block.title.partition(":")[0]
    if kind == "policy" or block.title.endswith(".conf"):
        assert policy_parser.parse(block.text, block.place).remarks == ()
    elif kind == "scenario":
        scenarios.jobs_of(scenarios.read(block.text, block.place))
    elif kind == "trace":
        scenarios.parse(NODES + block.text, block.place)
    else:
        documents = [each for each in yaml.safe_load_all(block.text) if each is not None]
        assert documents, block.place
        check_objects(block, [each for each in documents if is_ours(each)], folder)


def is_ours(document: Any) -> bool:
    """Return whether *document* is a kind of object that `plan` reads."""
    kinds = (
        *("Node", "Namespace", "Queue", "PodGroup", "Pod", "PriorityClass", "ResourceQuota"),
        *("PodDisruptionBudget", "Job", "Deployment", "StatefulSet", "ReplicaSet", "List"),
    )
    return isinstance(document, dict) and document.get("kind") in kinds


def check_objects(block: Block, documents: Sequence[dict[str, Any]], folder: Path) -> None:
    """Plan objects as they would be submitted."""
    if not documents or FILE.fullmatch(block.title):
        return
    files = [Manifest(block.place, each) for each in documents]
    schedulers = frozenset(Settings().scheduler_name)
    new = submitted(files, [], namespace="default", now=0.0, schedulers=schedulers)
    file = folder / "sample.json"
    items = [each.content for each in new.manifests]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, default=str))
    Command(block.place, ["plan", "-f", str(file)], []).run()


def flags_of(command: str) -> set[str]:
    params = main.commands[command].params
    return {"--help", *(flag for each in params for flag in (*each.opts, *each.secondary_opts))}


def check_flags(command: Command) -> None:
    """Check that a command exists with its flags."""
    ours = itertools.takewhile(lambda word: word not in ("|", ">"), command.words)
    name, *words = ours
    flags = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert name in main.commands, command.place
    assert flags <= flags_of(name), f"{command.place}: {flags - flags_of(name)}"


def test_every_sample_is_valid_and_every_command_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = sum(try_page(page, tmp_path, monkeypatch) for page in PAGES)

    assert ran > 10


def try_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Try all blocks of *page* in a folder of its own; return the number of commands that ran."""
    ran = 0
    folder = tmp_path / str(page.relative_to(ROOT)).replace("/", "-")
    folder.mkdir()
    (folder / "manifests").symlink_to(ROOT / "manifests")
    monkeypatch.chdir(folder)
    for block in blocks(page):
        if block.language == "yaml":
            check_yaml(block, folder)
        for command in commands(block) if block.language == "console" else ():
            check_flags(command)
            if can_run(command, folder):
                printed = command.run()
                ran += 1
                told = f"{command.place}: {' '.join(command.words)} prints\n"
                assert matches(command.output or ["..."], printed), told + "\n".join(printed)
    return ran


def test_a_block_is_of_a_known_language() -> None:
    known = {"yaml", "console", "python", "toml", "mermaid", "properties", "text", "json", ""}
    languages = {block.language for page in PAGES for block in blocks(page)}

    assert languages <= known
    assert all(text(page).count("```") % 2 == 0 for page in PAGES)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [(["a", "b"], True), (["...", "b"], True), (["a", "..."], True), (["...", "a"], False)],
)
def test_dots_stand_for_any_lines(shown: list[str], expected: bool) -> None:
    assert matches(shown, ["a", "b"]) is expected
