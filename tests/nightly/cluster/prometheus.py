"""A Prometheus that scrapes extenders every second and evaluates the alerts, accelerated."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.cluster.binaries import ensure
from tests.cluster.components import answers, http_json
from tests.cluster.extender_process import Extender
from tests.cluster.processes import Program
from tests.cluster.waiting import wait_for
from tests.unit.monitoring import rules

#: An hour of the shipped rules becomes a minute.
TIMES = 60
JOB = "gang-extender"


class Prometheus(Program):
    """One server for a `with` block; all *extenders* are targets of one job."""

    port_count = 1

    def __init__(
        self,
        name: str,
        folder: Path,
        extenders: Sequence[Extender],
        scrapes: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, folder)
        self._folder = folder
        self._binary = ensure("prometheus")["prometheus"]
        self._extenders = extenders
        #: More fields of the scrape config.
        self._scrapes = scrapes or {}

    def command(self) -> list[str | Path]:
        config = self._write("prometheus.yaml", self._configuration())
        return [
            self._binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'series'}",
            f"--web.listen-address=127.0.0.1:{self.ports[0]}",
        ]

    def _configuration(self) -> dict[str, Any]:
        found_by = self._write("targets.json", self.targets())
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(self._write("rules.yaml", rules.accelerated(TIMES)))],
            "scrape_configs": [
                {"job_name": JOB, "file_sd_configs": [{"files": [str(found_by)]}], **self._scrapes}
            ],
        }

    def targets(self) -> list[dict[str, Any]]:
        """Return the running extenders, as the endpoints of a Service."""
        running = [each for each in self._extenders if each.is_running]
        addresses = [each.ops_url.partition("://")[2] for each in running]
        return [{"targets": addresses, "labels": {"namespace": "gang-system"}}]

    def _write(self, name: str, content: object) -> Path:
        path = self._folder / name
        text = json.dumps(content) if name.endswith("json") else yaml.safe_dump(content)
        path.write_text(text)
        return path

    def is_ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.ports[0]}/-/ready")

    def update_targets(self) -> None:
        """Write the targets again, as service discovery does."""
        self._write("targets.json", self.targets())

    def wait_until_scraped(self) -> None:
        """Wait until each was scraped twice, so that later increases count in rates."""
        wait_for(
            lambda: len(self.query("count_over_time(up[1m]) > 1")) == len(self._extenders),
            60,
            "all are scraped",
            every_s=0.3,
        )

    def query(self, expression: str) -> list[Any]:
        """Return the current value of an expression; fails if it is invalid."""
        url = f"http://127.0.0.1:{self.ports[0]}/api/v1/query?{urlencode({'query': expression})}"
        answer = http_json("GET", url)
        assert answer is not None, f"Prometheus does not take {expression}"
        found: list[Any] = answer["data"]["result"]
        return found

    def alerts(self, state: str = "firing") -> dict[str, Mapping[str, str]]:
        """Return the alerts in *state* by name, with labels."""
        answer = http_json("GET", f"http://127.0.0.1:{self.ports[0]}/api/v1/alerts")
        assert answer is not None, "Prometheus does not answer"
        return {
            each["labels"]["alertname"]: each["labels"]
            for each in answer["data"]["alerts"]
            if each["state"] == state
        }

    def wait_until_firing(self, *names: str, seconds: float = 120) -> dict[str, Mapping[str, str]]:
        """Wait until all of *names* fire, and return the firing alerts."""
        wait_for(
            lambda: self.alerts().keys() >= set(names),
            seconds,
            f"these fire: {', '.join(names)}",
            seeing=lambda: (self.alerts(), self.alerts("pending")),
            every_s=0.3,
        )
        return self.alerts()

    def wait_until_quiet(self, *names: str, seconds: float = 120) -> None:
        """Wait until none of *names*, or no alert at all, fires."""
        wait_for(
            lambda: not (self.alerts().keys() & set(names) if names else self.alerts()),
            seconds,
            f"these go away: {', '.join(names) or 'all'}",
            seeing=self.alerts,
            every_s=0.3,
        )


def promtool(*arguments: str | Path, stdin: str = "", may_fail: bool = False) -> str:
    """Run promtool; return its output, and fail if it fails, unless *may_fail*."""
    command = [ensure("promtool")["promtool"], *arguments]
    ran = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
    output = ran.stdout + ran.stderr
    assert may_fail or ran.returncode == 0, f"promtool {' '.join(map(str, arguments))}: {output}"
    return output
