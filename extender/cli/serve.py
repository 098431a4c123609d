"""`gang-extender serve`: run the extender. Its flags are the settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeAlias

import click

from extender import logs, server
from extender.kube.client import ApiClient
from extender.policy_file import PolicyFile
from extender.settings import Settings, check_environment, flag, variable
from extender.tls import hook_secret
from extender.tls.server import hook_certificates, operations_certificates

Command: TypeAlias = Callable[..., Any]


def setting_option(name: str, *, variables: bool = False) -> Callable[[Command], Command]:
    """Return the flag of the setting *name*; with *variables*, its environment variable too."""
    each = next(each for each in fields(Settings) if each.name == name)
    repeated = isinstance(each.default, tuple)
    return click.option(
        flag(name),
        name,
        default=each.default,
        type=str if repeated else type(each.default),
        multiple=repeated,
        is_flag=isinstance(each.default, bool),
        envvar=variable(name) if variables else None,
        show_envvar=variables,
        show_default=each.default not in ("", ()),
        help=each.metadata["why"],
    )


def settings_options(command: Command) -> Command:
    """Add a flag and a variable for every setting to *command*."""
    for each in reversed(fields(Settings)):
        command = setting_option(each.name, variables=True)(command)
    return command


@click.command()
@settings_options
def serve(**values: Any) -> None:
    """Run the extender against the cluster of the kubeconfig or the pod."""
    check_environment(os.environ)
    settings = Settings(**values)
    logs.set_up(settings.log_level)
    # Read here too, although the worker reads them again: invalid input should end the command
    # with one line, not with a worker that fails to boot.
    ApiClient.load(settings.kubeconfig or None)
    PolicyFile(settings.config)
    hook_certificates(settings)
    operations_certificates(settings)
    hook_secret.read(settings.hook_secret_file)
    server.serve(settings)
