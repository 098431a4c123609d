"""The hook secret: its format, its place in a URL, and where it is masked."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from extender.errors import InvalidConfiguration
from extender.tls import hook_secret

GOOD = b"0123456789abcdef"


def test_without_a_file_there_is_no_hook_secret() -> None:
    assert hook_secret.read("") == b""


def test_the_hook_secret_is_the_single_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(GOOD + b"\n")

    assert hook_secret.read(str(file)) == GOOD


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        GOOD[:-1],
        GOOD + b"\n" + GOOD,
        GOOD + b"@",
        GOOD + b":",
        GOOD + b"/",
        GOOD + b"%41",
        GOOD + "ö".encode(),
        GOOD + b"\0",
        GOOD * 17,
        GOOD * 100_000,
    ],
)
def test_a_secret_that_is_short_or_needs_quoting_in_a_url_is_refused_without_showing_it(
    tmp_path: Path, text: bytes
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(text)

    with pytest.raises(InvalidConfiguration, match="contains no usable secret") as refusal:
        hook_secret.read(str(file))
    assert "0123456789" not in str(refusal.value)


def test_an_unreadable_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=f"--hook-secret-file {tmp_path} cannot be read"):
        hook_secret.read(str(tmp_path))


def test_a_new_secret_is_valid_and_different_each_time() -> None:
    made = {hook_secret.new() for _ in range(10)}

    assert len(made) == 10
    assert all(hook_secret.is_secret(each) for each in made)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8888", "http://[::1]:8888/v1", "http://hooks:old@127.0.0.1:8888"]
)
def test_the_secret_is_the_password_of_a_url(url: str) -> None:
    parts = urlsplit(hook_secret.into(url, GOOD))

    assert (parts.username, parts.password) == (hook_secret.USER, GOOD.decode())
    assert hook_secret.masked(parts.geturl()) == hook_secret.masked(url)


def test_masking_removes_passwords_of_urls_and_nothing_else() -> None:
    told = "in http://hooks:hush@127.0.0.1:8888, and https://u@h/x; a@b // c"

    assert hook_secret.masked(told) == "in http://127.0.0.1:8888, and https://h/x; a@b // c"
