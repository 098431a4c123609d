"""The house stays as its page describes it: rooms by purpose, one word for one thing."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "extender"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
#: Python wants these; nobody lives there.
_NO_MODULES = ("__init__.py", "__main__.py")

#: Besides asyncio, the ways to open a socket or to speak through one.
_SOCKETS = ("socket", "ssl", "http", "httptools", "urllib3", "urllib.request", "kubernetes")
#: Who has to do with sockets, but not with the API server's.
_OTHER_SOCKETS = {
    "web/hookport.py": "listens: kube-scheduler asks here",
    "web/pageport.py": "listens: people and their tools look here",
    "web/http/port.py": "listens, for both",
    "web/http/door.py": "lets callers in, a few at a time",
    "web/http/connection.py": "reads what callers send",
    "tls/contexts.py": "says how TLS is spoken, on sockets of others",
    "tls/guard.py": "reads why a handshake failed",
    "tls/rotation.py": "says which certificates are in force",
    "embedded/running.py": "listens, and asks our own operations port",
    "cli/ask.py": "asks our own operations port",
    "doctor/looking/eyes.py": "knows how a request to the API server fails; kube/api sends it",
    "sim/scheduler.py": "asks our own hooks, in place of kube-scheduler",
}


def modules(room: str) -> list[Path]:
    """Give the modules that live in *room* itself: a folder such as `kube/api/`, or one file."""
    place = PACKAGE / room
    found = sorted(place.glob("*.py")) if place.is_dir() else [place]
    return [module for module in found if module.name not in _NO_MODULES]


def name_of(place: Path) -> str:
    return str(place.relative_to(PACKAGE))


FOLDERS = [
    f"{name_of(folder)}/"
    for folder in sorted(PACKAGE.rglob("*"))
    if folder.is_dir() and modules(name_of(folder))
]
ROOMS = [*FOLDERS, *(module.name for module in modules("."))]
MODULES = [module for room in ROOMS for module in modules(room)]


#: Paths in the text and in the figure.
POINTED_TO = sorted(
    place
    for place in set(re.findall(r"\w+(?:/\w+)+", PAGE))
    if f"{place.partition('/')[0]}/" in FOLDERS
)


@cache
def nodes(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_text())))


def classes(module: Path) -> list[str]:
    return [each.name for each in nodes(module) if isinstance(each, ast.ClassDef)]


CLASSES = Counter(name for module in MODULES for name in classes(module))


@pytest.mark.parametrize("room", ROOMS)
def test_no_class_of_a_room_shares_its_name_with_another(room: str) -> None:
    twice = [name for module in modules(room) for name in classes(module) if CLASSES[name] > 1]

    assert twice == []


@pytest.mark.parametrize("room", [".", *FOLDERS])
def test_no_room_has_more_than_a_dozen_modules(room: str) -> None:
    assert len(modules(room)) <= 12


def test_who_knows_everyone_fits_on_a_few_pages() -> None:
    assert len((PACKAGE / "wiring.py").read_text().splitlines()) < 200


def test_the_page_names_every_room_and_no_other() -> None:
    table = PAGE.partition("## The rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]

    assert sorted(named) == sorted(ROOMS)


@pytest.mark.parametrize("place", POINTED_TO)
def test_whatever_the_page_points_to_exists(place: str) -> None:
    assert (PACKAGE / place).is_dir() or (PACKAGE / f"{place}.py").is_file()


def test_the_page_shows_the_layers_that_are_proved() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (each["layers"] for each in contracts["contracts"] if each["type"] == "layers")

    assert f"`{' > '.join(layers)}`" in PAGE.splitlines()


def imported(module: Path) -> set[str]:
    names = set()
    for each in nodes(module):
        if isinstance(each, ast.Import):
            names.update(alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and not each.level:
            names.update(f"{each.module}.{alias.name}" for alias in each.names)
    return names


def speaks_through_a_socket(module: Path) -> bool:
    dials = any(
        isinstance(each, ast.Attribute) and each.attr in ("create_connection", "open_connection")
        for each in nodes(module)
    )
    return dials or any(
        name == way or name.startswith(f"{way}.") for name in imported(module) for way in _SOCKETS
    )


@pytest.mark.parametrize("room", ROOMS)
def test_only_those_who_listen_to_or_reach_the_api_server_open_sockets(room: str) -> None:
    if room in ("kube/api/", "kube/watch/"):
        assert any(map(speaks_through_a_socket, modules(room)))
        return
    opened = {name_of(each) for each in modules(room) if speaks_through_a_socket(each)}

    assert opened == {name_of(each) for each in modules(room)} & set(_OTHER_SOCKETS)
