"""Text that is only text: nothing in it steers a terminal, a log viewer or the eye.

Names, messages and annotations come from strangers. C0 and C1 controls move cursors and begin
escape sequences; the marks of writing direction show letters in another order than they have; line
separators begin a line that looks like one of ours.
"""

from __future__ import annotations

import re
import reprlib

#: Above the C0 controls: all that do not print and change how others look, and half characters.
_ABOVE = (
    r"\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_STEERING = re.compile(rf"[\x00-\x1f{_ABOVE}]")
_UNWRITTEN = re.compile(rf"[{_ABOVE}]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120
_SHORT.maxlong = 40


def clean(text: object) -> str:
    """Give *text* on one line, with a mark in the place of whatever would steer."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", str(text))


def steers(text: str) -> bool:
    """Ask whether *text*, of which line breaks are part, holds anything else that would steer."""
    return bool(_UNWRITTEN.search(text))


def escaped(json: str) -> str:
    """Give the text of a JSON document with such characters in its own notation.

    It means the same. What writes JSON leaves no C0 control in it but those between its parts.
    """
    return _UNWRITTEN.sub(_unit, json)


def _unit(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def lines(*sentences: str) -> str:
    """Give each of *sentences* on a line of its own, whatever is in it."""
    return "".join(f"{clean(each)}\n" for each in sentences)


def as_text(value: object) -> str:
    """Give what was written, where it should be a text and may be anything."""
    return value if isinstance(value, str) else shown(value)


def shown(value: object) -> str:
    """Quote *value* in a sentence: cut where it is long, and never fail."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a number of thousands of digits"
