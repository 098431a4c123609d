"""Certificate files that change at run time; half a pair or an invalid file changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.tls import certificates as files
from extender.tls.issue import Authority
from extender.tls.server import ClientNames, PortCertificates
from tests.certificates import HOSTS, NAME, Wallet, days_ago, odd_authority


@pytest.fixture
def wallet(tmp_path: Path) -> Wallet:
    return Wallet(tmp_path / "secret")


@pytest.fixture
def certificates(wallet: Wallet) -> PortCertificates:
    return PortCertificates("hooks", wallet.files, ClientNames([NAME]))


def test_unchanged_files_are_not_reloaded(certificates: PortCertificates) -> None:
    before = certificates.in_force()

    certificates.reload()

    assert certificates.in_force() is before


def test_a_new_pair_is_loaded(wallet: Wallet, certificates: PortCertificates) -> None:
    before, ends = certificates.in_force(), certificates.expiries()

    wallet.show(wallet.authority.for_server(HOSTS, days=25))
    certificates.reload()

    assert certificates.in_force() is not before
    assert certificates.expiries()[wallet.files.certificate] > ends[wallet.files.certificate]
    assert certificates.problem == ""


def test_half_of_a_new_pair_changes_nothing_until_the_other_half_is_written(
    wallet: Wallet, certificates: PortCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    before = certificates.in_force()
    pair = wallet.authority.for_server(HOSTS, days=25)

    wallet.write("tls.crt", pair.certificate)
    for _ in range(3):
        certificates.reload()
    assert certificates.in_force() is before
    assert "does not belong to the certificate" in certificates.refusal
    assert certificates.problem == certificates.refusal
    assert len(caplog.records) == 1

    wallet.write("tls.key", pair.key)
    certificates.reload()
    assert certificates.in_force() is not before
    assert certificates.problem == ""


@pytest.mark.parametrize("cut", [0, 1, 200, 600])
def test_a_file_that_is_being_written_changes_nothing(
    wallet: Wallet, certificates: PortCertificates, cut: int
) -> None:
    before = certificates.in_force()

    for name in ("tls.crt", "tls.key", "ca.crt"):
        whole = (wallet.folder / name).read_bytes()
        wallet.write(name, whole[: min(cut, len(whole) - 40)])
        certificates.reload()
        assert certificates.in_force() is before
        assert certificates.refusal.startswith("--")
        wallet.write(name, whole)
        certificates.reload()
        assert certificates.refusal == ""
        before = certificates.in_force()


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda wallet: wallet.write("ca.crt", odd_authority()), "--client-ca-file "),
        (lambda wallet: (wallet.folder / "tls.key").unlink(), "--tls-private-key-file "),
    ],
    ids=["unreadable", "missing"],
)
def test_files_that_cannot_be_read_are_a_problem_and_change_nothing(
    wallet: Wallet,
    certificates: PortCertificates,
    spoil: Callable[[Wallet], object],
    problem: str,
) -> None:
    before = certificates.in_force()

    spoil(wallet)
    certificates.reload()

    assert certificates.in_force() is before
    assert certificates.problem.startswith(problem)


def test_old_files_that_are_restored_are_valid_again(
    wallet: Wallet, certificates: PortCertificates
) -> None:
    whole = (wallet.folder / "ca.crt").read_bytes()
    (wallet.folder / "ca.crt").rename(wallet.folder / "away")
    certificates.reload()
    assert certificates.problem != ""

    (wallet.folder / "away").rename(wallet.folder / "ca.crt")
    certificates.reload()

    assert (wallet.folder / "ca.crt").read_bytes() == whole
    assert certificates.problem == ""


def test_a_loaded_certificate_that_expires_is_a_problem_without_any_change(
    wallet: Wallet,
) -> None:
    now = [days_ago(0).timestamp()]
    certificates = PortCertificates("hooks", wallet.files, ClientNames([NAME]), now=lambda: now[0])
    assert certificates.problem == ""

    now[0] += 21 * 86400
    certificates.reload()
    assert certificates.problem.startswith(f"{wallet.files.certificate}: expired at ")

    now[0] += 10 * 86400
    wallet.show(wallet.authority.for_server(HOSTS, days=90))
    certificates.reload()
    assert certificates.problem.startswith(f"{wallet.files.client_ca}: expired at ")


def test_a_swapped_symlink_of_a_secret_is_detected_with_equal_times_and_sizes(
    tmp_path: Path,
) -> None:
    """As the kubelet does it: tls.crt -> ..data/tls.crt, ..data -> a folder named by the time."""
    authority = Authority.new("our CA", days=30)
    old, new = Wallet(tmp_path / "..1", authority), Wallet(tmp_path / "..2", authority)
    names = ("tls.crt", "tls.key", "ca.crt")
    for wallet in (old, new):
        for name in names:
            os.utime(wallet.folder / name, (1, 1))
    (tmp_path / "..data").symlink_to("..1")
    for name in names:
        (tmp_path / name).symlink_to(f"..data/{name}")
    mounted = files.Files(*(files.NamedFile(f"--{name}", str(tmp_path / name)) for name in names))
    certificates = PortCertificates("hooks", mounted, ClientNames([NAME]))
    before = certificates.in_force()

    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    certificates.reload()

    assert certificates.in_force() is not before


def test_files_that_change_while_they_are_read_are_read_again(
    wallet: Wallet, certificates: PortCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, check = certificates.in_force(), files.check_files

    def read_during_a_write(*arguments: object) -> files.Checked:
        checked = check(*arguments)  # type: ignore[arg-type]
        wallet.write("ca.crt", Authority.new("another", days=9).pair.certificate)
        return checked

    wallet.show(wallet.authority.for_server(HOSTS, days=25))
    with monkeypatch.context() as patched:
        patched.setattr("extender.tls.server.check_files", read_during_a_write)
        assert certificates.reload()
    assert certificates.in_force() is before

    assert not certificates.reload()
    assert certificates.in_force() is not before
