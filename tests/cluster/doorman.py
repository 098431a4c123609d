"""Decides when and whether the API server takes a binding: an admission webhook of one namespace.

So a test can stand between two bindings of a gang: one is through, the other waits at the door.
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
#: The API server waits for the door no longer than this.
PATIENCE_S = 30


class Doorman:
    """Lets everybody in, except whom a test names; for a `with` block."""

    def __init__(self, api: Api, apiserver: ApiServer, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._certificate = apiserver.certificate
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        # The API server signed itself a certificate for this very address.
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
        # It works from the moment the API server has heard of it: a binding of nobody tells.
        wait_for(self._is_on_duty, 20, "the doorman is asked about bindings", every_s=0.02)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.let_all_in()
        self._api.delete(WEBHOOKS, self._namespace)
        self._server.shutdown()
        self._server.server_close()

    def delay(self, *pods: str) -> None:
        """Keep the bindings of *pods* waiting until `let_all_in`."""
        with self._changed:
            self._delayed.update(pods)

    def deny(self, *pods: str) -> None:
        """Refuse the bindings of *pods* until `let_all_in`."""
        with self._changed:
            self._denied.update(pods)

    def let_all_in(self) -> None:
        with self._changed:
            self._delayed.clear()
            self._denied.clear()
            self._changed.notify_all()

    def wait_until_at_the_door(self, *pods: str) -> None:
        wait_for(lambda: set(pods) <= set(self._waiting), 20, f"bindings of {pods} wait")

    def _decide(self, pod: str) -> bool:
        with self._changed:
            self._waiting.append(pod)
            self._changed.wait_for(lambda: pod not in self._delayed, PATIENCE_S)
            self._waiting.remove(pod)
            return pod not in self._denied

    def _is_on_duty(self) -> bool:
        self.deny("nobody")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "nobody"},
            "target": {"kind": "Node", "name": "nowhere"},
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/nobody/binding"
        try:
            self._api.request("POST", path, binding)
        except Exception as refusal:
            return "doorman" in str(refusal)
        return False

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        doorman = self

        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(body)["request"]
                response = {
                    "uid": request["uid"],
                    "allowed": doorman._decide(request["name"]),
                    "status": {"message": "the doorman says no"},
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
                """Stay silent."""

        return Door

    def _configuration(self) -> Object:
        authority = base64.b64encode(self._certificate.read_bytes()).decode()
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self._namespace},
            "webhooks": [
                {
                    "name": "doorman.gang-extender.test",
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
                    "timeoutSeconds": PATIENCE_S,
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
