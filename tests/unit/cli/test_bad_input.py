"""Every command with every kind of bad input: one sentence, the right exit code, no traceback.

Commands, flags and their types are read from the command line itself: a new command is tested
from its first day, and fails until its arguments are added to the tables below.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from extender.cli import saved
from extender.cli.connect import Address, AnswerLimits, get_document
from extender.cli.main import main
from extender.errors import InvalidInput
from tests.unit.cli.wrong_servers import SLOW, WRONG_SERVERS, serving

ROOT = Path(__file__).parents[3]
CLOSED_PORT = "http://127.0.0.1:1"
WHAT_IF = str(ROOT / "manifests" / "examples" / "what-if.yaml")
SHIPPED = str(ROOT / "manifests" / "overlays" / "second-scheduler" / "scheduler-config.yaml")

#: Arguments without which a command does not reach the error under test.
NEEDED: dict[str, list[str]] = {
    "serve": [],
    "demo": [],
    "plan": ["-f", WHAT_IF],
    "simulate": ["-f", "deadlock"],
    "replay": ["DIRECTORY"],
    "explain": ["a/train"],
    "gangs": [],
    "queues": [],
    "top": ["--once"],
    "doctor": [],
    "scheduler-config": [],
    "certificates": ["--directory", "DIRECTORY"],
    "pair": ["--scheduler-config", SHIPPED, "--directory", "DIRECTORY"],
    "completion": ["bash"],
}
#: They print one line for everything that they could not check.
MANY_LINES = ("doctor",)
#: Servers that a command would give up only after half a minute or a gigabyte.
ENDLESS = ["silence", "an endless answer", *SLOW]


@dataclass(frozen=True)
class InvalidCall:
    """The arguments of a command, a part of the error message, and the exit code."""

    words: tuple[str, ...]
    told: str
    code: int = 2


def run(word: str, *words: str, **variables: str) -> Result:
    return CliRunner().invoke(main, [word, *words], env=variables)


def must_fail(result: Result, told: str, word: str = "", code: int = 2) -> None:
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    assert told in result.stderr
    if word not in MANY_LINES:
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("gang-extender: ")


def params(word: str) -> list[click.Parameter]:
    return main.commands[word].params


def calling_commands() -> list[str]:
    """Return the commands that call a running extender."""
    return [word for word in main.commands if any(each.name == "ops_url" for each in params(word))]


def calling_arguments(word: str) -> list[str]:
    """Return the arguments with which a command calls a running extender."""
    return ["--live"] if word == "plan" else NEEDED[word]


def misuses() -> Iterator[tuple[str, list[str], str]]:
    """Yield a command, wrong arguments, and a part of the error message."""
    for word in main.commands:
        yield word, ["--no-such-flag"], f"{word} --help"
        yield word, [*NEEDED[word], "one", "too-many"], "nexpected extra argument"
        if any(each.required for each in params(word)):
            yield word, [], "Missing "
        for each in params(word):
            if not isinstance(each, click.Option):
                continue
            flag, told = max(each.opts, key=len), "is not a valid"
            if isinstance(each.type, click.Choice):
                yield word, [*NEEDED[word], flag, "no-such-choice"], "'no-such-choice'"
            if isinstance(each.type, click.types.IntParamType | click.types.FloatParamType):
                for number in ("x", "", "1e", "--"):
                    yield word, [*NEEDED[word], f"{flag}={number}"], told
            if isinstance(each.type, click.types.FloatParamType) and word != "serve":
                for number in ("nan", "inf", "-1"):
                    yield word, [*NEEDED[word], flag, number], f"Invalid value for '{flag}'"


@pytest.mark.parametrize(("word", "words", "told"), [*misuses()], ids=str)
def test_misused_flags_and_arguments_are_one_line(
    word: str, words: list[str], told: str, tmp_path: Path
) -> None:
    given = [str(tmp_path / "made") if each == "DIRECTORY" else each for each in words]

    must_fail(run(word, *given), told)


@pytest.mark.parametrize(
    ("word", "told"),
    [("explian", "No such command 'explian'"), ("--no-such-flag", "No such option")],
)
def test_an_unknown_command_or_flag_is_one_line(word: str, told: str) -> None:
    must_fail(run(word), told)


#: Flags and variables with which no extender can be called.
NO_CALL: list[tuple[list[str], dict[str, str], str]] = [
    *(
        (["--ops-url", url], {}, f"--ops-url {url!r} is not a URL")
        for url in ("somewhere", "http://", "http://[::1", "http://h:port", "ftp://h", "//h")
    ),
    ([], {"GANG_EXTENDER_OPS_URL": "http://h:99999"}, "'http://h:99999' is not a URL"),
    ([], {"GANG_EXTENDER_OPS_URI": "x"}, "did you mean GANG_EXTENDER_OPS_URL"),
    (["--ops-url", CLOSED_PORT], {}, f"no extender answers at {CLOSED_PORT}"),
    (["--kubeconfig", "/nowhere"], {}, "kubeconfig /nowhere does not exist"),
]


@pytest.mark.parametrize("word", [word for word in calling_commands() if word not in MANY_LINES])
def test_an_extender_that_cannot_be_called_is_one_line(word: str) -> None:
    for words, variables, told in NO_CALL:
        must_fail(run(word, *calling_arguments(word), *words, **variables), told)
    handler, told = WRONG_SERVERS["a page"]
    with serving(handler) as port:
        url = f"http://127.0.0.1:{port}"
        must_fail(run(word, *calling_arguments(word), "--ops-url", url), told)


def test_every_command_has_arguments_here() -> None:
    assert {*NEEDED} == {*main.commands}
    assert {*calling_commands()} >= {"explain", "gangs", "queues", "top", "doctor"}


@pytest.mark.parametrize("server", [each for each in WRONG_SERVERS if each not in ENDLESS])
def test_a_server_that_is_not_an_extender_is_reported(server: str) -> None:
    handler, told = WRONG_SERVERS[server]
    with serving(handler) as port:
        result = run("gangs", "--ops-url", f"http://127.0.0.1:{port}")

    must_fail(result, told)
    assert f"127.0.0.1:{port}" in result.stderr or server == "a standby"


@pytest.mark.parametrize("server", ENDLESS)
def test_an_answer_that_is_too_slow_or_too_large_is_reported(server: str) -> None:
    patience = AnswerLimits(
        wait_s=0.2 if server == "silence" else 20.0,
        answer_s=0.3 if server in SLOW else 20.0,
        max_bytes=1 << 21,
    )
    handler, told = WRONG_SERVERS[server]
    with serving(handler) as port, pytest.raises(InvalidInput, match=told) as named:
        get_document(Address(f"http://127.0.0.1:{port}"), dict, "plan", limits=patience)

    assert f"127.0.0.1:{port}" in str(named.value)


@pytest.mark.parametrize(
    ("scheme", "has_tls", "told"),
    [
        ("http", True, "if it speaks TLS, write https"),
        ("https", False, "is it plain http?"),
        ("https", True, "SSL_CERT_FILE"),
    ],
)
def test_http_to_a_tls_port_and_https_to_a_plain_port_are_reported(
    scheme: str, has_tls: bool, told: str, tmp_path: Path
) -> None:
    handler, _ = WRONG_SERVERS["a page"]
    with serving(handler, tmp_path if has_tls else None) as port:
        must_fail(run("gangs", "--ops-url", f"{scheme}://127.0.0.1:{port}"), told)


def bad_file(kind: str, folder: Path) -> str:
    path = folder / "given"
    content = {
        "binary": bytes(range(256)),
        "not UTF-8": "kind: Grüße".encode("latin-1"),
        "bad YAML": b"a: b: c: [",
        "list": b"- 1\n- 2\n",
        "text": b"hello",
        "brackets": b"[" * 100_000,
        "JSON brackets": b'{"a":' * 100_000,
        "an invalid date": b"kind: Pod\nmetadata: {name: x, at: 2026-13-45}\n",
    }
    if kind == "directory":
        path.mkdir()
    elif kind == "below a file":
        path.write_text("")
        return str(path / "x")
    elif kind == "symlink loop":
        path.symlink_to(path)
    elif kind != "missing":
        path.write_bytes(content[kind])
    return str(path)


FILES = [
    *("missing", "directory", "below a file", "symlink loop", "binary", "not UTF-8", "bad YAML"),
    *("list", "text", "brackets", "JSON brackets", "an invalid date"),
]


@pytest.mark.parametrize("kind", FILES)
def test_an_invalid_file_of_saved_objects_is_named(kind: str, tmp_path: Path) -> None:
    path = bad_file(kind, tmp_path)

    must_fail(run("plan", "-f", path), f"gang-extender: {path}: ")


def test_a_file_of_saved_objects_that_is_too_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_text("# a comment\n" * 1000)

    with pytest.raises(InvalidInput, match="is larger than any cluster, 10000 bytes"):
        list(saved.read_manifests([str(path)], max_bytes=10_000))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_end_is_reported_as_not_text(path: str) -> None:
    must_fail(run("plan", "-f", path), f"{path}: is not text in UTF-8")


@pytest.mark.parametrize("text", ["a: b: c: [", "- 1", "\x00", "[" * 100_000])
def test_invalid_objects_on_standard_input_are_reported(text: str) -> None:
    result = CliRunner().invoke(main, ["plan", "-f", "-"], input=text)

    must_fail(result, "gang-extender: -: ")


@pytest.mark.parametrize("kind", FILES)
def test_an_invalid_policy_file_is_named(kind: str, tmp_path: Path) -> None:
    path = bad_file(kind, tmp_path)

    must_fail(run("plan", "-f", WHAT_IF, "--config", path), f"{path}: ")


INVALID_CALLS = {
    "plan": [
        InvalidCall((), "plan needs -f FILE with saved objects, or --live"),
        InvalidCall(("-f", WHAT_IF, "--now", "yesterday"), "--now: 'yesterday' is not a time"),
        InvalidCall(
            ("-f", WHAT_IF, "--context", "prod"), "--context names a cluster, which only --live"
        ),
        InvalidCall(
            ("-f", WHAT_IF, "--node-selector", "x"), "--node-selector 'x' is not key:value"
        ),
    ],
    "explain": [
        InvalidCall(("train", "-n", "A B"), "--namespace 'A B' cannot be the name"),
        InvalidCall(("a/train", "-n", "b"), "--namespace is b"),
    ],
    "gangs": [
        InvalidCall(("-n", "../x"), "cannot be the name of a namespace"),
    ],
    "top": [
        InvalidCall(("--reason", "Tired"), "'Tired' is not a reason"),
        InvalidCall(("--gangs", "-1"), "Invalid value for '--gangs'"),
        InvalidCall(("--every-s", "0"), "Invalid value for '--every-s'"),
    ],
    "scheduler-config": [
        InvalidCall(("--url", "here"), "--url 'here' is not a URL"),
        InvalidCall(("--ca-file", "x"), "--ca-file is for an https URL"),
        InvalidCall(("--deployment", "default-scheduler"), "needs --url"),
        InvalidCall(("--scheduler-name", ""), "a name consists of"),
        InvalidCall(("--scheduler-name", "a b"), "a name consists of"),
        InvalidCall(("--url", "http://hooks:hush@127.0.0.1:1"), "--url has a secret in it"),
        InvalidCall(
            ("--hook-secret-file", "/nowhere"), "--hook-secret-file /nowhere cannot be read"
        ),
        InvalidCall(("--hook-secret-file", "/dev/null"), "contains no usable secret"),
        InvalidCall(("--hook-secret-file", "/dev/zero"), "contains no usable secret"),
    ],
    "pair": [
        InvalidCall(("--scheduler-config", "/no", "--directory", "/proc/x"), "/no cannot be read"),
        InvalidCall(
            ("--scheduler-config", sys.executable, "--directory", "/proc/x"), "is not text"
        ),
        InvalidCall(("--scheduler-config", WHAT_IF, "--directory", "/proc/x"), "is not a Kube"),
        InvalidCall(("--scheduler-config", SHIPPED, "--directory", WHAT_IF), "is a file"),
        InvalidCall(("--scheduler-config", SHIPPED, "--directory", "/proc/x"), "cannot be written"),
    ],
    "certificates": [
        InvalidCall(("--directory", WHAT_IF), "is a file"),
        InvalidCall(("--directory", "/proc/nowhere"), "cannot be written"),
        InvalidCall(("--directory", "/proc/nowhere", "--renew"), "--renew needs the CA's pair"),
        InvalidCall(("--directory", "/proc/nowhere", "--host", "a b"), "neither a DNS name nor"),
        InvalidCall(("--directory", "/proc/nowhere", "--client-name", ""), "cannot be the name"),
        InvalidCall(("--directory", "/proc/nowhere", "--days", "0"), "Invalid value for '--days'"),
    ],
    "completion": [InvalidCall(("powershell",), "'powershell' is not one of")],
}


@pytest.mark.parametrize(
    ("word", "wrong"),
    [(word, wrong) for word, all_ in INVALID_CALLS.items() for wrong in all_],
    ids=lambda each: " ".join(each.words) if isinstance(each, InvalidCall) else each,
)
def test_errors_that_only_one_command_can_have_are_reported(word: str, wrong: InvalidCall) -> None:
    must_fail(run(word, *wrong.words), wrong.told, code=wrong.code)


def process(*words: str, **variables: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "extender", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
    )


def test_a_closed_pipe_ends_the_command_silently() -> None:
    with process("plan", "-f", WHAT_IF) as ran:
        assert ran.stdout is not None
        ran.stdout.close()
        assert ran.stderr is not None
        told = ran.stderr.read()

    assert told == b""
    assert ran.returncode == 141


def test_a_terminal_without_unicode_shows_ascii() -> None:
    with process("plan", "-f", WHAT_IF, PYTHONIOENCODING="ascii") as ran:
        out, told = ran.communicate()

    assert (ran.returncode, told) == (0, b"")
    assert b"lab/train" in out
    assert b"############ 100%" in out
