"""The form of the demo, with which visitors of the page submit gangs to the embedded cluster.

Only the demo uses it: the pages of `serve` change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from flask import Blueprint, Response, redirect, request
from flask.typing import ResponseReturnValue

from extender.demo.acts import QUEUES, job
from extender.demo.embedded import MakePort
from extender.demo.story import Scene
from extender.errors import InvalidInput
from extender.hooks.http_connection import HttpConnection
from extender.hooks.limits import Refusal
from extender.settings import is_loopback
from extender.sim.workloads import Job
from extender.text import shown
from extender.web.app import OperationsApp
from extender.web.dashboard.routes import Dashboard
from extender.web.server import LIMITS, OperationsServer
from extender.wiring import Runtime

#: A name that the API server accepts.
_NAME = re.compile("[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
MOST_GANGS, MOST_PODS = 24, 200


class Field(NamedTuple):
    """A number field of the form."""

    label: str
    least: int
    most: int
    usual: int


FIELDS = {
    "pods": Field("pods", 1, 36, 6),
    "least": Field("at least this many at once", 1, 36, 6),
    "cpus": Field("cpus of each pod", 1, 9, 3),
    "gibibytes": Field("GiB of memory of each pod", 1, 18, 2),
    "seconds": Field("seconds of work", 1, 3600, 20),
}


class GangForm:
    """The form: closed while the story runs, which submissions would change, then open."""

    PATH = "submit"
    TITLE = "Submit a gang"

    def __init__(self) -> None:
        self._scene: Scene | None = None

    def open(self, scene: Scene) -> None:
        """Accept gangs from now on."""
        self._scene = scene

    def blueprint(self, site: Dashboard) -> Blueprint:
        """Return the routes; the pages look like those of *site*."""
        routes = Blueprint("form", __name__, template_folder="templates")

        def ask() -> ResponseReturnValue:
            return self._page(site, {}, "")

        def submit() -> ResponseReturnValue:
            given = {name: request.form.get(name, "") for name in ("name", "queue", *FIELDS)}
            try:
                self.submit(given)
            except InvalidInput as error:
                return self._page(site, given, str(error), 422)
            # Never 200: a page with status 200 may be served again from the cache.
            return redirect(self.PATH, 303)

        routes.add_url_rule(f"/{self.PATH}", "ask", ask, methods=["GET"])
        routes.add_url_rule(f"/{self.PATH}", "submit", submit, methods=["POST"])
        return routes

    def submit(self, given: Mapping[str, str]) -> Job:
        """Create the requested gang, or raise `InvalidInput`."""
        if self._scene is None:
            raise InvalidInput("the story is still running; submit the gang again when it is over")
        requested = read(given)
        present = self._scene.jobs
        if any(each.name == requested.name for each in present):
            raise InvalidInput(f"there is a gang {requested.name} already; choose another name")
        pods = sum(each.size for each in present) + requested.size
        if len(present) >= MOST_GANGS or pods > MOST_PODS:
            raise InvalidInput(
                f"more than {MOST_GANGS} gangs or {MOST_PODS} pods at a time are too many for a"
                " demo; wait until some have ended"
            )
        self._scene.submit(requested)
        return requested

    def _page(
        self, site: Dashboard, given: Mapping[str, str], problem: str, status: int = 200
    ) -> Response:
        page = site.page_with_gangs(
            "submit.html",
            self.PATH,
            self.TITLE,
            {
                "given": given,
                "problem": problem,
                "fields": FIELDS,
                "choices": QUEUES,
                "is_open": self._scene is not None,
            },
            status,
        )
        # Without a referrer a browser sends the form with the origin "null".
        page.headers["referrer-policy"] = "same-origin"
        return page


def read(given: Mapping[str, str]) -> Job:
    """Parse a job from the fields of the form."""
    name = given.get("name", "")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a gang; write up to 40 of a-z, 0-9 and -"
        )
    queue = given.get("queue", "")
    if queue not in QUEUES:
        raise InvalidInput(f"there is no queue {shown(queue)}; choose {' or '.join(QUEUES)}")
    numbers = {key: _number(given.get(key, ""), field) for key, field in FIELDS.items()}
    if numbers["least"] > numbers["pods"]:
        raise InvalidInput(
            f"at least {numbers['least']} of {numbers['pods']} pods is impossible; lower it"
        )
    return job(
        name,
        queue,
        numbers["pods"],
        {"cpu": str(numbers["cpus"]), "memory": f"{numbers['gibibytes']}Gi"},
        least=numbers["least"],
        lasts_s=float(numbers["seconds"]),
    )


def _number(text: str, field: Field) -> int:
    if re.fullmatch("[0-9]{1,4}", text) and field.least <= int(text) <= field.most:
        return int(text)
    raise InvalidInput(
        f"{field.label}: {shown(text)} is not a number from {field.least} to {field.most}"
    )


#: A real form has a few hundred bytes.
MOST_BYTES = 4096
_MEDIA = b"application/x-www-form-urlencoded"
_ELSEWHERE = Refusal(403, "browser", "a gang must be submitted from the page of the demo")
_HOST = Refusal(403, "host", "open the page at the address that the demo prints")
_MEDIA_TYPE = Refusal(415, "media_type", f"a form must be sent as {_MEDIA.decode()}")
_LONG = Refusal(413, "body", f"the form is larger than {MOST_BYTES} bytes")


class FormPort(OperationsServer):
    """The operations port, which also accepts the form."""

    def __init__(self, pages: OperationsApp) -> None:
        super().__init__(pages, limits=replace(LIMITS, body=MOST_BYTES))

    def handle(self, call: HttpConnection) -> None:
        """Answer a page, or pass the form on."""
        if call.method != b"POST" or call.path != f"/{GangForm.PATH}".encode():
            super().handle(call)
            return
        refusal = check_headers(call.headers) or (_LONG if call.size > MOST_BYTES else None)
        if refusal is not None:
            call.refuse(refusal)
            return
        call.await_answer()
        self.ask(call, b"POST", call.path, form=call.take_body())


def check_headers(headers: list[tuple[bytes, bytes]]) -> Refusal | None:
    """Return why a form is refused: it must come from our own page, at our own address."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(value.strip())
    hosts, origins = values.get(b"host", []), values.get(b"origin", [])
    if len(hosts) != 1 or not is_loopback(_name(hosts[0])):
        return _HOST
    if origins != [b"http://" + hosts[0]]:
        return _ELSEWHERE
    if any(site != b"same-origin" for site in values.get(b"sec-fetch-site", ())):
        return _ELSEWHERE
    types = values.get(b"content-type", [])
    if len(types) != 1 or types[0].partition(b";")[0].strip().lower() != _MEDIA:
        return _MEDIA_TYPE
    return None


def with_form(form: GangForm | None) -> MakePort:
    """Return the constructor of the operations port: with *form*, or read-only."""

    def make(runtime: Runtime) -> OperationsServer:
        if form is None:
            return OperationsServer(runtime.pages)
        site = runtime.pages.site
        site.sections.append((form.PATH, form.TITLE))
        runtime.pages.register_blueprint(form.blueprint(site))
        return FormPort(runtime.pages)

    return make


def _name(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
