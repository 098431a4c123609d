"""Settings: flags, variables and the complaints about bad ones."""

from __future__ import annotations

from dataclasses import fields

import pytest

from extender.errors import BadConfiguration
from extender.settings import Settings, address, check_environment, variable


def test_every_setting_says_why_it_exists() -> None:
    assert all(each.metadata["why"].endswith((".", "repeated.")) for each in fields(Settings))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:8888", ("127.0.0.1", 8888)), ("[::1]:80", ("::1", 80)), ("host:0", ("host", 0))],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert address(text, "--listen") == expected


@pytest.mark.parametrize("text", ["", "8888", ":8888", "host:", "host:http", "host:70000"])
def test_a_bad_address_is_refused_with_the_flag_and_an_example(text: str) -> None:
    with pytest.raises(BadConfiguration, match=r"--listen .* is not HOST:PORT; write it like"):
        Settings(listen=text)


@pytest.mark.parametrize("ops_listen", ["127.0.0.1:8888", "0.0.0.0:8888"])
def test_one_port_for_hooks_and_pages_is_refused(ops_listen: str) -> None:
    with pytest.raises(BadConfiguration, match="both say port 8888; give each its own"):
        Settings(listen="127.0.0.1:8888", ops_listen=ops_listen)


def test_a_bind_timeout_that_leaves_no_time_to_bind_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="make it at least 45"):
        Settings(hold_s=30, bind_timeout_s=30)


def test_an_unknown_preference_is_refused_with_the_words_there_are() -> None:
    with pytest.raises(BadConfiguration, match="'packed' is not one of nothing, pack, spread"):
        Settings(prefer="packed")


def test_a_misspelt_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadConfiguration, match="did you mean GANG_EXTENDER_LISTEN"):
        check_environment({"GANG_EXTENDER_LISTN": "x"})


def test_variables_of_others_and_our_own_are_accepted() -> None:
    check_environment({"HOME": "/", **{variable(each.name): "" for each in fields(Settings)}})


def test_an_unknown_lease_is_refused_with_the_words_there_are() -> None:
    with pytest.raises(BadConfiguration, match="'mine' is not one of none, own, scheduler"):
        Settings(lease="mine")


def test_the_lease_of_a_scheduler_must_be_named() -> None:
    with pytest.raises(BadConfiguration, match="needs --lease-name, the resourceName"):
        Settings(lease="scheduler")


@pytest.mark.parametrize(
    "spans", [(2, 10, 10), (10, 10, 15), (0, 10, 15), (2, 20, 15)], ids=lambda spans: str(spans)
)
def test_times_of_a_lease_that_leave_no_margin_are_refused(spans: tuple[int, int, int]) -> None:
    retry, renew, duration = spans
    with pytest.raises(BadConfiguration, match="must grow in this order"):
        Settings(lease_retry_s=retry, lease_renew_s=renew, lease_duration_s=duration)
