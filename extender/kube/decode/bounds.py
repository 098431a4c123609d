"""How large what tenants write may be; what is beyond is cut, and named.

The API server bounds an object as a whole, at about a megabyte and a half, and hardly anything in
it. Every bound here is far above what anybody needs and far below what would cost us.
"""

from __future__ import annotations

from hashlib import sha256

#: The longest name of anything in Kubernetes.
LONGEST_NAME = 253
#: Of a longer one so much is kept, for people.
_KEPT = 60
_LONGEST_SENTENCE = 300


def short(name: str) -> str:
    """Give *name*, or if it is longer than any can be one that is as good as unique.

    With a sign in it that no name of Kubernetes has, so that it is never taken for another.
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[:_KEPT]}~{digest[:32]}"


def brief(sentence: object) -> str:
    """Give a complaint, or the beginning of one that quotes at length what was written."""
    text = str(sentence)
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"
