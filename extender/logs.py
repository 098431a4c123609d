"""Write one line of JSON per decision: a constant sentence, then facts with fixed names.

`gang`, `pod`, `queue`, `node`, `reason` and `cycle` are always spelled the same, so that one
search finds all lines about an object.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable

from extender.text import escaped

#: The minimum interval of lines of one kind.
REPEAT_S = 60.0


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return escaped(json.dumps(line, default=str, ensure_ascii=False))


def set_up(level: str) -> None:
    """Write every log line, including those of libraries, to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


class RateLimitedLog:
    """Logs at most one line of a kind in *every_s*, with the number of suppressed lines.

    A metric or a status counts the suppressed ones; the log needs one example.
    """

    def __init__(
        self,
        log: logging.Logger,
        every_s: float = REPEAT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._every_s = every_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: By kind, the time of the last line and how many were suppressed since. Kinds are few:
        #: constant sentences and HTTP status codes.
        self._logged: dict[tuple[str, int], tuple[float, int]] = {}

    def event(self, level: int, sentence: str, status: int = 0, **facts: object) -> None:
        """Log *sentence*, unless it was logged lately with the same *status*."""
        now, kind = self._monotonic(), (sentence, status)
        with self._lock:
            at, suppressed = self._logged.get(kind, (float("-inf"), 0))
            if now - at < self._every_s:
                self._logged[kind] = at, suppressed + 1
                return
            self._logged[kind] = now, 0
        numbers = {"status": status, "unsaid": suppressed}
        event(self._log, level, sentence, **facts, **{k: n for k, n in numbers.items() if n})


def event(log: logging.Logger, level: int, sentence: str, **facts: object) -> None:
    """Log *sentence* with its *facts*."""
    if log.isEnabledFor(level):
        log.log(level, sentence, extra={"facts": facts})
