"""`gang-extender demo`: acts, text output, the live picture, the form, and its end."""

from __future__ import annotations

import http.client
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from extender.cli.demo_picture import (
    ClusterView,
    GangView,
    Head,
    NodeView,
    Picture,
    PodCell,
    QueueView,
)
from extender.cli.main import main
from extender.demo import form as forms
from extender.demo.embedded import Embedded
from extender.demo.form import MOST_BYTES, GangForm, with_form
from extender.errors import InvalidInput

HOSTILE = "\x1b[31m<script>\u202e"
SIGHT = ClusterView(
    nodes=tuple(
        NodeView(f"node-{n}", 9, 18, (PodCell("red", 3, 2, False), PodCell("blue", 3, 2, True)))
        for n in range(4)
    ),
    queues=(QueueView("lab", 0.7, 0.5, 1.0), QueueView("ops", 0.0, 0.5, 0.0)),
    gangs=tuple(
        GangView(name, "lab", 8, runs, 0, 8 - runs, "InsufficientCapacity: needs 8 x 3 cpu")
        for name, runs in (("red", 8), ("blue", 0), *((f"g{n}", 0) for n in range(30)))
    ),
)


def drawn(width: int, height: int, sight: ClusterView = SIGHT, **console: object) -> list[str]:
    out = io.StringIO()
    on = Console(width=width, height=height, file=out, force_terminal=True, **console)  # type: ignore[arg-type]
    told = [Text(f"sentence {n} " + "of many words " * 9) for n in range(9)]
    on.print(Picture(on).draw(Head("title", 2, 4, "http://127.0.0.1:1/", 3.0), sight, told), end="")
    return out.getvalue().splitlines()


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 60)])
def test_the_picture_fits_the_terminal(size: tuple[int, int]) -> None:
    lines = drawn(*size, color_system=None)

    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert any("sentence 8" in line for line in lines)
    assert any(line.startswith("blue") and "waits" in line for line in lines)


def test_without_colours_names_are_in_brackets() -> None:
    lines = drawn(80, 24, no_color=True)

    assert any("[red" in line and "(blue" in line for line in lines)
    assert not any(re.search(r"\x1b\[[0-9;]*[34][0-9]", line) for line in lines)


def test_a_hostile_name_does_not_control_the_terminal() -> None:
    gang = GangView(HOSTILE, HOSTILE, 8, 0, 0, 8, HOSTILE)
    node = NodeView(HOSTILE, 9, 18, (PodCell(HOSTILE, 9, 18, False),))
    lines = drawn(
        80, 24, ClusterView((node,), (QueueView(HOSTILE, 0, 0, 0),), (gang,)), color_system=None
    )

    assert not {"\x1b", "\u202e"} & set("".join(lines))


def test_a_single_act_prints_lines_without_colours() -> None:
    ran = CliRunner().invoke(main, ["demo", "--story", "deadlock", "--speed", "100"])

    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "act 1 of 1: two gangs that would block each other" in ran.stdout
    assert "1 act finished" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_ctrl_c_ends_the_demo_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "extender", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as ran:
        assert ran.stdout is not None
        while not re.search("0.0s|0.[1-9]s|[1-9].[0-9]s", ran.stdout.readline()):
            assert ran.poll() is None
        ran.send_signal(signal.SIGINT)
        _, err = ran.communicate(timeout=30)

    assert (ran.returncode, err) == (130, "")


GOOD = {
    "name": "mine",
    "queue": "lab",
    **{key: str(field.usual) for key, field in forms.FIELDS.items()},
}


@pytest.fixture(scope="module")
def kept() -> Iterator[tuple[Embedded, GangForm]]:
    form = GangForm()
    with Embedded(with_form(form)) as embedded:
        yield embedded, form


def post(embedded: Embedded, body: str, **changed: str | None) -> tuple[int, str]:
    place = urlsplit(embedded.address).netloc
    headers = {
        "Host": place,
        "Origin": f"http://{place}",
        "Content-Type": "application/x-www-form-urlencoded",
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    sent = {name: value for name, value in headers.items() if value}
    with closing(http.client.HTTPConnection(place, timeout=30)) as connection:
        connection.request("POST", "/submit", body, sent)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()


def test_a_form_is_accepted_once_the_story_is_over(kept: tuple[Embedded, GangForm]) -> None:
    with pytest.raises(InvalidInput, match="still running"):
        GangForm().submit(GOOD)

    embedded, form = kept
    form.open(embedded)

    assert post(embedded, urlencode(GOOD))[0] == 303
    assert "mine" in [each.name for each in embedded.jobs]
    assert "already" in post(embedded, urlencode(GOOD))[1]
    embedded.end("mine")


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": None}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ],
    ids=str,
)
def test_a_form_from_another_origin_is_refused(
    kept: tuple[Embedded, GangForm], changed: dict[str, str | None], status: int
) -> None:
    embedded, form = kept
    form.open(embedded)

    assert post(embedded, urlencode(GOOD), **changed)[0] == status
    assert embedded.jobs == []


def test_a_form_that_is_too_long_is_refused(kept: tuple[Embedded, GangForm]) -> None:
    assert post(kept[0], urlencode({**GOOD, "x": "y" * MOST_BYTES}))[0] == 413


def test_a_hostile_name_is_text_on_the_page(kept: tuple[Embedded, GangForm]) -> None:
    embedded, form = kept
    form.open(embedded)

    status, page = post(embedded, urlencode({**GOOD, "name": HOSTILE}))

    assert status == 422
    assert "cannot be the name of a gang" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": ""}, "cannot be the name"),
        ({"name": "-x"}, "cannot be the name"),
        ({"queue": "none"}, "there is no queue 'none'; choose lab or ops"),
        ({"pods": "37"}, "is not a number from 1 to 36"),
        ({"pods": "-1"}, "is not a number from 1 to 36"),
        ({"cpus": "1e1"}, "is not a number from 1 to 9"),
        ({"least": "7"}, "at least 7 of 6 pods is impossible"),
    ],
    ids=str,
)
def test_an_invalid_field_of_the_form_is_named(changed: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        forms.read({**GOOD, **changed})


def test_without_keep_no_form_is_accepted() -> None:
    with Embedded() as embedded:
        status, _ = post(embedded, urlencode(GOOD))
        with urlopen(embedded.address, timeout=30) as answer:
            page = answer.read().decode()
        assert embedded.jobs == []

    assert status in (404, 405)
    assert "Submit a gang" not in page
