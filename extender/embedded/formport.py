"""The operations port of the demo: the same, and one form that may be posted by its own page.

A page of somebody else may let the browser of whoever looks at it post to loopback, and a name of
its own may lead there. Browsers say where a form comes from, in a header that no page can write.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from extender.embedded.form import GangForm
from extender.embedded.running import MakePort
from extender.settings import is_loopback
from extender.web.app import Pages
from extender.web.http.desk import Inquiry
from extender.web.http.refusals import Refusal
from extender.web.pageport import LIMITS, PageConnection, PagePort
from extender.wiring import Runtime

#: A form that is filled in honestly has some hundred bytes.
MOST_BYTES = 4096
_MEDIA = b"application/x-www-form-urlencoded"
_ELSEWHERE = Refusal(403, "browser", "a gang is submitted from the page of the demo itself")
_HOST = Refusal(403, "host", "open the page at the address that the demo shows")
_MEDIA_TYPE = Refusal(415, "media_type", f"a form is sent as {_MEDIA.decode()}")
_LONG = Refusal(413, "body", f"the form is over {MOST_BYTES} bytes")


class FormPort(PagePort):
    """Shows pages, and takes the form."""

    def __init__(self, pages: Pages) -> None:
        super().__init__(pages, limits=replace(LIMITS, body=MOST_BYTES))

    def connection(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        return FormConnection(self)


class FormConnection(PageConnection):
    """One connection of somebody who looks, and may submit."""

    def _called(self) -> None:
        path = self._url.partition(b"?")[0]
        if self._parser.get_method() != b"POST" or path != f"/{GangForm.PATH}".encode():
            super()._called()
            return
        refusal = judge(self._headers) or (_LONG if self._size > MOST_BYTES else None)
        if refusal is not None:
            self._turn_away(refusal)
            return
        body, self._body = bytes(self._body), b""
        self._wait()
        self._port.desk.ask(
            Inquiry(
                method=b"POST",
                path=path,
                since=time.monotonic(),
                is_wanted=lambda: not self._is_over,
                take=self._take,
                form=body,
            )
        )


def judge(headers: list[tuple[bytes, bytes]]) -> Refusal | None:
    """Say why a form is not taken: it must come from a page of ours, at an address of ours."""
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        said.setdefault(name.lower(), []).append(value.strip())
    hosts, origins = said.get(b"host", []), said.get(b"origin", [])
    if len(hosts) != 1 or not is_loopback(_name(hosts[0])):
        return _HOST
    if origins != [b"http://" + hosts[0]]:
        return _ELSEWHERE
    if any(site != b"same-origin" for site in said.get(b"sec-fetch-site", ())):
        return _ELSEWHERE
    types = said.get(b"content-type", [])
    if len(types) != 1 or types[0].partition(b";")[0].strip().lower() != _MEDIA:
        return _MEDIA_TYPE
    return None


def with_form(form: GangForm | None) -> MakePort:
    """Say how the port is made: with *form*, or without any way to change something."""

    def make(runtime: Runtime) -> PagePort:
        if form is None:
            return PagePort(runtime.pages)
        site = runtime.pages.site
        site.sections.append((form.PATH, form.TITLE))
        runtime.pages.register_blueprint(form.blueprint(site))
        return FormPort(runtime.pages)

    return make


def _name(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
