"""`python -m tests.cluster`: build the control plane, or run one."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests import objects

from .binaries import LANDING, NEEDED_BY_TESTS, ControlPlaneUnavailable, ensure
from .control_plane import MANIFESTS, ControlPlane
from .extender_process import REPOSITORY, Extender
from .processes import NeverReady


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the binaries that the tests need")
    build.add_argument("names", nargs="*", help="only these binaries")
    build.add_argument("--landing", action="store_true", help="only those that `make e2e` needs")
    up = commands.add_parser("up", help="run a cluster with the extender until Ctrl-C")
    up.add_argument("--nodes", type=int, default=5, help="number of nodes of 4 cpu and 16Gi")
    return parser


def main() -> int:
    wanted = arguments().parse_args()
    try:
        if wanted.command == "build":
            names = wanted.names or (LANDING if wanted.landing else NEEDED_BY_TESTS)
            for path in ensure(*names).values():
                print(path)
            return 0
        return run(wanted.nodes)
    except (ControlPlaneUnavailable, NeverReady) as why:
        print(f"no control plane: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0 if wanted.command == "up" else 1


def run(node_count: int) -> int:
    """Run the cluster until Ctrl-C, or until one of its programs ends."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*LANDING, "kube-controller-manager")
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="gang-extender-"))
        plane = running.enter_context(ControlPlane(Path(folder) / "cluster"))
        plane.install()
        running.enter_context(plane.controllers())
        extender = running.enter_context(plane.extender())
        running.enter_context(plane.scheduler(plane.scheduler_config(extender)))
        names = [f"node-{index}" for index in range(1, node_count + 1)]
        plane.api.create(*(objects.node(name) for name in names))
        plane.wait_until_nodes_are_ready(names)
        print(welcome(plane, extender, node_count), flush=True)
        while all(program.is_running for program in plane.programs):
            time.sleep(0.5)
        for program in plane.programs:
            if not program.is_running:
                print(f"{program.name} has ended:\n{program.log_tail()}", file=sys.stderr)
    return 1


def welcome(plane: ControlPlane, extender: Extender, node_count: int) -> str:
    kubectl = "kubectl" if shutil.which("kubectl") else str(ensure("kubectl")["kubectl"])
    example = (MANIFESTS / "examples" / "gang.yaml").relative_to(REPOSITORY)
    return f"""\
{node_count} nodes are ready. In another terminal:

  export KUBECONFIG={plane.kubeconfig()}
  export GANG_EXTENDER_OPS_URL={extender.ops_url}
  {kubectl} apply -f {example}
  {kubectl} get podgroups,pods --output wide

The nodes are simulated: a pod runs until it is deleted. It needs schedulerName gang-scheduler.

Dashboard  {extender.ops_url}/
Logs       {plane.logs}

Ctrl-C ends it and removes everything."""


if __name__ == "__main__":
    sys.exit(main())
