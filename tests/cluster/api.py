"""A client of the Kubernetes API for tests: plain dicts over HTTPS, without a client library.

A resource is named as in "pods" (core/v1) or "podgroups.scheduling.volcano.sh/v1beta1".
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

Object = dict[str, Any]
Items = list[Object]
Texts = list[str]

MERGE_PATCH = "application/merge-patch+json"


#: The API server's own limit for a request; deleting thousands of pods may take that long.
_ANSWER_S = 60


class ApiError(Exception):
    """The API server refused the request; *status* is the HTTP code."""

    def __init__(self, status: int, request: str, message: str) -> None:
        super().__init__(f"{request}: {status} {message}")
        self.status = status


class Api:
    """A client of one API server for one user."""

    def __init__(
        self, url: str, token: str, certificate_authority: Path, answer_s: float = _ANSWER_S
    ) -> None:
        self.url = url
        self._token = token
        self._certificate_authority = certificate_authority
        self._answer_s = answer_s
        # No retries: a test that stops the API server must see the failure.
        self._http = urllib3.PoolManager(
            maxsize=8,
            ca_certs=str(certificate_authority),
            retries=False,
            timeout=urllib3.Timeout(connect=5, read=answer_s),
        )

    def with_token(self, token: str) -> Api:
        """Return a client of the same API server for the user of *token*."""
        return Api(self.url, token, self._certificate_authority)

    def with_timeout(self, answer_s: float) -> Api:
        """Return a client of the same user with another read timeout."""
        return Api(self.url, self._token, self._certificate_authority, answer_s)

    def close(self) -> None:
        self._http.clear()

    def create(self, *objects: Object) -> Items:
        """Create each of *objects* and return them as the API server stored them."""
        created = []
        for wanted in objects:
            resource = resource_of(wanted)
            namespace = wanted["metadata"].get("namespace")
            created.append(self.request("POST", _path(resource, namespace), wanted))
        return created

    def post(self, path: str, text: str) -> None:
        """Create the object in *text*, sent unchanged."""
        self._send("POST", path, text.encode())

    def create_with_warnings(self, wanted: Object) -> Texts:
        """Create *wanted* and return the API server's warnings, as kubectl shows them."""
        path = _path(resource_of(wanted), wanted["metadata"].get("namespace"))
        headers = self._send("POST", path, wanted).headers
        # One header each: 299 - "the text".
        return [each.partition('"')[2].removesuffix('"') for each in headers.getlist("warning")]

    def get(self, resource: str, name: str, namespace: str | None = None) -> Object:
        return self.request("GET", _path(resource, namespace, name))

    def find(self, resource: str, name: str, namespace: str | None = None) -> Object | None:
        """Like `get`, but None if the object does not exist."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, resource: str, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Items:
        items: Items = self.listing(resource, namespace, labels=labels, fields=fields)["items"]
        return items

    def listing(
        self, resource: str, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> Object:
        """Return the whole list object: the items and their resourceVersion."""
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        return self.request("GET", _path(resource, namespace), query=selectors)

    def replace(self, thing: Object) -> Object:
        """Replace the object with *thing*, if it has not changed since it was read."""
        about = thing["metadata"]
        path = _path(resource_of(thing), about.get("namespace"), about["name"])
        return self.request("PUT", path, thing)

    def patch(
        self,
        resource: str,
        name: str,
        change: Object,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Object:
        """Merge *change* into the object."""
        return self.request(
            "PATCH", _path(resource, namespace, name, subresource), change, media_type=MERGE_PATCH
        )

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete one object, gracefully unless *grace_seconds* is 0; it may not exist."""
        self._delete(_path(resource, namespace, name), grace_seconds)

    def delete_all(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete every object of *resource* in one request."""
        self._delete(_path(resource, namespace), grace_seconds, {"labelSelector": labels})

    def evict(self, pod: str, namespace: str) -> None:
        """Request the eviction of a pod, as `kubectl drain` does."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        self.request("POST", _path("pods", namespace, pod, "eviction"), eviction)

    def answers(self, path: str) -> bool:
        """Return whether a GET of *path* succeeds; the response need not be JSON."""
        self._send("GET", path)
        return True

    @contextmanager
    def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        fields: str = "",
        resource_version: str = "",
    ) -> Iterator[Watch]:
        """Watch a resource until the block ends."""
        query = {"watch": "1", "fieldSelector": fields, "resourceVersion": resource_version}
        response = self._send("GET", _path(resource, namespace), query=query, stream=True)
        watch = Watch(response)
        try:
            yield watch
        finally:
            watch.stop()
            response.close()

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: dict[str, str] | None = None,
        media_type: str = "application/json",
    ) -> Object:
        """Send one request and return the JSON response."""
        response = self._send(method, path, body, query=query, media_type=media_type)
        answer: Object = response.json()
        return answer

    def _delete(
        self, path: str, grace_seconds: int | None, query: dict[str, str] | None = None
    ) -> None:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", path, options, query=query)
        except ApiError as error:
            if error.status != 404:
                raise

    def _send(
        self,
        method: str,
        path: str,
        body: Object | bytes | None = None,
        *,
        query: dict[str, str] | None = None,
        media_type: str = "application/json",
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        given = {key: value for key, value in (query or {}).items() if value}
        target = f"{path}?{urlencode(given)}" if given else path
        try:
            response = self._http.request(
                method,
                f"{self.url}{target}",
                body=json.dumps(body).encode() if isinstance(body, dict) else body,
                headers={"Authorization": f"Bearer {self._token}", "Content-Type": media_type},
                preload_content=not stream,
                # A watch sends nothing while nothing changes.
                timeout=urllib3.Timeout(connect=5, read=None if stream else self._answer_s),
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"{method} {target}", str(error)) from error
        if response.status >= 300:
            text = response.read().decode() if stream else response.data.decode()
            response.close()
            raise ApiError(response.status, f"{method} {target}", _message(text))
        return response


class Watch:
    """The events of a watch: iterate over (type, object)."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._stopped = False

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        """Wait for events until the API server, or `stop`, ends the watch."""
        pending = b""
        while True:
            try:
                chunk = self._response.read1()
            except (urllib3.exceptions.HTTPError, OSError, ValueError):
                return
            if not chunk or self._stopped:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]

    def stop(self) -> None:
        """End the iteration; may be called from another thread."""
        self._stopped = True
        sock = getattr(self._response.connection, "sock", None)
        # If the API server ended the watch first, there is no socket to shut down.
        if sock is not None:
            # Not the shutdown of the TLS socket: it drops the keys while another thread reads,
            # which then takes encrypted bytes for text.
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def resource_of(thing: Object) -> str:
    """Return the resource of an object, from its kind and apiVersion."""
    kind: str = thing["kind"].lower()
    if kind.endswith("y"):
        plural = f"{kind.removesuffix('y')}ies"
    else:
        plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    version: str = thing["apiVersion"]
    return f"{plural}.{version}" if "/" in version else plural


def _path(
    resource: str, namespace: str | None = None, name: str = "", subresource: str = ""
) -> str:
    plural, _, group_version = resource.partition(".")
    root = f"/apis/{group_version}" if group_version else "/api/v1"
    within = f"/namespaces/{namespace}" if namespace else ""
    return "/".join(part for part in (f"{root}{within}", plural, name, subresource) if part)


def _message(text: str) -> str:
    try:
        message: str = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text
    return message
