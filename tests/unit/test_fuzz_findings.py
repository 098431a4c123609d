"""Bugs that fuzzing found; the inputs are in the corpus."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from click.testing import CliRunner

from extender.cache.changes import Upsert
from extender.cache.cluster import Cluster
from extender.cli.main import main
from extender.cli.output import print_error
from extender.clock import SystemClock
from extender.errors import InvalidConfiguration, InvalidHookCall, InvalidQuantity, NoResponse
from extender.hooks import wire
from extender.kube.decode import pods, resources
from extender.kube.decode.decoder import WatchLine
from extender.kube.encode import dump
from extender.kube.list_watch import ListWatch, Signal
from extender.model.gang import VOLCANO
from extender.model.resources import parse_quantity
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.settings import Settings
from extender.web import documents
from extender.web.api import json_chunks
from tests.nightly.fuzz.edge import CORPUS, must_be_text
from tests.nightly.fuzz.edges.hook_port import HookStreams
from tests.nightly.fuzz.edges.page_port import PageStreams
from tests.nightly.fuzz.edges.terminal import documents as responses

PODS = resources.pods(frozenset({"gang-scheduler"}))


def corpus_entry(name: str) -> bytes:
    """Return an entry of the corpus without its first line, which describes it."""
    return (CORPUS / name).read_bytes().partition(b"\n")[2]


def test_true_is_not_a_quantity_although_it_equals_one() -> None:
    assert parse_quantity(1.0) == 1

    with pytest.raises(InvalidQuantity):
        parse_quantity(True)


def test_an_overlong_quantity_is_refused_in_a_short_sentence() -> None:
    with pytest.raises(InvalidQuantity) as caught:
        parse_quantity("x" * 100_000)

    assert len(str(caught.value)) < 200


def test_an_almost_valid_quantity_is_quoted_completely() -> None:
    assert str(InvalidQuantity("1.5 Gi")).startswith("'1.5 Gi' is not a quantity")


@pytest.mark.parametrize("verb", ["ADDED", "MODIFIED"])
def test_a_queue_without_a_name_does_not_stop_the_planner(verb: str) -> None:
    codec = resources.queues(VOLCANO)
    thing = {"metadata": {"resourceVersion": "7"}, "spec": {"weight": 1}}
    event = json.dumps({"type": verb, "object": thing}).encode()

    assert codec.line(event) == WatchLine(verb, "7")
    assert codec.item(json.dumps(thing).encode()) is None
    cluster = Cluster.of(Settings(), SystemClock())
    assert make_plan(cluster.snapshot(0.0), policy_parser.DEFAULT).verdicts == {}


def test_an_event_that_is_not_utf8_only_breaks_the_stream() -> None:
    progress = ListWatch(PODS)

    for name in ("line-that-is-not-utf8", "type-that-is-not-utf8"):
        assert progress.line(corpus_entry(f"watch/{name}.events").strip()) is Signal.BROKEN


@pytest.mark.parametrize("name", ["page-that-is-html", "page-that-breaks-off"])
def test_a_page_that_is_not_a_list_is_requested_again(name: str) -> None:
    with pytest.raises(NoResponse, match="not a list of objects"):
        list(ListWatch(PODS).page(corpus_entry(f"watch/{name}.events")))


def test_an_object_that_is_not_utf8_does_not_lose_the_page() -> None:
    progress = ListWatch(PODS)

    assert list(progress.page(corpus_entry("watch/page-that-is-not-utf8.events"))) == []
    assert progress.is_listed


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999-23:59"])
def test_a_pod_of_the_first_or_last_year_is_read(moment: str) -> None:
    thing = {"metadata": {"name": "x", "creationTimestamp": moment, "deletionTimestamp": moment}}
    read, _ = pods.to_pod(pods.pod(json.dumps(thing).encode()), schedulers=frozenset())

    assert read.name == "x"


@pytest.mark.parametrize(
    "name",
    [
        "pod-that-began-before-the-first-year",
        "pod-that-began-in-the-last-second",
        "pod-that-leaves-in-the-last-second",
    ],
)
def test_a_time_that_cannot_be_formatted_does_not_break_the_snapshot_page(
    name: str,
) -> None:
    cluster = Cluster.of(Settings(), SystemClock())
    read = PODS.line(corpus_entry(f"watch/{name}.events"))
    assert isinstance(read.change, Upsert)
    cluster.apply(read.change)

    written = [each for each in dump(cluster.snapshot(1.8e9))["items"] if each["kind"] == "Pod"]
    assert [each["metadata"]["name"] for each in written] == ["x"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_no_duration_is_counted_from_the_first_or_last_year(moment: str) -> None:
    thing = {
        "metadata": {"name": "x", "creationTimestamp": moment, "deletionTimestamp": moment},
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": "Succeeded",
            "startTime": moment,
            "containerStatuses": [{"state": {"terminated": {"finishedAt": moment}}}],
        },
    }
    read, _ = pods.to_pod(pods.pod(json.dumps(thing).encode()), schedulers=frozenset())

    assert (read.created, read.leaves_by, read.began, read.ended) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", ["nested-too-deeply", "resource-that-is-not-utf8"])
def test_a_call_that_cannot_be_read_is_malformed(name: str) -> None:
    with pytest.raises(InvalidHookCall):
        pods.pod(wire.read_filter(corpus_entry(f"hooks/{name}.call")).pod)


def test_a_body_that_is_nested_too_deeply_is_malformed() -> None:
    with pytest.raises(InvalidHookCall, match="recursion"):
        wire.read_preempt(corpus_entry("hooks/body-nested-too-deeply.call"))


def test_hook_errors_contain_no_control_characters() -> None:
    told = json.loads(wire.write_error("no such node: \x1b[2J\x9b31m\u202e"))["Error"]

    must_be_text(told, "it")
    assert told.startswith("no such node: ")


def test_garbage_after_the_last_bind_neither_answers_nor_loses_a_waiting_bind() -> None:
    sent = (CORPUS / "hook-port" / "garbage-behind-a-last-bind.http").read_bytes()

    with HookStreams() as edge:
        result = edge.result_of(sent)

    assert result.answered == (("bind", b'{"a":1}'),)
    assert (result.statuses, result.end) == ((), "open")


@pytest.mark.parametrize("name", ["garbage-behind-a-last-question", "upgrade-and-more"])
def test_garbage_after_the_last_request_does_not_answer_it(name: str) -> None:
    sent = (CORPUS / "page-port" / f"{name}.http").read_bytes()

    with PageStreams() as edge:
        result = edge.result_of(sent, is_slow=True)

    assert len(result.statuses) == 1
    assert 400 not in result.statuses


def test_api_answers_contain_no_control_characters_and_keep_their_meaning() -> None:
    name = "a\x7f\x9b31m\u202eb\u2028研究"
    told = b"".join(json_chunks({"gangs": [{"name": name}], "more": name})).decode()

    must_be_text(told, "it")
    assert "研究" in told
    assert json.loads(told) == {"gangs": [{"name": name}], "more": name}


@pytest.mark.parametrize(
    "text",
    [
        "tiers: [{plugins: [{name: %s}]}]",
        "plugins: [%s]",
        "actions: [%s]",
        "%s: 1",
        "tiers: [{plugins: [{name: gang, enableJobOrder: %s}]}]",
        "tiers: [{plugins: [{name: gang, arguments: {%s: 1}}]}]",
        "configurations: [{name: %s}]",
        "starvation: {after: %s}",
        "starvation: {%s: 1}",
    ],
)
def test_a_policy_with_an_overlong_number_is_refused_with_its_position(text: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        policy_parser.parse(text % ("0x" + "f" * 5000))

    assert "cannot be understood" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["version", "namespace"])
def test_a_saved_object_with_an_overlong_number_is_one_line(name: str) -> None:
    sent = corpus_entry(f"plan/{name}-of-thousands-of-digits.saved")
    result = CliRunner().invoke(main, ["plan", "-f", "-"], input=sent)

    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert result.stderr.startswith("gang-extender: -: Pod ")


def test_a_path_that_is_too_long_is_one_line() -> None:
    result = CliRunner().invoke(main, ["plan", "-f", "é" * 200])

    assert result.exit_code == 2
    assert "File name too long" in result.stderr


@pytest.mark.parametrize(
    ("name", "kind", "place"),
    [
        ("amounts-that-are-a-text", documents.Explanation, "queue_figures.deserved"),
        ("victims-that-are-texts", documents.Explanation, "victims[0]"),
        ("placements-that-are-a-list", documents.Plan, "gangs[0].placements"),
        ("share-that-is-a-text", documents.Plan, "queues[0].share"),
    ],
)
def test_an_answer_with_an_invalid_field_is_rejected_with_its_place(
    name: str, kind: type[msgspec.Struct], place: str
) -> None:
    sent = json.loads((CORPUS / "terminal" / f"{name}.json").read_text())

    with pytest.raises(msgspec.ValidationError, match=re.escape(f"- at `$.{place}`")):
        msgspec.convert(sent["response"], kind)


@pytest.mark.parametrize(
    ("name", "kind"), [("plan", documents.Plan), ("explain", documents.Explanation)]
)
def test_a_document_of_the_api_is_read_whole(name: str, kind: type[msgspec.Struct]) -> None:
    sent = msgspec.json.encode(responses()[name])

    assert msgspec.json.encode(msgspec.json.decode(sent, type=kind)) == sent


def test_a_long_error_keeps_its_beginning_and_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"cannot be read: {'x' * 9000}; write another")
    told = capsys.readouterr().err

    assert len(told) < 1100
    assert told.startswith("cannot be read: x")
    assert told.endswith("x; write another\n")
