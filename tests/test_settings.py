"""Settings: flags, variables and the complaints about bad ones."""

from __future__ import annotations

from dataclasses import fields

import pytest

from extender.errors import BadConfiguration
from extender.settings import Settings, address, check_environment, label_pairs, variable


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


def test_unlisted_namespaces_are_allowed_or_denied_and_nothing_else() -> None:
    with pytest.raises(BadConfiguration, match="'refuse' is neither allow nor deny"):
        Settings(unlisted_namespaces="refuse")


def test_a_misspelt_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadConfiguration, match="did you mean GANG_EXTENDER_LISTEN"):
        check_environment({"GANG_EXTENDER_LISTN": "x"})


def test_variables_of_others_and_our_own_are_accepted() -> None:
    check_environment({"HOME": "/", **{variable(each.name): "" for each in fields(Settings)}})


def test_labels_of_nodes_are_keys_with_values_several_with_commas_as_volcano_has_them() -> None:
    found = label_pairs(["volcano.sh/role:train", "pool : a,pool:b"])

    assert found == {("volcano.sh/role", "train"), ("pool", "a"), ("pool", "b")}


@pytest.mark.parametrize("text", ["", "pool", "pool:", ":batch", "pool:a,"])
def test_a_label_of_nodes_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration, match="is not key:value; write it like example"):
        Settings(node_selector=(text,))
