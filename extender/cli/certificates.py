"""`gang-extender certificates` and `pair`: TLS files, or a shared secret, for the hooks."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from extender.doctor.scheduler_config import read_yaml
from extender.errors import InvalidInput
from extender.settings import Settings, is_loopback
from extender.tls import hook_secret
from extender.tls.issue import Authority, Pair

#: The validity of the CA. It is long, because replacing it means reconfiguring kube-scheduler.
_CA_DAYS = 3650
#: The names of the hooks without a Service.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.option(
    "--directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the files; created if it does not exist.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="One more name or address of the hooks, such as the ClusterIP of the Service. May be"
    " repeated.",
)
@click.option("--service", default="gang-extender", show_default=True, help="The Service.")
@click.option("--namespace", default="gang-system", show_default=True, help="Its namespace.")
@click.option(
    "--client-name",
    default=Settings().client_name[0],
    show_default=True,
    help="The name of kube-scheduler; must be one of `serve`'s --client-name.",
)
@click.option(
    "--days",
    default=365,
    show_default=True,
    type=click.IntRange(1, _CA_DAYS),
    help="The validity of both certificates; the CA is valid for ten years.",
)
@click.option("--renew", is_flag=True, help="Keep the existing CA, and sign both anew.")
@click.option("--force", is_flag=True, help="Replace all existing files, also the CA.")
@click.option(
    "--kubernetes-secrets",
    is_flag=True,
    help="Print both as Secrets too, without the CA's key.",
)
def certificates(
    directory: Path,
    hosts: tuple[str, ...],
    service: str,
    namespace: str,
    client_name: str,
    days: int,
    renew: bool,
    force: bool,
    kubernetes_secrets: bool,
) -> None:
    """Make certificates for the hooks and for kube-scheduler, signed by a CA of their own.

    Writes ca.crt, server.crt, server.key, client.crt and client.key, and ca.key, which only this
    command needs, to renew the others.
    """
    if renew:
        authority = _existing_authority(directory)
    else:
        _refuse_to_overwrite(directory, force)
        authority = Authority.new(f"{service} CA", _CA_DAYS)
    server = authority.for_server([*service_names(service, namespace), *_LOOPBACK, *hosts], days)
    client = authority.for_client(client_name, days)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, pair in {"ca": authority.pair, "server": server, "client": client}.items():
            _write(directory / f"{name}.key", pair.key, 0o600)
            _write(directory / f"{name}.crt", pair.certificate, 0o644)
    except OSError as error:
        raise InvalidInput(f"{error.filename}: cannot be written: {error.strerror}") from error
    if kubernetes_secrets:
        secrets = {f"{service}-tls": server, f"{service}-client": client}
        ca = authority.pair.certificate
        manifests = [_secret(name, namespace, pair, ca) for name, pair in secrets.items()]
        click.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)


def service_names(service: str, namespace: str) -> list[str]:
    """Return the DNS names of a Service inside its cluster."""
    qualified = f"{service}.{namespace}"
    return [service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local"]


def _existing_authority(directory: Path) -> Authority:
    try:
        return Authority.read(
            Pair((directory / "ca.crt").read_bytes(), (directory / "ca.key").read_bytes())
        )
    except OSError as error:
        raise InvalidInput(
            f"{error.filename}: cannot be read: {error.strerror}; --renew needs the CA's pair"
        ) from error


def _refuse_to_overwrite(directory: Path, force: bool) -> None:
    names = (f"{name}.{end}" for name in ("ca", "server", "client") for end in ("crt", "key"))
    existing = [name for name in names if (directory / name).exists()]
    if existing and not force:
        raise InvalidInput(
            f"{directory} already has {', '.join(existing)}; sign anew with --renew, or replace all"
            " with --force"
        )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically, and never with wider permissions than *mode*."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


def _secret(name: str, namespace: str, pair: Pair, ca: bytes) -> dict[str, object]:
    """Return a Secret with the keys that cert-manager uses."""
    data = {"ca.crt": ca, "tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


#: The files that `pair` writes.
SECRET_FILE = "hook-secret"  # noqa: S105 - the name of a file
CONFIG_FILE = "scheduler-config.yaml"


@click.command()
@click.option(
    "--scheduler-config",
    "config_file",
    required=True,
    type=click.Path(path_type=Path),
    help="kube-scheduler's configuration as `gang-extender scheduler-config` prints it.",
)
@click.option(
    "--directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of both files: a volume in memory that only these two containers mount.",
)
def pair(config_file: Path, directory: Path) -> None:
    """Make a secret, and kube-scheduler's configuration with it.

    For an init container. Writes hook-secret, for `serve --hook-secret-file`, and
    scheduler-config.yaml, which has it in the URL of the hooks. An existing secret is kept: init
    containers may run again while the others already run.
    """
    configuration = _read(config_file)
    secret_file = directory / SECRET_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        secret = secret_file.read_bytes().strip() if secret_file.exists() else b""
        if not hook_secret.is_secret(secret):
            secret = hook_secret.new()
            _write(secret_file, secret, 0o600)
        _write(directory / CONFIG_FILE, _with_secret(configuration, secret, config_file), 0o600)
    except OSError as error:
        raise InvalidInput(f"{error.filename}: cannot be written: {error.strerror}") from error


def _read(path: Path) -> dict[str, Any]:
    document = read_yaml(path)
    if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
        raise InvalidInput(f"--scheduler-config {path} is not a KubeSchedulerConfiguration")
    return document


def _with_secret(configuration: dict[str, Any], secret: bytes, path: Path) -> bytes:
    """Add the secret to the URLs of loopback, and to no other."""
    entries = [each for each in configuration.get("extenders") or () if isinstance(each, dict)]
    local = [each for each in entries if _is_local(str(each.get("urlPrefix") or ""))]
    if not local:
        raise InvalidInput(f"{path} has no extender at http://127.0.0.1 to send the secret to")
    for each in local:
        each["urlPrefix"] = hook_secret.into(each["urlPrefix"], secret)
    return yaml.safe_dump(configuration, sort_keys=False).encode()


def _is_local(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")
    except ValueError:
        return False
