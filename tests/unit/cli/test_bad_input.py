"""Every command with every kind of bad input: one sentence, the right exit code, no traceback.

The commands, their flags and the kinds of those are read from the command line itself: a new
command is here from its first day, and fails until it has what only its author knows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from extender.cli import saved
from extender.cli.connect import AnswerLimits, get_document
from extender.cli.main import main
from extender.errors import InvalidInput
from tests.unit.cli.wrong_servers import SLOW, STRANGERS, listening

ROOT = Path(__file__).parents[3]
NOBODY = "http://127.0.0.1:1"
WHAT_IF = str(ROOT / "manifests" / "examples" / "what-if.yaml")
SHIPPED = str(ROOT / "manifests" / "overlays" / "second-scheduler" / "scheduler-config.yaml")

#: What each command needs to come as far as what is wrong.
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
#: It tells of everything that it could not look at, a line each.
TALKATIVE = ("doctor",)
#: Strangers of whom a command would have enough only after half a minute or a gigabyte.
ENDLESS = ["silence", "an endless answer", *SLOW]


@dataclass(frozen=True)
class Wrong:
    """What is typed, with which variables, and a word of what is said of it."""

    words: tuple[str, ...]
    told: str
    code: int = 2


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep this machine's clusters and extenders out of it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-such-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name in [*os.environ]:
        if name.startswith("GANG_EXTENDER_"):
            monkeypatch.delenv(name)


def run(word: str, *words: str, **variables: str) -> Result:
    return CliRunner().invoke(main, [word, *words], env=variables)


def must_say(result: Result, told: str, word: str = "", code: int = 2) -> None:
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    assert told in result.stderr
    if word not in TALKATIVE:
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("gang-extender: ")


def params(word: str) -> list[click.Parameter]:
    return main.commands[word].params


def flags(*kinds: type[click.ParamType]) -> list[tuple[str, str]]:
    return [
        (word, max(each.opts, key=len))
        for word in main.commands
        for each in params(word)
        if isinstance(each, click.Option) and isinstance(each.type, kinds)
    ]


def asks() -> list[str]:
    """Give the commands that ask a running extender."""
    return [word for word in main.commands if any(each.name == "ops_url" for each in params(word))]


def asking_words(word: str) -> list[str]:
    """Give what a command has to be told to ask a running extender."""
    return ["--live"] if word == "plan" else NEEDED[word]


def needed(word: str, tmp_path: Path) -> list[str]:
    return [str(tmp_path / "made") if each == "DIRECTORY" else each for each in NEEDED[word]]


def test_every_command_has_arguments_here() -> None:
    assert {*NEEDED} == {*main.commands}
    assert {*asks()} >= {"explain", "gangs", "queues", "top", "doctor"}


def test_an_unknown_command_is_an_error() -> None:
    must_say(run("explian"), "No such command 'explian'")


def test_an_unknown_flag_before_the_command_is_an_error() -> None:
    must_say(run("--no-such-flag"), "No such option '--no-such-flag'")


@pytest.mark.parametrize("word", main.commands)
def test_an_unknown_flag_is_an_error_that_names_the_help(word: str) -> None:
    result = run(word, "--no-such-flag")

    must_say(result, "No such option '--no-such-flag'")
    assert f"{word} --help" in result.stderr


@pytest.mark.parametrize("word", main.commands)
def test_a_superfluous_argument_is_an_error(word: str, tmp_path: Path) -> None:
    must_say(run(word, *needed(word, tmp_path), "one", "too-many"), "nexpected extra argument")


@pytest.mark.parametrize(
    "word", [word for word in main.commands if any(each.required for each in params(word))]
)
def test_a_missing_required_argument_is_an_error(word: str) -> None:
    must_say(run(word), "Missing ")


@pytest.mark.parametrize(("word", "flag"), flags(click.Choice))
def test_an_unknown_choice_is_an_error(word: str, flag: str, tmp_path: Path) -> None:
    must_say(run(word, *needed(word, tmp_path), flag, "no-such-choice"), "'no-such-choice'")


@pytest.mark.parametrize(
    ("word", "flag"), flags(click.types.IntParamType, click.types.FloatParamType)
)
def test_an_invalid_number_is_an_error(word: str, flag: str, tmp_path: Path) -> None:
    for number in ("x", "", "1e", "--"):
        must_say(run(word, *needed(word, tmp_path), f"{flag}={number}"), "is not a valid")


@pytest.mark.parametrize(
    ("word", "flag"),
    [each for each in flags(click.types.FloatParamType) if each[0] != "serve"],
)
def test_nan_infinite_and_negative_seconds_are_an_error(
    word: str, flag: str, tmp_path: Path
) -> None:
    for number in ("nan", "inf", "-1"):
        must_say(run(word, *needed(word, tmp_path), flag, number), f"Invalid value for '{flag}'")


@pytest.mark.parametrize("stranger", [each for each in STRANGERS if each not in ENDLESS])
def test_a_server_that_is_not_an_extender_is_reported(stranger: str) -> None:
    speaks, told = STRANGERS[stranger]
    with listening(speaks) as port:
        result = run("gangs", "--ops-url", f"http://127.0.0.1:{port}")

    must_say(result, told)
    assert f"127.0.0.1:{port}" in result.stderr or stranger == "one that stands by"


@pytest.mark.parametrize("stranger", ENDLESS)
def test_an_answer_that_is_too_slow_or_too_large_is_reported(stranger: str) -> None:
    patience = AnswerLimits(
        wait_s=0.2 if stranger == "silence" else 20.0,
        answer_s=0.3 if stranger in SLOW else 20.0,
        max_bytes=1 << 21,
    )
    speaks, told = STRANGERS[stranger]
    with listening(speaks) as port, pytest.raises(InvalidInput, match=told) as named:
        get_document(f"http://127.0.0.1:{port}", "plan", limits=patience)

    assert f"127.0.0.1:{port}" in str(named.value)


@pytest.mark.parametrize("word", [word for word in asks() if word != "gangs"])
def test_every_command_that_calls_the_extender_reports_another_server(word: str) -> None:
    speaks, told = STRANGERS["a page"]
    with listening(speaks) as port:
        result = run(word, *asking_words(word), "--ops-url", f"http://127.0.0.1:{port}")

    if word in TALKATIVE:
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code in (1, 2)
    else:
        must_say(result, told, word)


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
    speaks, _ = STRANGERS["a page"]
    with listening(speaks, tmp_path if has_tls else None) as port:
        must_say(run("gangs", "--ops-url", f"{scheme}://127.0.0.1:{port}"), told)


@pytest.mark.parametrize("word", [word for word in asks() if word not in TALKATIVE])
def test_an_invalid_address_is_reported(word: str) -> None:
    for url in ("somewhere", "http://", "http://[::1", "http://h:port", "ftp://h", "//h"):
        told = f"--ops-url {url!r} is not a URL"
        must_say(run(word, *asking_words(word), "--ops-url", url), told)
    url = "http://h:99999"
    must_say(run(word, *asking_words(word), GANG_EXTENDER_OPS_URL=url), f"{url!r} is not a URL")


@pytest.mark.parametrize("word", [word for word in asks() if word not in TALKATIVE])
def test_an_address_that_refuses_connections_is_reported(word: str) -> None:
    must_say(
        run(word, *asking_words(word), "--ops-url", NOBODY), f"no extender answers at {NOBODY}"
    )


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        *(("gangs", kind) for kind in ("missing", "directory", "binary", "list", "brackets")),
        *((word, "list") for word in asks() if word not in (*TALKATIVE, "gangs")),
    ],
)
def test_an_invalid_kubeconfig_is_reported(word: str, kind: str, tmp_path: Path) -> None:
    path = bad_file(kind, tmp_path)

    must_say(run(word, *asking_words(word), "--kubeconfig", path), "kubeconfig")


@pytest.mark.parametrize("word", [*asks(), "serve"])
def test_an_unknown_variable_is_reported(word: str) -> None:
    result = run(word, *asking_words(word), GANG_EXTENDER_OPS_URI="x")

    must_say(result, "the variable GANG_EXTENDER_OPS_URI is not a setting")


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
        "a day that is none": b"kind: Pod\nmetadata: {name: x, at: 2026-13-45}\n",
    }
    if kind == "directory":
        path.mkdir()
    elif kind == "below a file":
        path.write_text("")
        return str(path / "x")
    elif kind == "circle":
        path.symlink_to(path)
    elif kind != "missing":
        path.write_bytes(content[kind])
    return str(path)


FILES = [
    *("missing", "directory", "below a file", "circle", "binary", "not UTF-8", "bad YAML"),
    *("list", "text", "brackets", "JSON brackets", "a day that is none"),
]


@pytest.mark.parametrize("kind", FILES)
def test_an_invalid_file_of_saved_objects_is_named(kind: str, tmp_path: Path) -> None:
    path = bad_file(kind, tmp_path)

    must_say(run("plan", "-f", path), f"gang-extender: {path}: ")


def test_a_file_of_saved_objects_that_is_too_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_text("# a comment\n" * 1000)

    with pytest.raises(InvalidInput, match="is larger than any cluster, 10000 bytes"):
        list(saved.read_manifests([str(path)], max_bytes=10_000))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_end_is_reported_as_not_text(path: str) -> None:
    must_say(run("plan", "-f", path), f"{path}: is not text in UTF-8")


@pytest.mark.parametrize("text", ["a: b: c: [", "- 1", "\x00", "[" * 100_000])
def test_invalid_objects_on_standard_input_are_reported(text: str) -> None:
    result = CliRunner().invoke(main, ["plan", "-f", "-"], input=text)

    must_say(result, "gang-extender: -: ")


@pytest.mark.parametrize("kind", FILES)
def test_an_invalid_policy_file_is_named(kind: str, tmp_path: Path) -> None:
    path = bad_file(kind, tmp_path)

    must_say(run("plan", "-f", WHAT_IF, "--config", path), f"{path}: ")


WRONG = {
    "plan": [
        Wrong(("-f", WHAT_IF, "--now", "yesterday"), "--now: 'yesterday' is not a time"),
        Wrong(("-f", WHAT_IF, "--context", "prod"), "--context names a cluster, which only --live"),
        Wrong(("-f", WHAT_IF, "--node-selector", "x"), "x"),
    ],
    "explain": [
        Wrong(("",), "'' is not a gang"),
        Wrong(("a/b/c",), "'a/b/c' is not a gang"),
        Wrong(("train", "-n", "A B"), "--namespace 'A B' cannot be the name"),
        Wrong(("a/train", "-n", "b"), "--namespace is b"),
    ],
    "gangs": [
        Wrong(("--reason", "Tired"), "'Tired' is not a reason"),
        Wrong(("-n", "../x"), "cannot be the name of a namespace"),
    ],
    "top": [
        Wrong(("--reason", "Tired"), "'Tired' is not a reason"),
        Wrong(("--gangs", "-1"), "Invalid value for '--gangs'"),
        Wrong(("--every-s", "0"), "Invalid value for '--every-s'"),
    ],
    "scheduler-config": [
        Wrong(("--url", "here"), "--url 'here' is not a URL"),
        Wrong(("--url", "https://h"), "needs --ca-file, --cert-file, --key-file"),
        Wrong(("--ca-file", "x"), "--ca-file is for an https URL"),
        Wrong(("--deployment", "default-scheduler"), "needs --url"),
        Wrong(("--scheduler-name", ""), "a name consists of"),
        Wrong(("--scheduler-name", "a b"), "a name consists of"),
        Wrong(("--url", "http://hooks:hush@127.0.0.1:1"), "--url has a secret in it"),
        Wrong(("--hook-secret-file", "/nowhere"), "--hook-secret-file /nowhere cannot be read"),
        Wrong(("--hook-secret-file", "/dev/null"), "contains no usable secret"),
        Wrong(("--hook-secret-file", "/dev/zero"), "contains no usable secret"),
    ],
    "pair": [
        Wrong(("--scheduler-config", "/no", "--directory", "/proc/x"), "/no cannot be read"),
        Wrong(("--scheduler-config", sys.executable, "--directory", "/proc/x"), "is not text"),
        Wrong(("--scheduler-config", WHAT_IF, "--directory", "/proc/x"), "is not a Kube"),
        Wrong(("--scheduler-config", SHIPPED, "--directory", WHAT_IF), "is a file"),
        Wrong(("--scheduler-config", SHIPPED, "--directory", "/proc/x"), "cannot be written"),
    ],
    "certificates": [
        Wrong(("--directory", WHAT_IF), "is a file"),
        Wrong(("--directory", "/proc/nowhere"), "cannot be written"),
        Wrong(("--directory", "/proc/nowhere", "--renew"), "--renew needs the CA's pair"),
        Wrong(("--directory", "/proc/nowhere", "--host", "a b"), "neither a DNS name nor"),
        Wrong(("--directory", "/proc/nowhere", "--client-name", ""), "cannot be the name"),
        Wrong(("--directory", "/proc/nowhere", "--days", "0"), "Invalid value for '--days'"),
    ],
    "completion": [Wrong(("powershell",), "'powershell' is not one of")],
}


@pytest.mark.parametrize(
    ("word", "wrong"),
    [(word, wrong) for word, all_ in WRONG.items() for wrong in all_],
    ids=lambda each: " ".join(each.words) if isinstance(each, Wrong) else each,
)
def test_errors_that_only_one_command_can_have_are_reported(word: str, wrong: Wrong) -> None:
    must_say(run(word, *wrong.words), wrong.told, code=wrong.code)


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
