"""Removes from text the characters that control a terminal, a log viewer or the reading order.

Names, messages and annotations are untrusted. C0 and C1 controls move the cursor and begin escape
sequences. Bidirectional marks show letters in another order than they have. Line separators begin
a line that looks like one of ours.
"""

from __future__ import annotations

import re
import reprlib

#: Control characters above C0: invisible ones that change how others look, and lone surrogates.
_ABOVE = (
    r"\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_CONTROL = re.compile(rf"[\x00-\x1f{_ABOVE}]")
_CONTROL_ABOVE_C0 = re.compile(rf"[{_ABOVE}]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120
_SHORT.maxlong = 40


def clean(text: object) -> str:
    """Return *text* on one line, with a replacement for every control character."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def steers(text: str) -> bool:
    """Return whether *text* has control characters other than line breaks (C0 controls)."""
    return bool(_CONTROL_ABOVE_C0.search(text))


def escaped(json: str) -> str:
    """Return a JSON document with control characters in JSON's own escapes.

    Its meaning stays. A JSON encoder leaves no C0 control but the white space between tokens.
    """
    return _CONTROL_ABOVE_C0.sub(_json_escape, json)


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def lines(*sentences: str) -> str:
    """Return each of *sentences*, cleaned, on a line of its own."""
    return "".join(f"{clean(each)}\n" for each in sentences)


def as_text(value: object) -> str:
    """Return *value* if it is a string, and else its shortened representation."""
    return value if isinstance(value, str) else shown(value)


def shown(value: object) -> str:
    """Return a short representation of *value* for a sentence; never fail."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print a number of more than some thousand digits
        return "a number of thousands of digits"
