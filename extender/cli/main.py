"""The command itself: `gang-extender WORD`. Exit code 0 done, 1 "no" as an answer, 2 bad input."""

from __future__ import annotations

import sys

import click

from extender import __version__
from extender.cli.certificates import certificates
from extender.cli.demo import demo
from extender.cli.doctor import doctor
from extender.cli.explain import explain
from extender.cli.plan import plan
from extender.cli.scheduler_config import scheduler_config
from extender.cli.serve import serve
from extender.cli.top import top
from extender.errors import BadInput, ExtenderError


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ExtenderError as error:
            click.echo(f"gang-extender: {error}", err=True)
            sys.exit(2 if isinstance(error, BadInput) else 1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gang-extender")
def main() -> None:
    """Gang admission, DRF order and weighted queues for the stock kube-scheduler."""


for word in (serve, demo, plan, explain, top, doctor, scheduler_config, certificates):
    main.add_command(word)
