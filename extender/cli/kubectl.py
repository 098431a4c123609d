"""kubectl as our way into a cluster: it has the credentials, the proxies and both protocols.

See docs/decisions/0034: why a child process, and neither a proxy of the API server nor a protocol
of our own.
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
from extender.kube.write.leader import LABEL

#: Of one request; a cluster that is not there is found out soon.
_REQUEST_S = 5
#: Of the whole command: a person may have to log in first.
_COMMAND_S = 60.0
#: How long it may take to end when it is asked to.
_END_S = 2.0
#: How often we look whether it listens.
_LOOK_S = 0.01
_FORWARDS = re.compile(rb"^Forwarding from 127\.0\.0\.1:(\d+) ", re.MULTILINE)
_PARENT_DIED = 1  # PR_SET_PDEATHSIG
#: `Error from server (Forbidden): ` and the like; what follows is the sentence.
_PREFIX = re.compile(r"^(error: |Error from server[^:]*: |Unable to connect to the server: )")


class Kubectl:
    """Runs kubectl with a kubeconfig and a context, where some were named."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        self._flags = [
            *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []),
            *([f"--context={context}"] if context else []),
        ]

    def read(self, path: str) -> bytes:
        """Give what the API server has at *path*; `BadInput` says what kubectl said."""
        command = self._command("get", "--raw", path, f"--request-timeout={_REQUEST_S}s")
        try:
            ran = subprocess.run(  # noqa: S603 - no shell, and kubectl checks what it is given
                command, capture_output=True, timeout=_COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            # What it asks of a person is not seen here.
            raise InvalidInput(
                f"kubectl did not answer within {_COMMAND_S:g} s; if it wants you to log in, do so"
                " first, with `kubectl get pods`"
            ) from error
        except OSError as error:
            raise InvalidInput(f"kubectl cannot be run: {error.strerror}") from error
        if ran.returncode != 0:
            raise InvalidInput(_sentence(ran.stderr))
        return ran.stdout

    @contextmanager
    def forward(self, namespace: str, pod: str, port: int) -> Iterator[int]:
        """Give a port of loopback that leads to *port* of *pod*, while the block lasts."""
        words = ("port-forward", f"--namespace={namespace}", "--address=127.0.0.1")
        command = self._command(*words, f"pod/{pod}", f":{port}")
        # Into files: of a pipe that nobody reads, kubectl would one day wait for a reader.
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as complained:
            try:
                child = subprocess.Popen(  # noqa: S603 - as above
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=told,
                    stderr=complained,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                raise InvalidInput(f"kubectl cannot be run: {error.strerror}") from error
            with _ended(child):
                port_there = _port(child, told)
                if port_there is None:
                    raise InvalidInput(_sentence(_all(complained)))
                yield port_there

    def _command(self, *words: str) -> list[str]:
        found = shutil.which("kubectl")
        if found is None:
            raise InvalidInput("kubectl is not on the PATH, and leads to the extender's pod")
        return [found, *self._flags, *words]


def _port(child: subprocess.Popen[bytes], told: IO[bytes]) -> int | None:
    """Wait until it says on which port it listens; None when it ends or never does."""
    until = time.monotonic() + _COMMAND_S
    while time.monotonic() < until:
        has_ended = child.poll() is not None
        if found := _FORWARDS.search(_all(told)):
            return int(found[1])
        if has_ended:
            return None
        time.sleep(_LOOK_S)
    return None


def _all(file: IO[bytes]) -> bytes:
    # Not by seeking: the place where kubectl writes would move along.
    return os.pread(file.fileno(), 1 << 16, 0)


@contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let it end with the block, also when we are asked to end ourselves."""
    with _terminating():
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
def _terminating() -> Iterator[None]:
    """Leave through the blocks on SIGTERM and SIGHUP, instead of in the middle of one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _end_with_parent() -> None:
    """Have the kernel end kubectl when we are killed and can end nobody any more."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGTERM)


def _sentence(said: bytes) -> str:
    """Give the last line: those before it are its log."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "it does not say why")
    return f"kubectl: {_PREFIX.sub('', last)}"


Object = Mapping[str, Any]
OURS = "app.kubernetes.io/name=gang-extender"
_PORT_NAME = "ops"
_PORT = 8889


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A pod that can be asked, and how its operations port is spoken to."""

    namespace: str
    name: str
    port: int = _PORT
    scheme: str = "http"


def find_leader(kubectl: Kubectl, namespace: str) -> Leader:
    """Find the leading pod in *namespace*; `BadInput` says what was looked for.

    Nowhere else: whoever may label a pod of his own could otherwise answer for the extender.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?labelSelector={quote(OURS)}"
    pods = _items(kubectl.read(path))
    if not pods:
        elsewhere = _elsewhere(kubectl)
        where = f"namespace {namespace} has no pod with the label {OURS}"
        mend = f"they are in {elsewhere}, so say" if elsewhere else "if it is in another, say"
        other = elsewhere.split(", ")[0] or "NAMESPACE"
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
    """Give the one to ask: with the leader's label, ready, and not about to go."""
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


def _elsewhere(kubectl: Kubectl) -> str:
    """Name the namespaces that have such pods; whoever may not look there learns nothing."""
    try:
        found = _items(kubectl.read(f"/api/v1/pods?labelSelector={quote(OURS)}"))
    except InvalidInput:
        return ""
    return ", ".join(sorted({pod["metadata"]["namespace"] for pod in found}))


def _items(body: bytes) -> list[Object]:
    try:
        return list(msgspec.json.decode(body)["items"])
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput("kubectl reached something that is no API server") from error


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Unknown")


def _leads(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(LABEL) == "true"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _operations(pod: Object) -> tuple[int, str]:
    """Read the port by its name, and by its probe whether it speaks TLS."""
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == _PORT_NAME:
                probe = (container.get("livenessProbe") or {}).get("httpGet") or {}
                return int(port["containerPort"]), str(probe.get("scheme") or "HTTP").lower()
    return _PORT, "http"


_HOME = "~/.kube/config"
#: Where nothing else is said, as for kubectl.
DEFAULT_NAMESPACE = "default"


def kubeconfig_exists(kubeconfig: str = "") -> bool:
    """Ask whether kubectl would know a cluster: by a file, or by the account of this pod."""
    return has_kubeconfig(kubeconfig) or bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def has_kubeconfig(kubeconfig: str = "") -> bool:
    """Ask whether there is a file of it."""
    return any(path.exists() for path in _paths(kubeconfig))


def contexts(kubeconfig: str = "") -> list[str]:
    """Give the names of all contexts."""
    found = (each.get("name") for file in _files(kubeconfig) for each in _list(file, "contexts"))
    return sorted({name for name in found if isinstance(name, str)})


def current_namespace(kubeconfig: str = "", context: str = "") -> str:
    """Give the namespace of *context*, or of the one in use."""
    files = [*_files(kubeconfig)]
    in_use = context or next((f["current-context"] for f in files if f.get("current-context")), "")
    for file in files:
        for each in _list(file, "contexts"):
            if each.get("name") == in_use:
                about = each.get("context")
                said = about.get("namespace") if isinstance(about, Mapping) else None
                return str(said) if said else DEFAULT_NAMESPACE
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
