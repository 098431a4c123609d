"""The policy file, read again when it changes; an invalid one leaves the old policy in force."""

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
#: The reasons of findings about a policy file.
REASONS = {
    REFUSED: Problem(
        "the policy file cannot be used as it is now", "the last good one stays in force"
    ),
    IGNORED_FIELD: Problem("an argument in it that no plugin or action reads", "it does nothing"),
}
#: Lines of YAML without content.
_EMPTY_LINES = ("", "---", "...")


class PolicyFile:
    """The policy in force; without a *path* it is always the built-in one."""

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None
        #: The text parsed last; None when the file could not be read.
        self._text: str | None = ""
        #: Why the current file is not in force, in one sentence; empty when it is.
        self.problem = ""
        self._policy = policy_parser.DEFAULT
        if self._path is not None:
            self._text = self._read(self._path)
            self._policy = self._parse(self._text)

    def current(self) -> Policy:
        """Reread the file if it changed and return the policy in force.

        The content is compared, not the time: a ConfigMap volume is updated by a symbolic link.
        """
        if self._path is None:
            return self._policy
        try:
            text = self._read(self._path)
            if text != self._text:
                self._apply(text)
        except InvalidConfiguration as error:
            self._keep_old(str(error))
        return self._policy

    def _apply(self, text: str) -> None:
        self._text = text
        self._policy = self._parse(text)
        self.problem = ""
        event(log, logging.INFO, "policy reloaded", file=str(self._path))

    def notes(self) -> list[str]:
        """Return what should be corrected in the file."""
        return [f"policy: {why}" for why in (self.problem, *self._policy.remarks) if why]

    def findings(self) -> tuple[Finding, ...]:
        """Return the same as findings."""
        name = str(self._path)
        refused = [Finding(POLICY, name, REFUSED, self.problem)] if self.problem else []
        idle = (Finding(POLICY, name, IGNORED_FIELD, why) for why in self._policy.remarks)
        return (*refused, *idle)

    def _keep_old(self, problem: str) -> None:
        if problem != self.problem:
            event(log, logging.ERROR, "policy kept: the new file cannot be used", why=problem)
        self.problem = problem

    def _parse(self, text: str) -> Policy:
        # Writing a file in place truncates it first, and a full disk leaves it empty. An empty
        # file is therefore no request for the built-in policy, which preempts and reclaims.
        if all(line.partition("#")[0].strip() in _EMPTY_LINES for line in text.splitlines()):
            raise InvalidConfiguration(
                f"{self._path}: is empty; write the policy into it, or start without --config"
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
