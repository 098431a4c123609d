"""Reads the cluster through kubectl, which has the credentials, the proxies and both protocols.

docs/decisions/0044 states why this uses a child process, and neither a proxy of the API server nor
an implementation of the port-forward protocol.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import msgspec

from extender import yaml_loader
from extender.errors import InvalidInput
from extender.model.annotations import LEADER

#: The timeout of one request; an unreachable cluster should fail soon.
_REQUEST_S = 5
#: The timeout of the whole command: a person may have to log in first.
_COMMAND_S = 60.0
#: How long kubectl may take to terminate.
_END_S = 2.0
#: How often to check whether kubectl listens.
_POLL_S = 0.01
_FORWARDS = re.compile(rb"^Forwarding from 127\.0\.0\.1:(\d+) ", re.MULTILINE)
_PARENT_DIED = 1  # PR_SET_PDEATHSIG
#: Prefixes such as `Error from server (Forbidden): `; the sentence follows.
_PREFIX = re.compile(r"^(error: |Error from server[^:]*: |Unable to connect to the server: )")


class Kubectl:
    """Runs kubectl with a kubeconfig and a context, where they are given."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        self._flags = [
            *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []),
            *([f"--context={context}"] if context else []),
        ]

    def read(self, path: str) -> bytes:
        """Return the API server's answer for *path*; `InvalidInput` quotes kubectl's error."""
        command = self._command("get", "--raw", path, f"--request-timeout={_REQUEST_S}s")
        try:
            ran = subprocess.run(  # noqa: S603 - no shell, and kubectl checks what it is given
                command, capture_output=True, timeout=_COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            # A prompt of kubectl is not visible here.
            raise InvalidInput(
                f"kubectl did not answer within {_COMMAND_S:g} s; if it requires a login, log in"
                " first with `kubectl get pods`"
            ) from error
        except OSError as error:
            raise InvalidInput(f"kubectl cannot be run: {error.strerror}") from error
        if ran.returncode != 0:
            raise InvalidInput(_sentence(ran.stderr))
        return ran.stdout

    @contextmanager
    def forward(self, namespace: str, pod: str, port: int) -> Iterator[int]:
        """Yield a loopback port that is forwarded to *port* of *pod* inside the block."""
        args = ("port-forward", f"--namespace={namespace}", "--address=127.0.0.1")
        command = self._command(*args, f"pod/{pod}", f":{port}")
        # Use files, not pipes: kubectl would block on a full pipe that has no reader.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                child = subprocess.Popen(  # noqa: S603 - as above
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                raise InvalidInput(f"kubectl cannot be run: {error.strerror}") from error
            with _terminated(child):
                local_port = _port(child, out)
                if local_port is None:
                    raise InvalidInput(_sentence(_all(err)))
                yield local_port

    def _command(self, *args: str) -> list[str]:
        found = shutil.which("kubectl")
        if found is None:
            raise InvalidInput("kubectl is not on the PATH; it is needed to reach the extender")
        return [found, *self._flags, *args]


def _port(child: subprocess.Popen[bytes], out: IO[bytes]) -> int | None:
    """Wait until kubectl prints the port on which it listens; None if it ends or never does."""
    until = time.monotonic() + _COMMAND_S
    while time.monotonic() < until:
        has_ended = child.poll() is not None
        if found := _FORWARDS.search(_all(out)):
            return int(found[1])
        if has_ended:
            return None
        time.sleep(_POLL_S)
    return None


def _all(file: IO[bytes]) -> bytes:
    # Without seeking: kubectl shares the file offset and writes at it.
    return os.pread(file.fileno(), 1 << 16, 0)


@contextmanager
def _terminated(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Terminate *child* at the end of the block, also when a signal terminates this process."""
    with _exit_on_signals():
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Leave the block by an exception on SIGTERM and SIGHUP, so that it can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: object) -> None:
    sys.exit(128 + number)


def _end_with_parent() -> None:
    """Make the kernel terminate kubectl when this process is killed and cannot do so itself."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGTERM)


def _sentence(stderr: bytes) -> str:
    """Return the last line of stderr: the lines before it are kubectl's log."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it gives no reason")
    return f"kubectl: {_PREFIX.sub('', last)}"


Object = Mapping[str, Any]
OURS = "app.kubernetes.io/name=gang-extender"
_PORT_NAME = "ops"
_PORT = 8889


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A pod of the extender, and the port and scheme of its operations port."""

    namespace: str
    name: str
    port: int = _PORT
    scheme: str = "http"


def find_leader(kubectl: Kubectl, namespace: str) -> Leader:
    """Find the leader's pod in *namespace*; `InvalidInput` names the label that was searched for.

    Search no other namespace: otherwise any user who may label a pod could make it answer for the
    extender.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?labelSelector={quote(OURS)}"
    pods = _items(kubectl.read(path))
    if not pods:
        others = _other_namespaces(kubectl)
        where = f"namespace {namespace} has no pod with the label {OURS}"
        mend = f"they are in {others}, so give" if others else "if it is in another, give"
        other = others.split(", ")[0] or "NAMESPACE"
        raise InvalidInput(f"{where}; {mend} --extender-namespace {other}")
    leader = choose(pods)
    if leader is None:
        states = ", ".join(sorted(f"{_name(pod)} {_phase(pod)}" for pod in pods))
        raise InvalidInput(
            f"no extender runs in namespace {namespace}: {states}; see"
            f" kubectl describe pods -n {namespace} -l {OURS}"
        )
    return leader


def choose(pods: Sequence[Object]) -> Leader | None:
    """Return the best pod: with the leader label, ready, and not terminating."""
    running = [pod for pod in pods if _phase(pod) == "Running"]
    if not running:
        return None
    best = min(
        running,
        key=lambda pod: (
            not _leads(pod),
            bool(pod["metadata"].get("deletionTimestamp")),
            not _is_ready(pod),
            _name(pod),
        ),
    )
    port, scheme = _operations(best)
    return Leader(
        namespace=best["metadata"]["namespace"], name=_name(best), port=port, scheme=scheme
    )


def _other_namespaces(kubectl: Kubectl) -> str:
    """Return the namespaces that have such pods; empty without permission to list them."""
    try:
        found = _items(kubectl.read(f"/api/v1/pods?labelSelector={quote(OURS)}"))
    except InvalidInput:
        return ""
    return ", ".join(sorted({pod["metadata"]["namespace"] for pod in found}))


def _items(body: bytes) -> list[Object]:
    try:
        return list(msgspec.json.decode(body)["items"])
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput("kubectl reached a server that is not an API server") from error


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Unknown")


def _leads(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(LEADER) == "true"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _operations(pod: Object) -> tuple[int, str]:
    """Return the port by its name, and by its probe whether it speaks TLS."""
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == _PORT_NAME:
                probe = (container.get("livenessProbe") or {}).get("httpGet") or {}
                return int(port["containerPort"]), str(probe.get("scheme") or "HTTP").lower()
    return _PORT, "http"


_HOME = "~/.kube/config"
#: The namespace where no other is set, as for kubectl.
DEFAULT_NAMESPACE = "default"


def kubeconfig_exists(kubeconfig: str = "") -> bool:
    """Return whether kubectl has a cluster: by a file, or by the service account of this pod."""
    return has_kubeconfig(kubeconfig) or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def has_kubeconfig(kubeconfig: str = "") -> bool:
    """Return whether a kubeconfig file exists."""
    return any(path.exists() for path in _paths(kubeconfig))


def current_namespace(kubeconfig: str = "", context: str = "") -> str:
    """Return the namespace of *context*, or of the current context."""
    files = [*_files(kubeconfig)]
    in_use = context or next((f["current-context"] for f in files if f.get("current-context")), "")
    for file in files:
        for each in _list(file, "contexts"):
            if each.get("name") == in_use:
                about = each.get("context")
                namespace = about.get("namespace") if isinstance(about, Mapping) else None
                return str(namespace) if namespace else DEFAULT_NAMESPACE
    return DEFAULT_NAMESPACE


def _paths(kubeconfig: str) -> list[Path]:
    named = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    return [Path(each).expanduser() for each in ([*filter(None, named)] or [_HOME])]


def _files(kubeconfig: str) -> Iterator[Mapping[str, Any]]:
    for path in _paths(kubeconfig):
        if kubeconfig and not path.exists():
            raise InvalidInput(f"kubeconfig {path} does not exist")
        if path.exists():
            yield _read(path)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml_loader.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    except (InvalidInput, UnicodeDecodeError) as error:
        raise InvalidInput(f"kubeconfig {path} is not YAML") from error
    if found is not None and not isinstance(found, Mapping):
        raise InvalidInput(f"kubeconfig {path} is not a kubeconfig")
    return found or {}


def _list(file: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = file.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
