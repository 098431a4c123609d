"""The extender forked by the fork server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cluster.components import answers
from tests.cluster.ports import free_ports
from tests.cluster.waiting import wait_for
from tests.nightly.crash.forked import ForkedExtender

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"""


class OfflineExtender(ForkedExtender):
    """It has started when /healthz answers: there is no API server."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/healthz")


def test_forked_extender_can_be_killed_and_restarted(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    extender = OfflineExtender("gang-extender", tmp_path, kubeconfig=kubeconfig)
    extender.ports = free_ports(2)
    with extender:
        first = extender.pid
        assert os.getsid(first) == first
        os.killpg(first, signal.SIGKILL)
        wait_for(lambda: not extender.is_running, 10, "it has ended")
        extender.kill()

        extender.start()

        assert extender.pid != first
        assert extender.log().count('"extender starts"') == 2
        last = extender.pid
    assert not extender.is_running
    wait_for(lambda: not Path(f"/proc/{last}").exists(), 10, "its process is gone")
