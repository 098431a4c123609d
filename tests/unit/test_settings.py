"""Settings: flags, variables, and errors about invalid ones."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from extender.errors import InvalidConfiguration
from extender.settings import (
    Settings,
    address,
    check_environment,
    flag,
    label_pairs,
    variable,
)

TLS = {"tls_cert_file": "c", "tls_private_key_file": "k", "client_ca_file": "a"}


def test_every_setting_says_why_it_exists() -> None:
    assert all(each.metadata["why"].endswith((".", "repeated.")) for each in fields(Settings))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8888", ("127.0.0.1", 8888)),
        ("[::1]:80", ("::1", 80)),
        ("host:65535", ("host", 65535)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert address(text, "--listen") == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "8888", ":8888", "host:", "host:http", "host:70000", "host:-1", "host:²", "host:9e3"),
        *("host:0", "127.0.0.1:00000"),
        *("http://127.0.0.1:8888", "a b:8888", "[::1:80", "::1:80", "[]:80", "host:8888/filter"),
    ],
)
def test_a_bad_address_is_refused_with_the_flag_and_an_example(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"--listen .* is not HOST:PORT; write it like"):
        Settings(listen=text)


NO_SCHEDULER = "is not the name of a scheduler; write it like"
NO_PAIR = "is not key:value; write it like example"
ORDER = "must grow in this order"
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({"listen": "127.0.0.1:8888", "ops_listen": each}, "both have port 8888; give each its own")
        for each in ("127.0.0.1:8888", "0.0.0.0:8888")
    ),
    ({"hold_s": 30, "bind_timeout_s": 30}, "make it at least 45"),
    *(({"max_holds": each}, f"^--max-holds {each} would refuse every bind") for each in (0, -5)),
    *(
        ({"log_level": each}, f"'{each}' is not one of debug, info, warning, er")
        for each in ("foo", "", "warn", "20")
    ),
    *(
        ({"scheduler_name": ("gang-scheduler", each)}, NO_SCHEDULER)
        for each in ("", "a,b", "a b", "-a", "volcano ")
    ),
    ({"scheduler_name": ()}, "so no pod would be scheduled; name one"),
    ({"default_queue": " "}, "--default-queue is empty; name a queue"),
    ({"prefer": "packed"}, "'packed' is not one of nothing, pack, spread"),
    ({"unlisted_namespaces": "refuse"}, "'refuse' is neither allow nor deny"),
    ({"ops_auth": "token"}, "--ops-auth 'token' is not one of none, tokenreview"),
    ({"ops_auth": ""}, "--ops-auth '' is not one of none, tokenreview"),
    ({"ops_audience": ("a",)}, "give --ops-auth tokenreview too"),
    ({"ops_auth": "tokenreview", "ops_audience": ("a", "")}, "--ops-audience is empty"),
    (
        {"ops_tls_private_key_file": "k"},
        r"^--ops-tls-private-key-file needs --ops-tls-cert-file too$",
    ),
    *(
        ({"client_name": each}, "--client-name is empty; name the caller")
        for each in ((), ("",), ("system:kube-scheduler", ""))
    ),
    ({"lease": "mine"}, "'mine' is not one of none, own, scheduler"),
    ({"lease": "scheduler"}, "needs --lease-name, the resourceName"),
    ({"lease_retry_s": 2, "lease_renew_s": 10, "lease_duration_s": 10}, ORDER),
    ({"lease_retry_s": 10, "lease_renew_s": 10, "lease_duration_s": 15}, ORDER),
    ({"lease_retry_s": 2, "lease_renew_s": 20, "lease_duration_s": 15}, ORDER),
    *(({"node_selector": (each,)}, NO_PAIR) for each in ("", "pool", "pool:", ":batch", "pool:a,")),
]


@pytest.mark.parametrize(("options", "why"), REFUSED, ids=str)
def test_an_invalid_setting_is_refused_with_the_remedy(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidConfiguration, match=why):
        Settings(**options)


SPANS = [each.name for each in fields(Settings) if isinstance(each.default, float)]
#: Durations that may be zero, which turns their feature off.
OFF = ("evict_partial_s", "arrival_grace_s", "min_run_s", "stuck_s")


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), -0.001])
@pytest.mark.parametrize("name", SPANS)
def test_an_invalid_duration_is_refused_with_flag_value_and_remedy(name: str, value: float) -> None:
    said = rf"^{flag(name)} {value:g} is not a number of seconds; it must be "

    with pytest.raises(InvalidConfiguration, match=said):
        Settings(**{name: value})


@pytest.mark.parametrize("name", SPANS)
def test_a_duration_of_zero_is_allowed_only_where_it_turns_something_off(name: str) -> None:
    if name in OFF:
        assert getattr(Settings(**{name: 0.0}), name) == 0
        return
    with pytest.raises(InvalidConfiguration, match=rf"^{flag(name)} 0 .* it must be more than 0$"):
        Settings(**{name: 0.0})


def test_the_log_level_can_be_upper_case() -> None:
    assert Settings(log_level="WARNING").log_level == "WARNING"


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:8888", "[::]:8888", "10.0.0.7:8888", "gang-extender.gang-system.svc:8888"]
)
def test_plain_http_on_a_reachable_address_is_refused(listen: str) -> None:
    with pytest.raises(
        InvalidConfiguration,
        match=r"reachable from other .* give --tls-cert-file, .* or listen on 127\.0\.0\.1$",
    ):
        Settings(listen=listen)

    assert Settings(listen=listen, **TLS).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_plain_http_on_loopback_is_accepted(listen: str) -> None:
    assert Settings(listen=listen).listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:8889", "[::]:8889", "10.0.0.7:8889"])
def test_ops_auth_over_plain_http_is_refused(listen: str) -> None:
    with pytest.raises(
        InvalidConfiguration,
        match=r"tokens in plain text, .* give --ops-tls-cert-file .* listen on 127\.0\.0\.1$",
    ):
        Settings(ops_auth="tokenreview", ops_listen=listen)

    tls = {"ops_tls_cert_file": "/crt", "ops_tls_private_key_file": "/key"}
    assert Settings(ops_auth="tokenreview", ops_listen=listen, **tls).needs_token
    assert Settings(ops_auth="tokenreview", ops_listen="127.0.0.1:1").needs_token
    assert not Settings(ops_listen=listen).needs_token


@pytest.mark.parametrize("left_out", TLS)
def test_incomplete_tls_files_are_refused_with_the_missing_flag(left_out: str) -> None:
    given = {name: value for name, value in TLS.items() if name != left_out}

    with pytest.raises(InvalidConfiguration, match=f" needs {flag(left_out)} too$"):
        Settings(**given)


def test_a_misspelt_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidConfiguration, match="did you mean GANG_EXTENDER_LISTEN"):
        check_environment({"GANG_EXTENDER_LISTN": "x"})


def test_known_variables_and_those_of_other_programs_are_accepted() -> None:
    check_environment({"HOME": "/", **{variable(each.name): "" for each in fields(Settings)}})


def test_node_selectors_are_pairs_and_may_be_separated_by_commas_as_in_volcano() -> None:
    found = label_pairs(["volcano.sh/role:train", "pool : a,pool:b"])

    assert found == {("volcano.sh/role", "train"), ("pool", "a"), ("pool", "b")}
