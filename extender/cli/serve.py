"""`gang-extender serve`: the webhook. Its flags are the settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from extender import logs, server
from extender.kube.api.client import Access
from extender.policyfile import PolicyFile
from extender.settings import Settings, check_environment, variable


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* a flag and a variable for every setting."""
    for each in reversed(fields(Settings)):
        repeated = isinstance(each.default, tuple)
        command = click.option(
            f"--{each.name.replace('_', '-')}",
            each.name,
            default=each.default,
            type=str if repeated else type(each.default),
            multiple=repeated,
            is_flag=isinstance(each.default, bool),
            envvar=variable(each.name),
            show_envvar=True,
            show_default=each.default != "",
            help=each.metadata["why"],
        )(command)
    return command


@click.command()
@settings_options
def serve(**values: Any) -> None:
    """Run the webhook against the cluster of the kubeconfig or the pod."""
    check_environment(os.environ)
    settings = Settings(**values)
    logs.set_up(settings.log_level)
    # Read here too, although the worker reads them again: bad input should end the command with
    # one line, not with a worker that fails to boot.
    Access.load(settings.kubeconfig or None)
    PolicyFile(settings.config)
    server.serve(settings)
