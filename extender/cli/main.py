"""The command group: `gang-extender COMMAND`, or `kubectl gang COMMAND`.

Exit code 0 success, 1 a negative answer, 2 invalid input or no extender reachable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import click

from extender import __version__
from extender.cli.output import end_of_pipe, print_error
from extender.errors import ApiError, ExtenderError, InvalidInput

#: By command, its module, imported on use: shell completion has no time to import all of them.
_COMMANDS = {
    "serve": "extender.cli.serve",
    "demo": "extender.cli.demo",
    "plan": "extender.cli.plan",
    "simulate": "extender.cli.simulate",
    "replay": "extender.cli.replay",
    "explain": "extender.cli.explain",
    "gangs": "extender.cli.listing",
    "queues": "extender.cli.listing",
    "top": "extender.cli.listing",
    "doctor": "extender.cli.doctor",
    "scheduler-config": "extender.cli.scheduler_config",
    "certificates": "extender.cli.certificates",
    "pair": "extender.cli.certificates",
    "completion": "extender.cli.completion",
}


class _LazyCommands(MutableMapping[str, click.Command]):
    """The commands by name, each imported on first access."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            found = getattr(import_module(_COMMANDS[name]), name.replace("-", "_"))
            self._loaded[name] = found
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a new user needs them."""
        return list(_COMMANDS)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command, named in its messages as it was typed."""
        for stream in (sys.stdout, sys.stderr):
            # Replace a character that the terminal cannot encode, instead of a traceback.
            if (change := getattr(stream, "reconfigure", None)) is not None:
                change(errors="replace")
        if os.path.basename(sys.argv[0]) == "kubectl-gang":
            kwargs.setdefault("prog_name", "kubectl gang")
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the options before the command."""
        with _errors_as_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        with _errors_as_one_line():
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done


@contextmanager
def _errors_as_one_line() -> Iterator[None]:
    """Turn an error into one line on standard error and an exit code."""
    try:
        yield
    except BrokenPipeError:
        end_of_pipe()
    except KeyboardInterrupt:
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        help_ = f"; see {error.ctx.command_path} --help" if error.ctx else ""
        _fail(2, f"{error.format_message().rstrip('.')}{help_}")
    except ExtenderError as error:
        _fail(2 if isinstance(error, InvalidInput | ApiError) else 1, str(error))


def _fail(code: int, sentence: str) -> NoReturn:
    print_error(f"gang-extender: {' '.join(sentence.split())}")
    sys.exit(code)


@click.group(
    cls=_Group,
    commands=_LazyCommands(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gang-extender")
def main() -> None:
    """Gang admission, DRF order and weighted queues for the stock kube-scheduler."""
