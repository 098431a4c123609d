"""Do the tests find a fault? Plant one after the other in a copy of the tree, and name the test.

    python -m tests.nightly.mutations                     # all faults, all tests of a landing
    python -m tests.nightly.mutations -n 2 --only NAME    # one fault, on two processes
    python -m tests.nightly.mutations --tests tests/unit/planner

The tests named with a fault run first, all others only if these pass. A test finds the fault if it
fails twice with it and passes without it. The exit code is 0 if every fault is found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

#: The name, the file and the tests that run first; what is wrong; the text, which the file has
#: exactly once; what replaces it.
TABLE = """
lapsed-reservation-kept  cache/reservation_table.py  cache/test_reservation_table.py
    The capacity reserved for a gang that never came is not released.
-   self._drop(each.uid)
+   pass

capacity-free-while-binding  permit/runner.py  permit/test_runner.py
    A reservation ends when its binding is sent, and not when the watch shows the pod.
-   self._ledger.mark_binding(each.uid, each.node)
+   self._ledger.release(each.uid)

node-reserved-twice  reservations/capacity.py  test_planning_loop.py
    A plan's reservations are judged without those made since its snapshot.
-   unused.amount(each) - reserved.amount(each) - committed.amount(each)
+   unused.amount(each) - committed.amount(each)

starving-gang-loses-its-room  reservations/capacity.py  reservations/test_arrivals.py
    A new pod may use the capacity that is kept for a gang that waits too long.
-   reserved.amount(each) + starving.amount(each)
+   reserved.amount(each)

terminating-pod-takes-no-room  cache/pods.py  cache/test_cluster.py
    The capacity of a pod is free as soon as it is deleted, though it still runs.
-   pod is None or not pod.node or pod.status in FINISHED_SET:
+   pod is None or not pod.node or pod.status in FINISHED_SET | {Status.RELEASING}:

bound-member-forgotten  cache/members.py  cache/test_reservation_table.py
    A member on a node counts as started only once its containers run, also after a restart.
-   _SCHEDULED = SCHEDULED_SET | {Status.SUCCEEDED}
+   _SCHEDULED = frozenset({Status.RUNNING, Status.SUCCEEDED})

queue-allow-list-ignored  cache/queue_policy.py  cache/test_queue_policy.py
    A namespace may use a queue that its list does not name.
-   return namespace.allows(queue) and not self._policy.denies(namespace)
+   return not self._policy.denies(namespace)

bind-before-minimum  cache/cluster.py  cache/test_reservation_table.py
    A member whose bind still waits counts as started.
-   seen + self.reservations.bound_in(key)
+   seen + len(self.reservations.of_gang(key))

role-minimum-ignored  permit/checks.py  permit/test_assembling.py
    A late member is bound at once though its gang lacks members of a role.
-   facts.scheduled(gang) >= group.min_member and is_satisfied(
+   facts.scheduled(gang) >= group.min_member or is_satisfied(

held-bind-never-times-out  permit/assembling.py  permit/test_runner.py
    A bind that waits for its gang is not answered at its deadline.
-   yield from self._table.end(attempt, Cause.DEADLINE, now)
+   pass

partly-bound-gang-stays  permit/committing.py  permit/test_partly_bound.py
    A gang that was bound in part and cannot be completed is not taken back.
-   elif timeouts.evict_partial_s and self._is_partial(group):
+   elif False:

ceiling-rounds-up  planner/quota.py  planner/queues/test_quota.py
    A pod of which only a part fits below the ceiling of its queue is admitted.
-   int(left) // amount), scarcest
+   -(-int(left) // amount)), scarcest

reclaim-from-due  planner/plugins/proportion.py  planner/plugins/test_proportion.py
    A queue that uses no more than it deserves has to give capacity back.
-   return excess(queue.allocated, self.deserved(queue), preemptor.pod.requests)
+   return list(preemptor.pod.requests.without(PODS))

dominant-share-of-cpu-alone  planner/policy.py  planner/plugins/test_others.py
    The dominant share of a gang is its share of cpu, whatever else it uses more of.
-   if share > largest and amount >= self.close(name):
+   if name == CPU and amount >= self.close(name):

gang-evicted-in-part  planner/victims/units.py  planner/test_victims.py
    A gang of which one member may not be evicted loses all the others.
-   if is_own or self._is_busy(gang) or not left or len(left) < present:
+   if is_own or self._is_busy(gang) or not left:

unknown-bind-called-failed  kube/write/bind.py  kube/write/test_bind.py
    A bind that was sent and not answered is reported as failed.
-   UNKNOWN if bind.is_uncertain or is_open else TIMED_OUT
+   TIMED_OUT

bind-out-of-term  kube/write/bind.py  kube/write/test_fencing.py
    A bind is sent though the term in which it was ordered is over.
-   return bind.order.whose is not Whose.OURS or self._fencing.holds(bind.term)
+   return True

older-event-wins  kube/list_watch.py  kube/watch/test_event_order.py
    An event of the watch that comes late overwrites a newer one.
-   if at <= self._listed or at < known or (at == known and not is_gone):
+   if at <= self._listed:

exempt-pod-waits  hooks/gate.py  hooks/test_gate.py
    A pod of an exempt namespace, or of another scheduler, is judged like any other.
-   return pod.is_unmanaged or bool(pod.node) or member.native
+   return bool(pod.node) or member.native

hook-secret-not-compared  hooks/server.py  web/test_caller_check.py
    A caller of the hooks may show any secret.
-   scheme.lower() == b"basic" and hmac.compare_digest(password, self._secret)
+   scheme.lower() == b"basic" and bool(password)
"""


class Mutation(NamedTuple):
    """One fault: *old* becomes *new*."""

    name: str
    wrong: str
    file: str
    old: str
    new: str
    first: list[str]

    @classmethod
    def of(cls, entry: str) -> Mutation:
        """Read an entry of the table."""
        head, wrong, old, new = entry.splitlines()
        name, file, *first = head.split()
        return cls(name, wrong.strip(), file, old[1:].strip(), new[1:].strip(), first)


MUTATIONS = [Mutation.of(entry) for entry in TABLE.strip().split("\n\n")]


class Failure(NamedTuple):
    """What ended a run of pytest: a *test* that failed, or something else, which has no name."""

    test: str
    said: str


class Verdict(NamedTuple):
    """Whether a fault is found, and the words for it."""

    is_found: bool
    said: str


class Copy:
    """The tracked files of the checkout, as they are now, in a folder where they may be changed."""

    def __init__(self, folder: Path, *, workers: int, limit_s: float) -> None:
        self._folder = folder
        self._options = ["-n", str(workers)] if workers else []
        self._limit_s = limit_s
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        for name in filter(None, tracked.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def find(self, mutation: Mutation, tests: Sequence[str]) -> Verdict:
        """Run *tests* with *mutation*, and what fails once more, with and without it."""
        with self._planted(mutation):
            for selection in filter(None, (_first(mutation, tests), tests)):
                if failure := self._run(selection):
                    break
            else:
                return Verdict(False, "NOT FOUND")
            if failure.test and not self._run([failure.test]):
                return Verdict(False, f"NOT FOUND: {failure.said} fails, and then passes")
        if self._run([failure.test] if failure.test else selection):
            return Verdict(False, f"NOT FOUND: {failure.said} fails without it too")
        return Verdict(True, f"found by {failure.said}")

    @contextmanager
    def _planted(self, mutation: Mutation) -> Iterator[None]:
        file = self._folder / "extender" / mutation.file
        before = file.read_text()
        _write(file, before.replace(mutation.old, mutation.new))
        try:
            yield
        finally:
            _write(file, before)

    def _run(self, tests: Sequence[str]) -> Failure | None:
        """Run *tests* until one fails; None when all of them pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", *self._options]
        environment = {"PYTHONPATH": str(self._folder), "HYPOTHESIS_PROFILE": "landing"}
        with self._folder.with_name("told").open("w+") as told:
            process = subprocess.Popen(
                [*command, *tests],
                cwd=self._folder,
                env=os.environ | environment,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                return Failure("", f"a hang, ended after {self._limit_s:g} s")
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            told.seek(0)
            return _read(code, told.read())


def _read(code: int, told: str) -> Failure | None:
    """Find the first failure in what pytest has *told*."""
    if code == 0:
        return None
    late = " (its timeout)" if re.search(r"Timeout >|\+ Timeout \+", told) else ""
    summary = told.rpartition("short test summary info")[2]
    # Of a parametrized test the name alone: what is in brackets may hold anything.
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", summary, re.MULTILINE)
    if failed:
        return Failure(failed[1], failed[1] + late)
    if late:
        return Failure("", f"a test without a name{late}")
    raise SystemExit(f"{told[-2000:]}\npytest ends with {code} and names no test")


def _first(mutation: Mutation, tests: Sequence[str]) -> list[str]:
    """Return what of *tests* runs first, nothing where that is somewhere else by now."""
    places = [f"{test}/{name}" for test in tests for name in mutation.first]
    return [place for place in places if (ROOT / place).exists()]


def _mend(mutation: Mutation) -> str:
    """Say that the code has moved away from *mutation*; empty when it has not."""
    file = ROOT / "extender" / mutation.file
    times = file.read_text().count(mutation.old) if file.is_file() else 0
    where = f"{mutation.name}: extender/{mutation.file} has its text {times} times"
    return "" if times == 1 else f"{where}; the code has moved, mend the table"


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    # Of two versions of one size and second Python would take the compiled one.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def main() -> int:
    """Plant the mutations, one after the other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    landing = project["tool"]["pytest"]["ini_options"]["testpaths"]
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.mutations")
    parser.add_argument("--list", action="store_true", help="say what the mutations are, and end")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[m.name for m in MUTATIONS])
    parser.add_argument("--tests", nargs="+", metavar="PATH", default=landing)
    parser.add_argument("-n", dest="workers", type=int, default=0, help="processes for pytest")
    parser.add_argument("--limit-s", type=float, default=900.0, help="for one run of pytest")
    options = parser.parse_args()
    wanted = [m for m in MUTATIONS if not options.only or m.name in options.only]
    if options.list:
        print(*(f"{m.name:32} {m.wrong}" for m in wanted), sep="\n")
        return 0
    if stale := list(filter(None, map(_mend, wanted))):
        parser.exit(1, "\n".join([*stale, ""]))
    found = 0
    with TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "tree", workers=options.workers, limit_s=options.limit_s)
        for mutation in wanted:
            began = time.monotonic()
            verdict = copy.find(mutation, options.tests)
            found += verdict.is_found
            took_s = time.monotonic() - began
            print(f"{mutation.name:32} {took_s:5.1f} s  {verdict.said}", flush=True)
    print(f"{found} of {len(wanted)} found")
    return 0 if found == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
