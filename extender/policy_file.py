"""The policy file, read again when it changes; a bad one keeps the old policy running."""

from __future__ import annotations

import logging
from pathlib import Path

from extender.errors import InvalidConfiguration
from extender.findings.finding import IGNORED_FIELD, POLICY, Finding, Problem
from extender.logs import event
from extender.planner import policy_parser
from extender.planner.policy import Policy

log = logging.getLogger(__name__)
REFUSED = "Refused"
#: All about a policy file.
REASONS = {
    REFUSED: Problem(
        "the policy file cannot be used as it is now", "the last good one stays in force"
    ),
    IGNORED_FIELD: Problem("an argument in it that no plugin or action reads", "it does nothing"),
}
#: Lines of YAML without a word.
_NOTHING = ("", "---", "...")


class PolicyFile:
    """The policy in force; without a *path* it is the built-in one for ever."""

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None
        #: What was judged last; None when nothing could be read.
        self._text: str | None = ""
        #: Why the file as it is now is not in force, in one sentence; empty when it is.
        self.problem = ""
        self._policy = policy_parser.DEFAULT
        if self._path is not None:
            self._text = self._read(self._path)
            self._policy = self._parse(self._text)

    def current(self) -> Policy:
        """Give the policy in force, after a look at the file.

        The content is compared, not the time: a ConfigMap is swapped by a link.
        """
        if self._path is None:
            return self._policy
        try:
            text = self._read(self._path)
            if text != self._text:
                self._take(text)
        except InvalidConfiguration as error:
            self._keep(str(error))
        return self._policy

    def _take(self, text: str) -> None:
        self._text = text
        self._policy = self._parse(text)
        self.problem = ""
        event(log, logging.INFO, "policy reloaded", file=str(self._path))

    def notes(self) -> list[str]:
        """Say what should be mended in the file although we go on."""
        return [f"policy: {why}" for why in (self.problem, *self._policy.remarks) if why]

    def findings(self) -> tuple[Finding, ...]:
        """Give the same as findings."""
        name = str(self._path)
        refused = [Finding(POLICY, name, REFUSED, self.problem)] if self.problem else []
        idle = (Finding(POLICY, name, IGNORED_FIELD, why) for why in self._policy.remarks)
        return (*refused, *idle)

    def _keep(self, problem: str) -> None:
        if problem != self.problem:
            event(log, logging.ERROR, "policy kept: the new file cannot be used", why=problem)
        self.problem = problem

    def _parse(self, text: str) -> Policy:
        # Whoever writes a file in place empties it first, and a full disk leaves it so: that is
        # nobody's wish to have the built-in policy, which makes others leave.
        if all(line.partition("#")[0].strip() in _NOTHING for line in text.splitlines()):
            raise InvalidConfiguration(
                f"{self._path}: says nothing; write the policy into it, or start without --config"
                " for the built-in one"
            )
        return policy_parser.parse(text, str(self._path))

    def _read(self, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            self._text = None
            raise InvalidConfiguration(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            self._text = None
            raise InvalidConfiguration(f"{path}: is not text in UTF-8") from error
