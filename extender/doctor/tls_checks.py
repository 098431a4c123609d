"""Traps of TLS: certificates that end soon, or that the other side does not believe."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from extender.clock import timestamp
from extender.doctor.facts import CallerFiles, Check, ClusterFacts, HookFiles, Problem

_DAY_S = 86400.0
#: Certificates made for years are renewed by hand; those made for days by somebody who does it
#: when a third is left, so a sixth is late.
_SOON_S = 14 * _DAY_S
_LATE = 6
_NEW_CA = "another CA, in the steps of docs/tls.md, Renewal: kube-scheduler reads it at its start"
EXPIRES = Check(
    "CertificateExpires",
    "the day it ends kube-scheduler and extender stop believing each other, and nothing is"
    " scheduled",
    "`gang-extender certificates --renew`; both read the new files without a restart",
)
UNTRUSTED = Check(
    "CertificateUntrusted",
    "kube-scheduler's CA did not sign what the hooks show: every call fails, and nothing is"
    " scheduled",
    "the `ca.crt` that signed it, as `caFile` of kube-scheduler",
)
WRONG_NAME = Check(
    "CertificateWrongName",
    "the certificate of the hooks is for other names than kube-scheduler asks for: every call"
    " fails",
    "`tlsConfig.serverName`, or a certificate with that name (`gang-extender certificates --host`)",
)
CALLER_REFUSED = Check(
    "CallerRefused",
    "the hooks refuse the certificate that kube-scheduler shows: nothing is scheduled",
    "a certificate of their `--client-ca-file` with a name of `--client-name`",
)
UNREADABLE = Check(
    "CertificateUnreadable",
    "what should be a certificate is none: the hooks, or kube-scheduler, do not start",
    "PEM that begins with `-----BEGIN CERTIFICATE-----`",
)
UNPROTECTED = Check(
    "CredentialsUnprotected",
    "whoever is between here and the API server can take the credentials, and act with all their"
    " rights",
    "https, and the CA of the API server as `certificate-authority-data` of the kubeconfig",
)
TLS = (EXPIRES, UNTRUSTED, WRONG_NAME, CALLER_REFUSED, UNREADABLE, UNPROTECTED)


def unprotected(where: str, sentence: str) -> Problem:
    """Make a trap of a sentence that ends with the mend."""
    wrong, _, mend = sentence.rpartition("; ")
    return UNPROTECTED.at(where, wrong, mend)


def of_certificates(seen: ClusterFacts) -> Iterator[Problem]:
    """Look at what the hooks show, and at what every entry that asks them shows and believes."""
    for each in seen.unprotected:
        yield unprotected("our own way to the API server", each)
    now = seen.clocks.here + (seen.clocks.api_server_s or 0.0)
    for hooks in seen.hooks:
        shown = _read(hooks.certificate)
        if not shown:
            yield UNREADABLE.at(hooks.where, "no certificate can be read there")
            continue
        yield from _ends(shown[0], hooks.where, now)
        for caller in seen.callers:
            yield from _of_caller(caller, hooks, shown, now)
        if believed := _read(hooks.client_ca):
            where = f"the CA of callers beside {hooks.where}"
            yield from _ends(_last(believed), where, now, _NEW_CA)
    for caller in seen.callers:
        if caller.certificate is not None:
            held = _read(caller.certificate)
            if held:
                yield from _ends(held[0], f"{caller.where}, tlsConfig.certFile", now)
            else:
                yield UNREADABLE.at(
                    f"{caller.where}, tlsConfig.certFile", "no certificate is there"
                )


def _ends(
    certificate: x509.Certificate, where: str, now: float, mend: str = ""
) -> Iterator[Problem]:
    begins = certificate.not_valid_before_utc.timestamp()
    ends = certificate.not_valid_after_utc.timestamp()
    left_s = ends - now
    if left_s <= 0:
        yield EXPIRES.at(where, f"it expired at {timestamp(ends)}", mend)
    elif left_s < min(_SOON_S, (ends - begins) / _LATE):
        yield EXPIRES.at(where, f"it expires at {timestamp(ends)}, in {_days(left_s)}", mend)


def _of_caller(
    caller: CallerFiles, hooks: HookFiles, shown: Sequence[x509.Certificate], now: float
) -> Iterator[Problem]:
    if caller.ca is not None:
        where = f"{caller.where}, tlsConfig.caFile"
        if by := _signers(shown, _read(caller.ca)):
            yield from _ends(_last(by), where, now, _NEW_CA)
        else:
            yield UNTRUSTED.at(
                where,
                f"it did not sign the certificate of {hooks.where}",
                f"give kube-scheduler the CA of {shown[0].issuer.rfc4514_string()} and restart it",
            )
    names = _names(shown[0])
    if not _covers(names, caller.server_name):
        yield WRONG_NAME.at(
            caller.where,
            f"it asks for {caller.server_name}, and {hooks.where} is for {', '.join(names)}",
            f"write `serverName: {names[0]}` into tlsConfig" if names else "",
        )
    if caller.certificate is None or not (held := _read(caller.certificate)):
        return
    said = [str(each.value) for each in held[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    said += _names(held[0])
    where = f"{caller.where}, tlsConfig.certFile"
    if not _signers(held, _read(hooks.client_ca)):
        yield CALLER_REFUSED.at(where, f"the ca.crt of {hooks.where} did not sign it")
    elif not set(said) & set(caller.client_names):
        yield CALLER_REFUSED.at(
            where,
            f"it is of {', '.join(said)}, and --client-name is {', '.join(caller.client_names)}",
            f"add `--client-name={said[0]}` to the extender's arguments" if said else "",
        )


def _read(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _signers(
    shown: Sequence[x509.Certificate], by: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """Give those of *by* who signed the first of *shown*, or who signed that, and so on."""
    certificate, between = shown[0], list(shown[1:])
    while True:
        found = [each for each in by if _signed(certificate, each) or certificate == each]
        above = next((each for each in between if _signed(certificate, each)), None)
        if found or above is None:
            return found
        between.remove(above)
        certificate = above


def _last(signers: Sequence[x509.Certificate]) -> x509.Certificate:
    """Give the one that ends last: a CA that was renewed may be there twice."""
    return max(signers, key=lambda each: each.not_valid_after_utc)


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in held if isinstance(each, (x509.DNSName, x509.IPAddress))]


def _covers(names: Sequence[str], wanted: str) -> bool:
    try:
        address = str(ipaddress.ip_address(wanted))
    except ValueError:
        below = wanted.partition(".")[2]
        return wanted in names or (bool(below) and f"*.{below}" in names)
    return address in names


def _days(seconds: float) -> str:
    days = seconds / _DAY_S
    return f"{days:.0f} days" if days >= 2 else f"{seconds / 3600:.0f} hours"
