"""The command itself: `gang-extender WORD`, or `kubectl gang WORD`.

Exit code 0 done, 1 "no" as an answer, 2 bad input or nobody who can be asked.
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

#: Each is imported when it is asked for: a shell that completes a word has no time for all of them.
_WORDS = {
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


class _Words(MutableMapping[str, click.Command]):
    """The commands by their word; one that is looked at is imported."""

    def __init__(self) -> None:
        self._there: dict[str, click.Command] = {}

    def __getitem__(self, word: str) -> click.Command:
        if word not in self._there:
            found = getattr(import_module(_WORDS[word]), word.replace("-", "_"))
            self._there[word] = found
        return self._there[word]

    def __setitem__(self, word: str, command: click.Command) -> None:
        self._there[word] = command

    def __delitem__(self, word: str) -> None:
        del self._there[word]

    def __iter__(self) -> Iterator[str]:
        return iter(_WORDS)

    def __len__(self) -> int:
        return len(_WORDS)


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the words in the order in which a newcomer meets them."""
        return list(_WORDS)

    def main(self, *words: Any, **rest: Any) -> Any:
        """Run, and say which command it is as it was typed."""
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a letter shows another one, instead of a traceback.
            if (change := getattr(stream, "reconfigure", None)) is not None:
                change(errors="replace")
        if os.path.basename(sys.argv[0]) == "kubectl-gang":
            rest.setdefault("prog_name", "kubectl gang")
        return super().main(*words, **rest)

    def make_context(self, *words: Any, **rest: Any) -> click.Context:
        """Read what was typed before the word."""
        with _one_sentence():
            return super().make_context(*words, **rest)

    def invoke(self, ctx: click.Context) -> object:
        """Run a word."""
        with _one_sentence():
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done


@contextmanager
def _one_sentence() -> Iterator[None]:
    """End with a line and a code that say what was wrong, whoever noticed it."""
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
        _end(2, f"{error.format_message().rstrip('.')}{help_}")
    except ExtenderError as error:
        _end(2 if isinstance(error, InvalidInput | ApiError) else 1, str(error))


def _end(code: int, sentence: str) -> NoReturn:
    print_error(f"gang-extender: {' '.join(sentence.split())}")
    sys.exit(code)


@click.group(
    cls=_Group,
    commands=_Words(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gang-extender")
def main() -> None:
    """Gang admission, DRF order and weighted queues for the stock kube-scheduler."""
