"""Advisories against what is locked: found, none, and could not look are three different ends."""

from __future__ import annotations

import http.server
import json
import re
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from release import audit
from release.advisories import LONGEST, Advisory, Verdict
from release.audit import CLEAN, COULD_NOT_LOOK, FOUND, main
from tests.tls.wallet import Wallet

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC)


def said_of(name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    """An advisory about one package of PyPI."""
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    about = {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}
    about |= {key: more.pop(key) for key in ("versions", "package", "ranges") if key in more}
    usual = {"id": "PYSEC-2026-1", "modified": f"{NOW:%Y-%m-%dT%H:%M:%SZ}", "affected": [about]}
    return {**usual, **more}


ELSEWHERE = said_of("something-else", {"introduced": "0"}, id="PYSEC-2026-99")
OLD_FLASK = said_of("Flask", {"introduced": "0"}, {"fixed": "3.0"}, summary="cookies leak")
FLASK = "flask==2.0"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return locks(tmp_path / "tree", [FLASK, "urllib3==2.1 ; python_version >= '3.11' \\"])


def locks(root: Path, runs: list[str], tests: list[str] = [], accepted: str = "") -> Path:  # noqa: B006
    (root / "release").mkdir(parents=True)
    hashed = [f"{line}\n    --hash=sha256:00\n    # via nobody" for line in runs]
    (root / "requirements.lock").write_text("\n".join(hashed))
    (root / "requirements-dev.lock").write_text("\n".join([*hashed, *tests]))
    (root / "requirements-build.lock").write_text("# nothing\n")
    (root / "release" / "accepted-advisories.toml").write_text(accepted)
    return root


def zipped(path: Path, *entries: dict[str, Any] | str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, entry in enumerate([ELSEWHERE, *entries]):
            text = entry if isinstance(entry, str) else json.dumps(entry)
            archive.writestr(f"{number}.json", text)
    return path


def look(tree: Path, *entries: dict[str, Any] | str) -> int:
    """Audit *tree* with a list of these entries, and one that does not matter."""
    return main(
        ["--root", str(tree), "--advisories", str(zipped(tree.parent / "list.zip", *entries))]
    )


def test_nothing_known_is_clean(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(tree, said_of("flask", {"introduced": "2.1"})) == CLEAN

    said = capsys.readouterr().out
    assert f"2 locked versions, 2 advisories, the newest of {NOW:%Y-%m-%d}" in said
    assert said.endswith("audit: nothing known against what is locked\n")


def test_something_known_is_found_and_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(tree, OLD_FLASK) == FOUND

    said = capsys.readouterr().out
    assert "FOUND      flask 2.0 (runs): PYSEC-2026-1: cookies leak Mended in: 3.0" in said
    assert "nothing known" not in said


def test_what_only_tests_is_looked_at_too_and_said_to_be_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = locks(tmp_path / "tree", ["urllib3==2.1"], tests=[FLASK])

    assert look(tree, OLD_FLASK) == FOUND
    assert "flask 2.0 (tests)" in capsys.readouterr().out


def test_a_checkout_of_files_is_a_list_too(tree: Path) -> None:
    folder = tree.parent / "vulns" / "flask"
    folder.mkdir(parents=True)
    # A plain 1.10 in YAML would be the number 1.1.
    text = yaml.safe_dump(OLD_FLASK).replace("'3.0'", "3.0")
    (folder / "PYSEC-2026-1.yaml").write_text(text)
    (folder / "README.md").write_text("no advisory")

    assert main(["--root", str(tree), "--advisories", str(folder.parent)]) == FOUND


@pytest.mark.parametrize(
    ("version", "events", "verdict"),
    [
        ("1.5", [{"introduced": "0"}], Verdict.YES),
        ("0a1", [{"introduced": "0"}], Verdict.YES),
        ("1.5", [{"introduced": "1.5"}], Verdict.YES),
        ("1.4.9", [{"introduced": "1.5"}], Verdict.NO),
        ("1.5", [{"introduced": "0"}, {"fixed": "1.5"}], Verdict.NO),
        ("1.5rc1", [{"introduced": "0"}, {"fixed": "1.5"}], Verdict.YES),
        ("1.10", [{"introduced": "1.9"}, {"fixed": "1.11"}], Verdict.YES),
        ("1.5", [{"introduced": "0"}, {"last_affected": "1.5"}], Verdict.YES),
        ("1.5.1", [{"introduced": "0"}, {"last_affected": "1.5"}], Verdict.NO),
        # As lists write it: a later range first.
        ("1.9", [{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "0"}, {"fixed": "1.8"}],
         Verdict.NO),
        ("2.1", [{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "0"}, {"fixed": "1.8"}],
         Verdict.YES),
        ("1.5", [{"introduced": "1.5"}, {"fixed": "1.5"}], Verdict.NO),
        ("1.5", [{"introduced": "0"}, {"fixed": "yesterday"}], Verdict.UNDECIDED),
    ],
)  # fmt: skip
def test_a_version_is_compared_as_python_compares_versions(
    version: str, events: list[dict[str, str]], verdict: Verdict
) -> None:
    assert decoded(said_of("flask", *events)).judges("flask", version) is verdict


def decoded(entry: dict[str, Any]) -> Advisory:
    return msgspec.convert(entry, Advisory)


@pytest.mark.parametrize(
    ("about", "verdict"),
    [
        ({"versions": ["1.9", "2.0.0"]}, Verdict.YES),
        ({"versions": ["1.9", "nonsense"]}, Verdict.NO),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, Verdict.UNDECIDED),
        ({"versions": ["1.9"], "ranges": [{"type": "GIT", "events": []}]}, Verdict.NO),
        ({"package": {"name": "flask", "ecosystem": "npm"}, "versions": ["2.0"]}, Verdict.NO),
        ({"package": {"name": "FLASK", "ecosystem": "PyPI"}, "versions": ["2.0"]}, Verdict.YES),
    ],
)
def test_what_an_advisory_is_about_is_read_as_it_is_meant(
    about: dict[str, Any], verdict: Verdict
) -> None:
    assert decoded(said_of("flask", **about)).judges("flask", "2.0") is verdict


def test_an_advisory_that_cannot_be_compared_with_a_version_is_not_passed_over(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_commits = [{"type": "GIT", "events": [{"introduced": "0"}]}]

    assert look(tree, said_of("flask", ranges=by_commits)) == COULD_NOT_LOOK
    assert "UNDECIDED  flask 2.0 (runs): PYSEC-2026-1" in capsys.readouterr().out


def test_one_finding_of_three_databases_is_one(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = [{"introduced": "0"}]
    look(
        tree,
        said_of("flask", *spans, aliases=["CVE-2026-7"]),
        said_of("flask", *spans, id="GHSA-aaaa", aliases=["CVE-2026-7"]),
        said_of("flask", *spans, id="OTHER-1", aliases=["GHSA-aaaa"]),
        said_of("flask", *spans, id="CVE-2026-8"),
    )

    said = capsys.readouterr().out
    assert said.count("FOUND") == 2
    assert "flask 2.0 (runs): CVE-2026-7, GHSA-aaaa, OTHER-1, PYSEC-2026-1: " in said


def test_what_was_withdrawn_is_not_found(tree: Path) -> None:
    assert look(tree, {**OLD_FLASK, "withdrawn": "2026-01-01T00:00:00Z"}) == CLEAN


def of(days: float, entry: dict[str, Any]) -> dict[str, Any]:
    moment = NOW - timedelta(days=days)
    return {**entry, "modified": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}


@pytest.mark.parametrize(("days", "end"), [(29, CLEAN), (31, COULD_NOT_LOOK), (-9, COULD_NOT_LOOK)])
def test_a_list_that_knows_nothing_new_is_not_taken_for_a_good_word(
    tree: Path, days: float, end: int
) -> None:
    path = tree.parent / "list.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1.json", json.dumps(of(days, ELSEWHERE)))

    assert main(["--root", str(tree), "--advisories", str(path)]) == end


def test_one_entry_of_the_future_does_not_make_an_old_list_new(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree.parent / "list.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1.json", json.dumps(of(400, ELSEWHERE)))
        archive.writestr("2.json", json.dumps(of(-400, {**ELSEWHERE, "id": "PYSEC-2026-98"})))

    assert main(["--root", str(tree), "--advisories", str(path)]) == COULD_NOT_LOOK
    assert "is 400 days old; 30 is the most" in capsys.readouterr().out


def test_what_an_old_list_knows_is_found_all_the_same(tree: Path) -> None:
    path = tree.parent / "list.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1.json", json.dumps(of(400, OLD_FLASK)))

    assert main(["--root", str(tree), "--advisories", str(path)]) == FOUND


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18), None])
def test_a_list_that_is_none_is_not_clean(
    tree: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree.parent / "list.zip"
    if content is not None:
        path.write_bytes(content)

    assert main(["--root", str(tree), "--advisories", str(path)]) == COULD_NOT_LOOK
    assert capsys.readouterr().out.startswith("could not look: ")


def test_a_folder_without_advisories_is_not_clean(tree: Path) -> None:
    assert main(["--root", str(tree), "--advisories", str(tree / "release")]) == COULD_NOT_LOOK


@pytest.mark.parametrize(
    ("entry", "end"),
    [
        ('{"id": 5, "affected": "Flask"}', COULD_NOT_LOOK),
        ("[" * 100_000 + '"flask"', COULD_NOT_LOOK),
        ('{"id": 5, "affected": "nobody of ours"}', CLEAN),
        (" " * (LONGEST + 1), COULD_NOT_LOOK),
    ],
    ids=["about us", "deep", "about others", "too long to know"],
)
def test_an_entry_that_nobody_can_read_matters_if_it_may_be_about_us(
    tree: Path, entry: str, end: int
) -> None:
    assert look(tree, entry) == end


def test_what_strangers_write_into_a_summary_steers_no_terminal(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look(tree, {**OLD_FLASK, "summary": "a\x1b[2Jb\nFOUND nothing", "id": "X\x9b1m"})

    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\x9b" not in said
    assert "\nFOUND nothing" not in said


ACCEPT = '[CVE-2026-7]\nwhy = "no cookies here"\nuntil = {day}\n'


@pytest.mark.parametrize(("days", "end"), [(1, CLEAN), (-2, FOUND)])
def test_what_was_accepted_is_said_and_counts_again_when_its_time_is_over(
    tmp_path: Path, days: int, end: int, capsys: pytest.CaptureFixture[str]
) -> None:
    day = NOW.date() + timedelta(days=days)
    tree = locks(tmp_path / "tree", [FLASK], accepted=ACCEPT.format(day=day))

    assert look(tree, {**OLD_FLASK, "aliases": ["CVE-2026-7"]}) == end
    said = capsys.readouterr().out
    assert ("no cookies here" in said) == (end == CLEAN)
    assert ("the acceptance of CVE-2026-7 has ended" in said) == (end == FOUND)


def test_what_is_accepted_in_vain_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = locks(tmp_path / "tree", [FLASK], accepted=ACCEPT.format(day="2999-01-01"))

    assert look(tree) == CLEAN
    assert "concerns nothing that is locked any more" in capsys.readouterr().out


@pytest.mark.parametrize(
    "accepted",
    [
        "[CVE-1]\nuntil = 2999-01-01\n",
        '[CVE-1]\nwhy = "because"\n',
        '[CVE-1]\nwhy = "because"\nuntil = "some day"\n',
        '[CVE-1]\nwhy = "because"\nuntil = 2999-01-01\nversion = "1"\n',
        'CVE-1 = "because"\n',
        "[",
    ],
)
def test_nothing_is_accepted_without_a_reason_and_a_day(tmp_path: Path, accepted: str) -> None:
    tree = locks(tmp_path / "tree", [FLASK], accepted=accepted)

    assert look(tree) == COULD_NOT_LOOK


@pytest.mark.parametrize("line", ["flask>=2", "flask @ https://x.example/f.whl", "-r other.txt"])
def test_a_lock_that_is_not_wholly_understood_is_not_audited_in_part(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert look(locks(tmp_path / "tree", [line])) == COULD_NOT_LOOK
    assert "requirements.lock has a line that is no package" in capsys.readouterr().out


def test_every_package_of_our_own_locks_is_looked_at() -> None:
    by_hand = {
        line.split(" ")[0]
        for name in audit.LOCKS
        for line in (ROOT / name).read_text().splitlines()
        if "==" in line and line[0].isalnum()
    }
    looked_at = {f"{each.package}=={each.version}" for each in audit.locked(ROOT)}

    assert looked_at == by_hand
    assert {path.name for path in ROOT.glob("requirements*.lock")} == set(audit.LOCKS)


def test_what_is_accepted_today_has_a_reason_and_a_day() -> None:
    assert isinstance(audit.accepted(ROOT / "release" / audit.ACCEPTED), dict)


class Depot(http.server.BaseHTTPRequestHandler):
    """Gives the list away, or leads elsewhere."""

    content = b""
    leads_to = ""

    def do_GET(self) -> None:
        self.send_response(302 if self.leads_to else 200)
        if self.leads_to:
            self.send_header("Location", self.leads_to)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def served(wallet: Wallet, content: bytes, leads_to: str = "") -> Iterator[str]:
    handler = type("Told", (Depot,), {"content": content, "leads_to": leads_to})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(wallet.folder / "tls.crt", wallet.folder / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}/all.zip"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def wallet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wallet:
    made = Wallet(tmp_path / "wallet")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.folder / "ca.crt"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "localhost")
    return made


def test_the_list_is_brought_and_serves_again_where_there_is_no_network(
    tree: Path, wallet: Wallet, capsys: pytest.CaptureFixture[str]
) -> None:
    content = zipped(tree.parent / "list.zip", OLD_FLASK).read_bytes()
    with served(wallet, content) as address:
        assert main(["--root", str(tree), "--source", address]) == FOUND
    assert "no new list" not in capsys.readouterr().out

    assert main(["--root", str(tree), "--source", address]) == FOUND
    assert "no new list: " in capsys.readouterr().out
    assert [path.name for path in audit.cache().parent.iterdir()] == ["advisories.zip"]


def test_without_a_network_and_without_a_list_it_says_that_it_cannot(
    tree: Path, wallet: Wallet, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(wallet, b"") as address:
        pass

    assert main(["--root", str(tree), "--source", address]) == COULD_NOT_LOOK
    said = capsys.readouterr().out
    assert said.startswith("could not look: no list: ")
    assert "make audit ADVISORIES=all.zip" in said


@pytest.mark.parametrize(
    ("cut", "leads_to", "why"),
    [
        (30, "", "no zip, or not a whole one"),
        (0, "http://localhost/all.zip", "leads to http://localhost/all.zip, which is no https"),
    ],
)
def test_what_is_no_whole_list_or_came_in_the_open_does_not_replace_the_last_one(
    tree: Path,
    wallet: Wallet,
    cut: int,
    leads_to: str,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = zipped(tree.parent / "list.zip", OLD_FLASK).read_bytes()
    with served(wallet, content) as address:
        main(["--root", str(tree), "--source", address])
    with served(wallet, content[: len(content) - cut], leads_to) as address:
        assert main(["--root", str(tree), "--source", address]) == FOUND

    assert why in capsys.readouterr().out
    assert audit.cache().read_bytes() == content


def test_a_server_that_nobody_vouches_for_is_not_believed(
    tree: Path, wallet: Wallet, tmp_path: Path
) -> None:
    stranger = Wallet(tmp_path / "stranger")
    content = zipped(tree.parent / "list.zip").read_bytes()
    with served(stranger, content) as address:
        assert main(["--root", str(tree), "--source", address]) == COULD_NOT_LOOK


def test_a_list_is_not_brought_in_the_open(
    tree: Path, wallet: Wallet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(tree), "--source", "http://localhost/all.zip"]) == COULD_NOT_LOOK
    assert "http://localhost/all.zip is no https:// address" in capsys.readouterr().out


def test_make_hands_the_list_on() -> None:
    ran = subprocess.run(
        ["make", "--dry-run", "audit", "ADVISORIES=some.zip"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert re.search(r"-m release\.audit --advisories some\.zip$", ran.stdout, re.MULTILINE)
