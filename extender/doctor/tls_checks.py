"""Checks of TLS: certificates that expire soon, or that the other side does not trust."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from extender.clock import timestamp
from extender.doctor.facts import CallerFiles, Check, ClusterFacts, HookFiles, Problem

_DAY_S = 86400.0
#: Certificates valid for years are renewed by hand. Those valid for days are renewed by a
#: controller when a third of the time is left, so less than a sixth is late.
_SOON_S = 14 * _DAY_S
_LATE = 6
_NEW_CA = (
    "another CA, in the steps of docs/install.md, Renew certificates: kube-scheduler reads it at"
    " its start"
)
EXPIRES = Check(
    "CertificateExpires",
    "when it expires kube-scheduler and extender no longer trust each other, and nothing is"
    " scheduled",
    "`gang-extender certificates --renew`; both read the new files without a restart",
)
UNTRUSTED = Check(
    "CertificateUntrusted",
    "kube-scheduler's CA did not sign the certificate of the hooks: every call fails, and nothing"
    " is scheduled",
    "the `ca.crt` that signed it, as `caFile` of kube-scheduler",
)
WRONG_NAME = Check(
    "CertificateWrongName",
    "the certificate of the hooks has other names than kube-scheduler expects: every call fails",
    "`tlsConfig.serverName`, or a certificate with that name (`gang-extender certificates --host`)",
)
CALLER_REFUSED = Check(
    "CallerRefused",
    "the hooks refuse the certificate of kube-scheduler: nothing is scheduled",
    "a certificate signed by their `--client-ca-file` with a name of `--client-name`",
)
UNREADABLE = Check(
    "CertificateUnreadable",
    "the file has no certificate: the hooks, or kube-scheduler, do not start",
    "PEM that begins with `-----BEGIN CERTIFICATE-----`",
)
UNPROTECTED = Check(
    "CredentialsUnprotected",
    "a machine between here and the API server can take the credentials, and act with all their"
    " permissions",
    "https, and the CA of the API server as `certificate-authority-data` of the kubeconfig",
)
TLS = (EXPIRES, UNTRUSTED, WRONG_NAME, CALLER_REFUSED, UNREADABLE, UNPROTECTED)


def unprotected(where: str, sentence: str) -> Problem:
    """Return the problem of a sentence that ends with the remedy."""
    wrong, _, mend = sentence.rpartition("; ")
    return UNPROTECTED.at(where, wrong, mend)


def of_certificates(facts: ClusterFacts) -> Iterator[Problem]:
    """Check the certificates of the hooks and of every entry that calls them, and their CAs."""
    for each in facts.unprotected:
        yield unprotected("the connection from here to the API server", each)
    now = facts.clocks.here + (facts.clocks.api_server_s or 0.0)
    for hooks in facts.hooks:
        chain = _read(hooks.certificate)
        if not chain:
            yield UNREADABLE.at(hooks.where, "no certificate can be read there")
            continue
        yield from _expiry(chain[0], hooks.where, now)
        for caller in facts.callers:
            yield from _of_caller(caller, hooks, chain, now)
        if client_ca := _read(hooks.client_ca):
            where = f"the CA of callers beside {hooks.where}"
            yield from _expiry(_last(client_ca), where, now, _NEW_CA)
    for caller in facts.callers:
        if caller.certificate is not None:
            caller_chain = _read(caller.certificate)
            if caller_chain:
                yield from _expiry(caller_chain[0], f"{caller.where}, tlsConfig.certFile", now)
            else:
                yield UNREADABLE.at(
                    f"{caller.where}, tlsConfig.certFile", "no certificate is there"
                )


def _expiry(
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
    caller: CallerFiles, hooks: HookFiles, chain: Sequence[x509.Certificate], now: float
) -> Iterator[Problem]:
    if caller.ca is not None:
        where = f"{caller.where}, tlsConfig.caFile"
        if by := _signers(chain, _read(caller.ca)):
            yield from _expiry(_last(by), where, now, _NEW_CA)
        else:
            yield UNTRUSTED.at(
                where,
                f"it did not sign the certificate of {hooks.where}",
                f"give kube-scheduler the CA of {chain[0].issuer.rfc4514_string()} and restart it",
            )
    names = _names(chain[0])
    if not _covers(names, caller.server_name):
        yield WRONG_NAME.at(
            caller.where,
            f"it expects {caller.server_name}, and {hooks.where} is for {', '.join(names)}",
            f"write `serverName: {names[0]}` into tlsConfig" if names else "",
        )
    if caller.certificate is None or not (caller_chain := _read(caller.certificate)):
        return
    caller_names = [
        str(each.value)
        for each in caller_chain[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    caller_names += _names(caller_chain[0])
    where = f"{caller.where}, tlsConfig.certFile"
    if not _signers(caller_chain, _read(hooks.client_ca)):
        yield CALLER_REFUSED.at(where, f"the ca.crt of {hooks.where} did not sign it")
    elif not set(caller_names) & set(caller.client_names):
        yield CALLER_REFUSED.at(
            where,
            f"it has {', '.join(caller_names)}, and --client-name is"
            f" {', '.join(caller.client_names)}",
            f"add `--client-name={caller_names[0]}` to the extender's arguments"
            if caller_names
            else "",
        )


def _read(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _signers(
    chain: Sequence[x509.Certificate], by: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """Return those of *by* that signed the first of *chain*, or the issuer of that, and so on."""
    certificate, intermediates = chain[0], list(chain[1:])
    while True:
        signers = [each for each in by if _signed(certificate, each) or certificate == each]
        issuer = next((each for each in intermediates if _signed(certificate, each)), None)
        if signers or issuer is None:
            return signers
        intermediates.remove(issuer)
        certificate = issuer


def _last(signers: Sequence[x509.Certificate]) -> x509.Certificate:
    """Return the one that expires last: a renewed CA may be there twice."""
    return max(signers, key=lambda each: each.not_valid_after_utc)


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in names if isinstance(each, (x509.DNSName, x509.IPAddress))]


def _covers(names: Sequence[str], host: str) -> bool:
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        below = host.partition(".")[2]
        return host in names or (bool(below) and f"*.{below}" in names)
    return address in names


def _days(seconds: float) -> str:
    days = seconds / _DAY_S
    return f"{days:.0f} days" if days >= 2 else f"{seconds / 3600:.0f} hours"
