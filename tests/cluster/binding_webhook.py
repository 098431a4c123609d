"""An admission webhook that delays or denies bindings in one namespace.

It lets a test act between two bindings of a gang: one is done, the other is delayed.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from .api import Api, Object
from .components import ApiServer
from .waiting import wait_for

WEBHOOKS = "validatingwebhookconfigurations.admissionregistration.k8s.io/v1"
#: The API server waits no longer than this for the webhook.
TIMEOUT_S = 30


class BindingWebhook:
    """Allows every binding except those that a test names; for a `with` block."""

    def __init__(self, api: Api, apiserver: ApiServer, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._certificate = apiserver.certificate
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        # The API server's own certificate is valid for this address.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(apiserver.certificate, apiserver.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._changed = threading.Condition()
        self._delayed: set[str] = set()
        self._denied: set[str] = set()
        self._waiting: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._api.create(self._configuration())
        # The API server calls it after a moment, which a binding of a missing pod shows.
        wait_for(self._is_called, 20, "the API server calls the webhook", every_s=0.02)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.allow_all()
        self._api.delete(WEBHOOKS, self._namespace)
        self._server.shutdown()
        self._server.server_close()

    def delay(self, *pods: str) -> None:
        """Delay the bindings of *pods* until `allow_all`."""
        with self._changed:
            self._delayed.update(pods)

    def deny(self, *pods: str) -> None:
        """Deny the bindings of *pods* until `allow_all`."""
        with self._changed:
            self._denied.update(pods)

    def allow_all(self) -> None:
        with self._changed:
            self._delayed.clear()
            self._denied.clear()
            self._changed.notify_all()

    def wait_until_delayed(self, *pods: str) -> None:
        wait_for(lambda: set(pods) <= set(self._waiting), 20, f"bindings of {pods} are delayed")

    def _decide(self, pod: str) -> bool:
        with self._changed:
            self._waiting.append(pod)
            self._changed.wait_for(lambda: pod not in self._delayed, TIMEOUT_S)
            self._waiting.remove(pod)
            return pod not in self._denied

    def _is_called(self) -> bool:
        self.deny("probe")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "probe"},
            "target": {"kind": "Node", "name": "nowhere"},
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/probe/binding"
        try:
            self._api.request("POST", path, binding)
        except Exception as refusal:
            return "binding-webhook" in str(refusal)
        return False

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(body)["request"]
                response = {
                    "uid": request["uid"],
                    "allowed": webhook._decide(request["name"]),
                    "status": {"message": "denied by the test"},
                }
                review = {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "response": response,
                }
                answer = json.dumps(review).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def _configuration(self) -> Object:
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self._namespace},
            "webhooks": [
                {
                    "name": "binding-webhook.gang-extender.test",
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{self._server.server_port}/",
                        "caBundle": authority,
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "resources": ["pods/binding"],
                            "operations": ["CREATE"],
                        }
                    ],
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": self._namespace}
                    },
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "timeoutSeconds": TIMEOUT_S,
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
