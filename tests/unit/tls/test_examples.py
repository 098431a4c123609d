"""The example for cert-manager matches our own command and the needs of `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.certificates import service_names
from extender.settings import Settings

FILE = Path(__file__).parents[3] / "manifests/examples/cert-manager/certificates.yaml"


@pytest.fixture(scope="module")
def specs() -> dict[str, Any]:
    found = list(yaml.safe_load_all(FILE.read_text()))
    assert {each["apiVersion"] for each in found} == {"cert-manager.io/v1"}
    return {
        each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "Certificate"
    }


def test_the_hook_certificate_has_every_name_of_its_service(specs: dict[str, Any]) -> None:
    spec = specs["gang-extender-tls"]

    assert spec["dnsNames"] == service_names("gang-extender", "gang-system")
    assert "server auth" in spec["usages"]


def test_the_client_certificate_has_the_name_that_is_allowed_by_default(
    specs: dict[str, Any],
) -> None:
    spec = specs["gang-extender-client"]

    assert (spec["commonName"],) == Settings().client_name
    assert "client auth" in spec["usages"]


def test_both_certificates_are_signed_by_the_authority_of_the_example(
    specs: dict[str, Any],
) -> None:
    assert specs["gang-extender-ca"]["isCA"] is True
    for name in ("gang-extender-tls", "gang-extender-client"):
        assert specs[name]["issuerRef"] == {"name": "gang-extender", "kind": "Issuer"}
        assert specs[name]["secretName"] == name
