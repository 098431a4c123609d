"""`trace:` of a scenario: the columns of public traces, and the job that each line becomes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.errors import InvalidInput
from extender.sim import traces
from extender.sim.traces import Trace, TraceSpec
from extender.sim.workloads import Job

MANUAL = (Path(__file__).parents[3] / "docs/what-if.md").read_text()
GPU = "nvidia.com/gpu"
#: Invented lines with the columns of the public tables, not in the order of time.
PAI = """\
job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
j1,worker,2,Terminated,1000.0,1600.0,600.0,29.5,50.0,T4
j2,ps,1.0,Failed,900,960,,,,
j3,worker,1,Running,1010,,100,1,100,V100
j4,worker,4,Terminated,1100,1400,200,2,100,MISC
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,600,60
openb-pod-0001,6000,12288,1,460,,BE,Succeeded,100,400,100.0
openb-pod-0002,6000,12288,8,1000,V100M32,LS,Pending,200,500,
openb-pod-0003,6000,12288,0,0,,LS,Running,300,,300
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,uA,vcEwI,16,64,2,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:05:00,2020-04-01 00:10:00,300,300
2,uB,root,0,8,1,FAILED,2020-04-01 00:01:00,2020-04-01 00:01:00,2020-04-01 00:01:40,100,0
3,uB,,3,8,2,CANCELLED,2020-04-01 00:02:00,None,None,0,0
4,uB,vc2,1,8,1,RUNNING,2020-04-01 00:03:00,,,,
"""


#: How a scenario maps the columns of each.
MAPPINGS: dict[str, Any] = {
    PAI: {
        "columns": {
            "arrives": "start_time", "ends": "end_time", "pods": "inst_num", "cpu": "plan_cpu",
            "memory": "plan_mem", "gpu": "plan_gpu",
        },
        "units": {"cpu": "10m", "memory": "1Gi", "gpu": "10m"},
    },
    OPENB: {
        "columns": {
            "arrives": "creation_time", "starts": "scheduled_time", "ends": "deletion_time",
            "cpu": "cpu_milli", "memory": "memory_mib", "gpu": "gpu_milli",
        },
        "units": {"cpu": "1m", "memory": "1Mi", "gpu": "1m"},
    },
    HELIOS: {
        "columns": {
            "arrives": "submit_time", "duration": "duration", "pods": "node_num",
            "cpu": "cpu_num", "gpu": "gpu_num",
        },
        "units": {"per": "gang"},
        "queue-by": "vc",
    },
}  # fmt: skip


def read(
    folder: Path, text: str, span_s: float = 3600.0, mapping: str = PAI, **options: object
) -> Trace:
    path = folder / "made-up.csv"
    path.write_text(text)
    fields = {"file": path.name, **MAPPINGS[mapping]}
    fields |= {key.replace("_", "-"): value for key, value in options.items()}
    return traces.read(msgspec.convert(fields, TraceSpec), path, span_s)


def job_facts(job: Job) -> tuple[object, ...]:
    """Return its arrival, its duration, the number of its pods, and the requests of one."""
    needs = job.shape.requests.write()
    return job.arrives_s, job.lasts_s, job.size, needs


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_line_with_a_number_of_pods_is_a_gang(tmp_path: Path, mark: str) -> None:
    trace = read(tmp_path, mark + PAI)

    assert [job_facts(job) for job in trace.jobs] == [
        (0.0, 60.0, 1, {"pods": "1"}),
        (100.0, 600.0, 2, {"cpu": "6", "memory": "30208Mi", GPU: "1", "pods": "1"}),
        (200.0, 300.0, 4, {"cpu": "2", "memory": "2Gi", GPU: "1", "pods": "1"}),
    ]
    assert trace.queues == ["default"]
    assert not any(job.is_plain for job in trace.jobs)
    assert all(job.min_member == job.size for job in trace.jobs)
    assert trace.sentence() == (
        "3 of 3 gangs; 1 more did not start or did not end and are left out; "
        "1 request a fraction of a GPU, which is rounded up"
    )


def test_a_line_without_a_number_of_pods_is_a_single_pod(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB, mapping=OPENB)

    assert [job_facts(job) for job in trace.jobs] == [
        (0.0, 540.0, 1, {"cpu": "12", "memory": "16Gi", GPU: "1", "pods": "1"}),
        (100.0, 300.0, 1, {"cpu": "6", "memory": "12Gi", GPU: "1", "pods": "1"}),
        (200.0, 300.0, 1, {"cpu": "6", "memory": "12Gi", GPU: "1", "pods": "1"}),
    ]
    assert all(job.is_plain for job in trace.jobs)
    assert (trace.unended, trace.rounded) == (1, 1)


def test_amounts_of_a_gang_are_divided_among_its_pods(tmp_path: Path) -> None:
    trace = read(tmp_path, HELIOS, mapping=HELIOS)

    assert [(job.queue, *job_facts(job)) for job in trace.jobs] == [
        ("vcewi", 0.0, 300.0, 2, {"cpu": "32", GPU: "8", "pods": "1"}),
        ("q-root", 60.0, 100.0, 1, {"cpu": "8", "pods": "1"}),
        ("default", 120.0, 1.0, 2, {"cpu": "4", GPU: "2", "pods": "1"}),
    ]
    assert (trace.unended, trace.rounded) == (1, 1)


def test_a_gpu_can_be_counted_in_fractions_without_rounding(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB, mapping=OPENB, gpu="example.com/gpu-milli", per_gpu=1000)

    asked = [job.shape.requests.amount("example.com/gpu-milli") for job in trace.jobs]
    assert asked == [1000, 460, 1000]
    assert trace.rounded == 0


def test_the_earliest_gangs_are_kept_in_any_order_of_lines(tmp_path: Path) -> None:
    trace, brief = read(tmp_path, PAI, limit=2), read(tmp_path, PAI, span_s=150)

    assert [job.name for job in trace.jobs] == ["trace-line-3", "trace-line-2"]
    assert "2 of 3 gangs" in trace.sentence()
    assert len(brief.jobs) == 2
    assert "1 would arrive after the span" in brief.sentence()


def test_speed_shortens_times_and_every_sets_arrivals(tmp_path: Path) -> None:
    quick = read(tmp_path, PAI, speed=10, after="1m")
    even = read(tmp_path, PAI, every="30s")

    assert [(job.arrives_s, job.lasts_s) for job in quick.jobs] == [(60, 6), (70, 60), (80, 30)]
    assert [(job.arrives_s, job.lasts_s) for job in even.jobs] == [(0, 60), (30, 600), (60, 300)]


def test_the_queue_is_a_column_or_one_fixed_queue(tmp_path: Path) -> None:
    assert read(tmp_path, OPENB, mapping=OPENB, queue_by="qos").queues == ["be", "ls"]
    assert read(tmp_path, HELIOS, mapping=HELIOS, queue_by="user").queues == ["ua", "ub"]
    assert read(tmp_path, PAI, queue="mine").queues == ["mine"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PAI.replace("960", "soon"), "line 3: end_time: 'soon' is not a time"),
        (PAI.replace("29.5", "much"), "line 2: plan_mem: 'much' is not a number of at least 0"),
        (PAI.replace("1600.0,", "-6,"), "line 2: end_time: '-6' is not a number"),
        (PAI.replace("j1,worker,2", "j1,worker,2.5"), "line 2: inst_num: '2.5' is not a size"),
        (PAI.replace("worker,4", "worker,20000"), "'20000' is not a size from 1 to 10000"),
        (
            PAI + "j5,worker\n",
            "line 6: it has 2 columns, and the header has 10; fix or remove the line",
        ),
        (PAI.replace("50.0", "inf"), "line 2: plan_gpu: 'inf' is not a number"),
        (PAI.replace("1000.0", "April"), "line 2: start_time: 'April'"),
        (PAI + 'j5,"worker\n', "line 6 is not CSV"),
        (PAI + "x" * 20_000, "line 6 is longer than 10000 characters"),
        ("", "is empty"),
        ('[{"status": "Pass", "vc": "ee9e8c"}]', "is JSON; traces are read as CSV"),
        (
            "a,b\n1,2\n",
            "columns.arrives: its first line has no column 'start_time'; it has 'a', 'b'",
        ),
        (PAI.splitlines()[0] + "\n", "has no gang that ended"),
        ("\0" * 9, "columns.arrives: its first line has no column"),
    ],
)
def test_an_invalid_line_is_one_sentence_with_its_number(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text)

    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'made-up.csv'}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"queue_by": "team"},
            "queue-by: its first line has no column 'team'; it has 'job_name', 'task_name'",
        ),
        ({"queue": "a", "queue_by": "status"}, "queue and queue-by exclude each other"),
        ({"after": "2h"}, "none of its gangs arrives within the span"),
        ({"every": "soon"}, "every: 'soon' is not a duration"),
        ({"columns": {"arrives": "start_time"}}, "columns needs either duration or ends"),
        (
            {"columns": {"arrives": "a", "duration": "b", "starts": "c"}},
            "columns.starts is used only with columns.ends",
        ),
        ({"units": {"cpu": "much"}}, "units.cpu: 'much' is not a quantity"),
        ({"units": {"gpu": 0}}, "units.gpu: '0.0' is not above 0"),
    ],
)
def test_an_impossible_option_is_refused(
    tmp_path: Path, options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read(tmp_path, PAI, **options)  # type: ignore[arg-type]


def test_too_many_queues_are_refused(tmp_path: Path) -> None:
    head, line = HELIOS.splitlines()[:2]
    text = "\n".join([head, *(line.replace("uA", f"u{each}") for each in range(1001))])

    with pytest.raises(InvalidInput, match="more than 1000 queues; set queue, or another queue-by"):
        read(tmp_path, text, mapping=HELIOS, queue_by="user")


def test_only_the_limit_of_a_long_file_is_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    real = traces.heapq.heappushpop
    monkeypatch.setattr(
        traces.heapq, "heappushpop", lambda heap, each: (kept.append(len(heap)), real(heap, each))
    )
    text = PAI.splitlines()[0] + "\n"
    text += "".join(f"j,t,1,Terminated,{9000 - each},9999,1,1,0,\n" for each in range(2000))
    trace = read(tmp_path, text, limit=10)

    assert set(kept) == {10}
    assert [job.name for job in trace.jobs] == [f"trace-line-{2001 - each}" for each in range(10)]


# ── on the command line ─────────────────────────────────────────────────────────────────────────

SCENARIO = """
span: 1h
nodes: [{name: n, count: 2, has: {cpu: 64, memory: 256Gi, nvidia.com/gpu: 8}}]
queues: [{name: vcewi, weight: 3}]
trace: {file: made-up.csv, REST}
""".replace("REST", yaml.safe_dump(MAPPINGS[HELIOS], default_flow_style=True, width=1000)[1:-2])
TRACE = SCENARIO.splitlines()[-1]


def simulate(folder: Path, scenario: str, text: str, *words: str) -> Result:
    (folder / "made-up.csv").write_text(text)
    (folder / "day.yaml").write_text(scenario)
    return CliRunner().invoke(main, ["simulate", "-f", str(folder / "day.yaml"), *words])


def test_a_trace_next_to_the_scenario_is_simulated_with_its_queues(tmp_path: Path) -> None:
    first, second = (simulate(tmp_path, SCENARIO, HELIOS) for _ in range(2))

    assert first.exit_code == 0, first.output
    assert first.stdout_bytes == second.stdout_bytes
    assert "1h 00m of 2 nodes and 3 gangs" in first.stdout
    for queue in ("vcewi", "q-root", "default"):
        assert re.search(rf"^{queue} +\S+ +1 +1 ", first.stdout, re.MULTILINE)
    assert re.search(r"gangs that ended +3\n", first.stdout)
    said = "made-up.csv: 3 of 3 gangs; 1 more did not start or did not end"
    assert said in first.stderr
    assert first.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("made-up.csv", "gone.csv"), "gone.csv: cannot be read: No such file"),
        (
            (TRACE, ""),
            "the scenario has no arrivals; add arrivals or a trace",
        ),
        (("queue-by: vc", "queue: x"), "trace names the queue 'x', which is not in queues"),
        (("{file", "{name: No!, file"), "the name 'No!' in trace is not a Kubernetes name"),
        (("{file", "{speed: 0, file"), "trace.speed"),
        (("{file", "{every: soon, file"), "day.yaml: every: 'soon' is not a duration"),
        (("made-up.csv", '"a\\0b"'), "is no name of a file; give the one to read"),
        (("made-up.csv", '""'), "'' is no name of a file; give the one to read"),
        (("made-up.csv", "."), "cannot be read: Is a directory"),
        (("{file", "{limit: 200000, file"), "trace.limit"),
        (("nodes: [{name: n, count: 2, has", "about: [{has"), "day.yaml"),
    ],
)
def test_an_invalid_trace_is_one_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    shown = simulate(tmp_path, SCENARIO.replace(*change), HELIOS)

    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert said in shown.stderr
    assert "day.yaml: " in shown.stderr
    assert shown.stderr.count("\n") == 1


def test_the_mappings_of_the_manual_are_those_that_are_tested() -> None:
    for name, table in (("pai_task_table", PAI), ("openb_pod_list", OPENB)):
        line = next(each for each in MANUAL.splitlines() if each.startswith(f"| `{name}`"))
        columns = MAPPINGS[table]["columns"] | ({"gpu": "num_gpu"} if table is OPENB else {})
        for key, column in columns.items():
            assert f"`{key}: {column}`" in line


def test_the_trace_example_of_the_manual_can_be_simulated(tmp_path: Path) -> None:
    part = MANUAL.partition("```yaml\n# trace\n")[2].partition("```")[0]
    scenario = SCENARIO.replace(TRACE, part)
    (tmp_path / "cluster_log.csv").write_text(HELIOS)

    shown = simulate(tmp_path, scenario, "")
    assert shown.exit_code == 0, shown.stderr
    assert "and 3 gangs" in shown.stdout
