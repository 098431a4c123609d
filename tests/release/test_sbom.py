"""The list of parts: all that is installed and nothing else, the same bytes for the same tree."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import extender
from release.sbom import describe

ROOT = Path(__file__).parents[2]
WHEEL = b"what was built"
DIGEST = hashlib.sha256(WHEEL).hexdigest()
FROM_A_FILE = {
    "url": "file:///src/dist/gang_extender-1.2.3-py3-none-any.whl",
    "archive_info": {"hash": f"sha256={DIGEST}", "hashes": {"sha256": DIGEST}},
}


def install(place: Path, name: str, version: str, *fields: str, origin: object = None) -> None:
    """Put a distribution there, as an installer leaves it."""
    folder = place / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ("Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *fields)
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An environment with us and two others, of which one needs the other."""
    folder = tmp_path / "site-packages"
    install(
        folder,
        "gang-extender",
        "1.2.3",
        "License-Expression: Apache-2.0",
        "Requires-Dist: Flask>=3",
        "Requires-Dist: colorama; sys_platform == 'win32'",
        "Requires-Dist: flask-extra; extra == 'more'",
        "Requires-Dist: not-installed",
        origin=FROM_A_FILE,
    )
    install(folder, "Flask", "3.1.0", "Requires-Dist: some.part>=1")
    install(folder, "some_part", "1.0+cpu")
    install(folder, "colorama", "0.4")
    install(folder, "flask-extra", "0.1")
    return folder


@pytest.fixture(autouse=True)
def no_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


def parts(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    every = (told["metadata"]["component"], *told["components"])
    return {each["name"]: each for each in every}


def licences_of(place: Path, *fields: str) -> object:
    install(place, "licensed", "1.0", *fields)
    return parts(describe(place))["licensed"].get("licenses")


def test_every_part_is_there_once_by_its_own_name_and_address(place: Path) -> None:
    told = describe(place)

    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["type"] == "application"
    assert {each["type"] for each in told["components"]} == {"library"}
    assert [(name, each["purl"]) for name, each in parts(told).items()] == [
        ("gang-extender", "pkg:pypi/gang-extender@1.2.3"),
        ("colorama", "pkg:pypi/colorama@0.4"),
        ("flask", "pkg:pypi/flask@3.1.0"),
        ("flask-extra", "pkg:pypi/flask-extra@0.1"),
        ("some-part", "pkg:pypi/some-part@1.0%2Bcpu"),
    ]
    assert all(each["bom-ref"] == each["purl"] for each in parts(told).values())


def test_who_needs_whom_is_what_is_installed_and_asked_for_here(place: Path) -> None:
    told = describe(place)
    needs = {each["ref"]: each["dependsOn"] for each in told["dependencies"]}

    assert needs.keys() == {each["bom-ref"] for each in parts(told).values()}
    assert needs["pkg:pypi/gang-extender@1.2.3"] == ["pkg:pypi/flask@3.1.0"]
    assert needs["pkg:pypi/flask@3.1.0"] == ["pkg:pypi/some-part@1.0%2Bcpu"]
    assert needs["pkg:pypi/some-part@1.0%2Bcpu"] == []


def test_ours_carries_the_hash_of_the_file_that_it_was_installed_from(place: Path) -> None:
    told = parts(describe(place))

    assert told["gang-extender"]["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]


def test_what_came_from_an_index_or_a_folder_has_no_hash_that_anybody_knows(place: Path) -> None:
    a_folder = {"url": "file:///src", "dir_info": {"editable": True}}
    install(place, "in-place", "1", origin=a_folder)
    without_any = {"url": "https://example.org/a.whl", "archive_info": {}}
    install(place, "unhashed", "1", origin=without_any)
    told = parts(describe(place))

    assert [name for name, each in told.items() if "hashes" in each] == ["gang-extender"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["License-Expression: MIT OR ISC"], [{"expression": "MIT OR ISC"}]),
        (
            ["License: something", "Classifier: License :: OSI Approved :: BSD License"],
            [{"license": {"name": "BSD License"}}],
        ),
        (["License: BSD 3-Clause"], [{"license": {"name": "BSD 3-Clause"}}]),
        (["License: Permission is granted\n        to whom it may concern"], None),
        (["License: UNKNOWN"], None),
        ([], None),
    ],
    ids=["an expression", "a classifier", "a few words", "a whole text", "unknown", "nothing"],
)
def test_a_licence_is_told_as_it_was_declared_or_not_at_all(
    place: Path, fields: list[str], expected: object
) -> None:
    assert licences_of(place, *fields) == expected


def test_the_same_parts_give_the_same_bytes_wherever_and_in_whatever_order_they_lie(
    place: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "site-packages"
    for folder in sorted(place.iterdir(), reverse=True):
        (other / folder.name).mkdir(parents=True)
        for file in folder.iterdir():
            (other / folder.name / file.name).write_bytes(file.read_bytes())

    assert json.dumps(describe(other)) == json.dumps(describe(place))


def test_another_part_gives_another_serial_number(place: Path) -> None:
    before = describe(place)["serialNumber"]
    install(place, "one-more", "1")

    assert describe(place)["serialNumber"] != before


def test_it_is_dated_by_the_commit_and_else_not_at_all(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undated = describe(place)
    assert "timestamp" not in undated["metadata"]

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    dated = describe(place)
    assert dated["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert dated["serialNumber"] == undated["serialNumber"]


def run(environment: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "release.sbom", environment],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True,
    )  # fmt: skip


def test_the_command_lists_the_environment_that_it_is_given() -> None:
    ran = run(Path(sys.prefix))
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)

    assert told["metadata"]["component"]["version"] == extender.__version__
    assert {"flask", "numpy", "uvloop"} <= parts(told).keys()


@pytest.mark.parametrize("there", [True, False], ids=["an empty one", "none at all"])
def test_an_environment_without_us_ends_with_a_sentence(tmp_path: Path, there: bool) -> None:
    environment = tmp_path / "environment"
    if there:
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (environment / "lib" / minor / "site-packages").mkdir(parents=True)
    ran = run(environment)

    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "gang-extender is not installed in" in ran.stderr
    assert "Traceback" not in ran.stderr
