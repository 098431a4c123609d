"""The pictures of the manual, taken from the running demo: `python -m tests.nightly.docs.pictures`.

The act about lending runs once. When two gangs have been evicted and wait, one frame of the
terminal is written as an SVG file and the dashboard as a PNG file.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from playwright.sync_api import Browser, expect
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from extender.cli.demo import LiveView
from extender.cli.demo_picture import cluster_view
from extender.cli.output import Terminal
from extender.demo.acts import LENDING, build_nodes
from extender.demo.embedded import Embedded
from extender.demo.story import ActRunner
from tests.nightly.browser.windows import started, windows
from tests.unit.docs.tables.parts import ROOT

PICTURES = ROOT / "docs" / "pictures"
#: Seconds until the curves of the queues have several points.
_SPEED = 0.25
_COLUMNS, _LINES = 96, 24
_WINDOW = {"width": 1100, "height": 760}
#: Without fonts from the network: a viewer uses its own monospaced font.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


class _Canvas(Terminal):
    """A terminal of a fixed size that records what is printed."""

    def __init__(self) -> None:
        Console.__init__(
            self,
            width=_COLUMNS,
            height=_LINES,
            record=True,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        self.columns = _COLUMNS


def draw(canvas: Terminal, view: LiveView, embedded: Embedded, path: Path) -> None:
    """Write one frame of the terminal."""
    canvas.print(view.frame(cluster_view(embedded)), end="")
    path.write_text(
        canvas.export_svg(title="gang-extender demo", code_format=_FORMAT), encoding="utf-8"
    )


def photograph(browser: Browser, address: str, path: Path) -> None:
    """Write the overview of the dashboard."""
    with windows(browser, address) as open_page:
        page = open_page("", viewport=_WINDOW, color_scheme="light")
        expect(page.locator("#state")).to_have_attribute("data-is", "live")
        page.screenshot(path=path)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with started() as browser, Embedded() as embedded:
        build_nodes(embedded.api)
        canvas = _Canvas()
        view = LiveView(canvas, embedded)
        view.begin(LENDING.title, 3, 4)

        def say(sentence: str) -> None:
            view.say(sentence)
            if "wait for capacity" in sentence:
                draw(canvas, view, embedded, PICTURES / "demo.svg")
                photograph(browser, embedded.address, PICTURES / "dashboard.png")

        outcome = ActRunner(embedded, say, _SPEED).run(LENDING)
        assert not outcome.broken, outcome.broken


if __name__ == "__main__":
    main()
