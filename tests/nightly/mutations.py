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

reserved-pod-not-woken  reservations/ledger.py  test_stories.py
    A pod that gets a reservation after it was refused is not woken.
-   elif reservation.gang not in self.opening and self.wakeups.is_due(reservation, now):
+   elif False:

woken-before-whole-gang-reserved  reservations/ledger.py  reservations/test_ledger.py
    Members of a large gang are woken before all of them have reservations.
-   elif reservation.gang not in self.opening and self.wakeups.is_due(reservation, now):
+   elif self.wakeups.is_due(reservation, now):

admitted-before-whole-gang-reserved  reservations/ledger.py  reservations/test_ledger.py
    Members of a large gang are admitted before all of them have reservations.
-   if reservation.gang in self.opening:
+   if False:

bound-to-reserved-capacity  reservations/ledger.py  reservations/test_ledger.py
    A single pod is bound though its capacity was reserved for others after filter admitted it.
-   if not self.capacity.nodes_for(pod.shape, (node,)):
+   if False:

bound-to-shrunk-node  reservations/ledger.py  reservations/test_ledger.py
    A single pod is bound to its reserved node however small that is now.
-   return self._may_keep_node(pod, node)
+   return True

late-bind-skips-queue-limit  reservations/ledger.py  reservations/test_ledger.py
    A bind that comes after its reservation expired is not checked against its queue.
-   return known is not None or is_native or self._queue_allows(pod, uid)
+   return True

late-bind-not-counted  reservations/ledger.py  test_stories.py
    A bind that comes after its reservation expired counts in no queue until the watch shows it.
-   self._record(pod, gang, node, queue, Stage.BINDING)
+   pass

expires-while-members-wait  reservations/ledger.py  reservations/test_ledger.py
    Reservations of a gang expire though binds of other members wait.
-   if any(each.stage in (Stage.WAITING, Stage.BINDING, Stage.UNKNOWN) for each in siblings):
+   if False:

capacity-free-while-unknown  reservations/ledger.py  test_stories.py
    The capacity of a binding without an answer is released.
-   self._table.advance(uid, Stage.UNKNOWN, node)
+   self.release(uid)

swapped-to-worse-node  reservations/ledger.py  reservations/test_ledger.py
    A reservation is swapped to a node that shrank.
-   if not self._is_valid(reservation):
+   if False:

unschedulable-member-stays-filtered  reservations/ledger.py  test_stories.py
    A member that filter admitted, and for which no node was found, is taken to be on its way.
-   self._table.pod_unschedulable(uid, pod.refusal)
+   pass

requested-cycle-does-not-run  planning_loop.py  test_stories.py
    A requested cycle does not run while nothing has changed.
-   if self._is_requested or self._cluster.reservations.is_backoff_over():
+   if self._cluster.reservations.is_backoff_over():

taint-ignored-before-binding  permit/checks.py  test_stories.py
    The taints of a node are not checked before the bindings of a gang are sent.
-   return node is not None and accepts(node, pod.shape)
+   return node is not None

guarantee-ignored  planner/quota.py  test_stories.py
    Queues have no guarantee, in the plan and in filter.
-   self.guarantee = dict(guarantee)
+   self.guarantee = {}

rejected-node-for-all  cache/gangs.py  test_stories.py
    A node that is rejected for one gang is rejected for every pod of the shape.
-   pods = _with_own_shapes(pods, members, rejected)
+   pass

rejected-node-remembered  cache/gang_history.py  reservations/test_ledger.py
    The rejected nodes of a gang are remembered after its end.
-   self._keep(gang, {})
+   pass

filtered-pod-not-planned  cache/gangs.py  test_stories.py
    A cycle does not count pods that only filter has seen.
-   if not pods:
+   if True:

placement-skips-queue-limit  reservations/apply_plan.py  test_stories.py
    A placement is applied without asking what its queue has left.
-   return self._ledger.allowance.check(gang.queue, namespace, total) is None
+   return True

placement-on-tainted-node  reservations/apply_plan.py  reservations/test_ledger.py
    Capacity is reserved on a node that was tainted since the snapshot.
-   if not _is_unchanged(self._cluster.node(name), seen) or not self._ledger.capacity.fits(
+   if not self._ledger.capacity.fits(

refused-placement-without-backoff  reservations/apply_plan.py  reservations/test_ledger.py
    A gang whose placement is refused again and again does not back off.
-   if times > MOST_REFUSALS:
+   if False:

single-pod-without-placement  reservations/apply_plan.py  test_stories.py
    Single pods get no placement where gangs wait for capacity.
-   return queue.left is None and not any(map(self._is_unschedulable, gang.waiting))
+   return not any(map(self._is_unschedulable, gang.waiting))

refusal-of-the-snapshot  reservations/apply_plan.py  test_stories.py
    Whether a single pod is unschedulable is read from the snapshot, which is older.
-   return was_refused or bool(now.refusal) or pod.created <= self._started
+   return was_refused or bool(pod.refusal) or pod.created <= self._started

used-up-resource-closes-queue  reservations/capacity.py  test_stories.py
    A queue that has used up one resource is closed to pods that do not request it.
-   if any(a > left.amount(n) - spent.amount(n) for n, a in amounts.items() if a > 0):
+   if any(left[n] <= spent.amount(n) for n in left):

capacity-of-sent-binding-given-away  reservations/capacity.py  reservations/test_ledger.py
    The capacity of a binding that was sent is given to another pod.
-   committed, shrunk = self._table.assumed_nodes(), self._cluster.recently_shrunk()
+   committed, shrunk = {}.keys(), self._cluster.recently_shrunk()

shrunk-node-trusted  reservations/capacity.py  reservations/test_ledger.py
    A node that just shrank is taken to be as large as kube-scheduler assumes.
-   committed, shrunk = self._table.assumed_nodes(), self._cluster.recently_shrunk()
+   committed, shrunk = self._table.assumed_nodes(), {}.keys()

full-cluster-not-probed  reservations/probe.py  test_stories.py
    kube-scheduler is not probed where all nodes are full.
-   node = self._cluster.any_node() if pod.lacks_capacity else ""
+   node = ""

nomination-outlives-reservation  reservations/wakeups.py  test_stories.py
    A pod stays nominated to a node after its reservation was released.
-   if self._woken.pop(each.uid, None) is not None
+   if False

shrunk-node-ignored-before-binding  permit/checks.py  test_stories.py
    Whether a node still has the capacity is not checked before the bindings of a gang are sent.
-   if not facts.fits(node, [bind.uid for bind in wanted]):
+   if False:

backoff-by-wall-clock  cache/cluster.py  test_stories.py
    A clock that is set back lengthens the backoff of a gang.
-   clock.monotonic,
+   clock.now,
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
        print(*(f"{m.name:36} {m.wrong}" for m in wanted), sep="\n")
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
            print(f"{mutation.name:36} {took_s:5.1f} s  {verdict.said}", flush=True)
    print(f"{found} of {len(wanted)} found")
    return 0 if found == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
