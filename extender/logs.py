"""One line of JSON per decision: a constant sentence, then facts under fixed names.

`gang`, `pod`, `queue`, `node`, `reason` and `cycle` are always spelt the same, so that one
search finds the whole story.
"""

from __future__ import annotations

import json
import logging
import sys
import time


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
        return json.dumps(line, default=str, ensure_ascii=False)


def set_up(level: str) -> None:
    """Send every log line, also those of the libraries, to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("urllib3").setLevel(logging.ERROR)


def event(log: logging.Logger, level: int, sentence: str, **facts: object) -> None:
    """Log *sentence* with its *facts*."""
    if log.isEnabledFor(level):
        log.log(level, sentence, extra={"facts": facts})
