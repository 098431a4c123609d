from __future__ import annotations

from extender.cache.nodes import NodeUsage
from extender.model.pod import Shape
from tests.builders import ONE_CPU, amounts, node
from tests.strategies import examples


def test_deleted_nodes_leave_no_rows() -> None:
    usage = NodeUsage()
    for number in range(1000):
        usage.put(node(f"n{number}"))
        usage.add_pod(f"n{number}", ONE_CPU, releasing=False)
        usage.reserve([(f"n{number}", ONE_CPU, 1)])
        usage.drop(f"n{number}")
        usage.reserve([(f"n{number}", ONE_CPU, -1)])
        usage.remove_pod(f"n{number}", ONE_CPU, releasing=False)

    assert usage.rows == 64


def test_a_reused_row_is_empty() -> None:
    usage = NodeUsage()
    usage.put(node("old", cpu=64))
    usage.add_pod("old", ONE_CPU, releasing=True)
    usage.remove_pod("old", ONE_CPU, releasing=True)
    usage.drop("old")
    usage.put(node("new", cpu=1))

    table = usage.table()

    assert [each.name for each in table.nodes] == ["new"]
    assert table.allocatable[0, 0] == 1000
    assert table.used.sum() == table.releasing.sum() == 0


def test_unused_capacity_has_every_resource_that_the_node_offers() -> None:
    usage = NodeUsage()
    usage.put(node("n", allocatable=amounts(cpu=4, memory=8, gpu=2)))
    usage.add_pod("n", Shape(amounts(cpu=1, memory=1, gpu=1)), releasing=False)

    idle = usage.unused("n")

    assert idle is not None
    assert idle.amount("cpu") == 3000
    assert idle.amount(GPU) == 1
    assert idle.amount("memory") == 7 << 30


def test_resources_beyond_the_maximum_number_are_left_out() -> None:
    usage = NodeUsage()
    for name in ("m", "n", "o"):
        offered = amounts(cpu=1, **{f"{name}.io/{number}": 1 for number in range(500)})
        usage.put(node(name, allocatable=offered))
    usage.add_pod(
        "n", Shape(amounts(cpu=1, **{f"x{number}": 1 for number in range(500)})), releasing=False
    )

    table = usage.table()

    assert len(table.dimensions) == 128
    assert table.used[1, 0] == 1000


GPU = "nvidia.com/gpu"


def test_resource_names_that_only_pods_use_take_no_column_from_offered_resources() -> None:
    usage = NodeUsage()
    for number in range(200):
        junk = Shape(amounts(cpu=1, **{f"x.io/r{number}": 1}))
        usage.add_pod("n", junk, releasing=False)
        usage.reserve([("n", junk, 1)])
    usage.put(node("n", allocatable=amounts(cpu=1, **{GPU: 8})))

    assert GPU in usage.table().dimensions


def test_one_node_with_ever_new_resource_names_cannot_use_all_columns() -> None:
    usage = NodeUsage()
    for times in range(9):
        odd = {f"x.io/r{times}-{number}": 1 for number in range(500)}
        usage.put(node("odd", allocatable=amounts(cpu=1, **odd)))
        usage.add_pod("odd", Shape(amounts(cpu=1, **odd)), releasing=False)
    usage.put(node("good", allocatable=amounts(cpu=1, **{GPU: 8, "storage": 3})))

    assert {GPU, "storage", "cpu"} <= set(usage.table().dimensions)


def test_of_too_many_resource_names_kubernetes_own_and_shared_ones_have_columns() -> None:
    usage = NodeUsage()
    usage.put(node("good", allocatable=amounts(cpu=1, **{GPU: 8})))
    odd = {f"a.io/r{number}": 1 for number in range(500)}
    odd |= {GPU: 4, "ephemeral-storage": 7}
    usage.put(node("odd", allocatable=amounts(cpu=1, memory=1, pods=1, **odd)))

    table = usage.table()
    row = dict(zip(table.dimensions, table.allocatable[1].tolist(), strict=True))
    assert (row[GPU], row["ephemeral-storage"], row["cpu"]) == (4, 7, 1000)
    assert len(table.dimensions) == 64


def test_the_usage_of_a_resource_counts_once_a_node_offers_it() -> None:
    usage = NodeUsage()
    shape = Shape(amounts(cpu=1, **{GPU: 1}))
    for leaving in (False, False, True):
        usage.add_pod("n", shape, releasing=leaving)
    usage.remove_pod("n", shape, releasing=False)
    usage.reserve([("n", shape, 1), ("n", shape, 1), ("n", shape, -1)])
    usage.put(node("m", allocatable=amounts(cpu=1, **{GPU: 8})))
    usage.put(node("n", allocatable=amounts(cpu=1, **{GPU: 8})))

    table = usage.table()
    at = table.dimensions.index(GPU)
    assert (table.used[1, at], table.releasing[1, at]) == (3, 1)
    idle = usage.unused("n")
    assert idle is not None
    assert idle.amount(GPU) == 6
    usage.forget("n", shape)
    usage.remove_pod("n", shape, releasing=False)
    assert (usage.table().used[1, at], usage.table().releasing[1, at]) == (2, 0)


def test_usage_that_ended_before_any_node_offered_the_resource_is_not_counted() -> None:
    usage = NodeUsage()
    shape = Shape(amounts(cpu=1, **{GPU: 1}))
    usage.add_pod("n", shape, releasing=True)
    usage.forget("n", shape)
    usage.put(node("n", allocatable=amounts(cpu=1, **{GPU: 8})))

    table = usage.table()
    at = table.dimensions.index(GPU)
    assert (table.used[0, at], table.releasing[0, at]) == (1, 0)


def test_a_resource_that_gets_its_column_back_is_counted_as_before() -> None:
    usage = NodeUsage()
    shape = Shape(amounts(cpu=1, **{GPU: 1}))
    usage.put(node("good", allocatable=amounts(cpu=1, **{GPU: 8})))
    usage.add_pod("good", shape, releasing=False)
    usage.put(node("good"))  # its driver is gone for a while
    for name in ("m", "n"):
        odd = {f"{name}.io/{number}": 1 for number in range(64)}
        usage.put(node(name, allocatable=amounts(cpu=1, **odd)))
    assert GPU not in usage.table().dimensions
    usage.add_pod("good", shape, releasing=False)
    usage.drop("n")
    usage.put(node("good", allocatable=amounts(cpu=1, **{GPU: 8})))

    table = usage.table()
    assert table.used[0, table.dimensions.index(GPU)] == 2


def test_resource_names_that_disappear_leave_no_state() -> None:
    usage = NodeUsage()
    usage.put(node("n"))
    for number in range(examples(20_000)):
        junk = Shape(amounts(cpu=1, **{f"x.io/r{number}": 1}))
        usage.add_pod("n", junk, releasing=True)
        usage.remove_pod("n", junk, releasing=True)
        usage.reserve([("n", junk, 1)])
        usage.reserve([("n", junk, -1)])

    assert not usage.sparse_names
    assert usage.cached_amounts <= 250_000
