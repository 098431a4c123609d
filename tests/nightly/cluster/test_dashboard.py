"""The dashboard of an extender on the real control plane, in Chromium.

`tests/nightly/browser` tests the pages in detail with made-up plans; here a real kube-scheduler
starts the gangs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests import objects
from tests.cluster import reported
from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.train_gang import OURS, SCHEDULER, GangScheduler, Pool, TrainGang, gang
from tests.cluster.waiting import wait_for
from tests.nightly.browser.windows import (
    NARROW,
    Open,
    brightness,
    expect_live,
    gang_names,
    is_same_page,
    mark_page,
    overflow,
    serious_violations,
    started,
    windows,
)

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]
SECTIONS = ["/", "/gangs", "/nodes", "/holds", "/evictions", "/whatif", "/policy", "/health"]
SCRIPT = "<script>alert(1)</script>"
IMAGE = '<img src=x onerror="alert(2)">'
#: Reverses the direction of the following text.
BIDI = "\u202e"
LONG = "x" * 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    """An extender that may be killed, and its kube-scheduler."""
    with plane.extender(*OURS) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


@pytest.fixture
def open_page(browser: Browser, pair: GangScheduler) -> Iterator[Open]:
    with windows(browser, pair.extender.ops_url) as open_page:
        yield open_page


@pytest.fixture
def submit(api: Api, pair: GangScheduler, namespace: str) -> Callable[..., None]:
    """Create a gang for that kube-scheduler in the namespace of the test."""

    def submit(name: str, count: int, pool: Pool, **rest: Any) -> None:
        gang(api, name, namespace, count, pool, scheduler=SCHEDULER, **rest)

    return submit


Submit = Callable[..., None]


def row(page: Page, name: str) -> Locator:
    return page.locator(f'tbody tr:has(a.name[href$="/{name}"])')


def members_of(page: Page) -> Locator:
    return page.locator("section", has=page.get_by_role("heading", name="Members", exact=True))


def wait_until_reason_is(pair: GangScheduler, namespace: str, name: str, reason: str) -> None:
    def current() -> str:
        return str(reported.explanation(pair.extender, namespace, name)["reason"])

    wait_for(lambda: current() == reason, 60, f"{name} is {reason}", every_s=0.1, seeing=current)


@pytest.fixture
def filled(pair: GangScheduler, namespace: str, nodes: Nodes, submit: Submit) -> Pool:
    """Two nodes: gang `night` uses all of both, and `train` waits for them."""
    pool = nodes(2, cpu="2")
    submit("night", 4, pool)
    wait_until_reason_is(pair, namespace, "night", "Running")
    submit("train", 3, pool)
    wait_until_reason_is(pair, namespace, "train", "InsufficientCapacity")
    return pool


def test_pages_show_the_cluster(open_page: Open, filled: Pool, namespace: str) -> None:
    page = open_page("/")
    expect_live(page)
    expect(page.locator("main")).to_contain_text("default")
    expect(page.locator("section", has_text="Waiting longest")).to_contain_text("train")

    for section, words in {
        "Gangs": f"{namespace}/train",
        "Nodes": filled.names[1],
        "Binding": "There are no reservations",
        "Evictions": "Evictions",
        "What if": "Enter a gang, a change, or both",
        "Policy": "Actions, in this order",
        "Health": SCHEDULER,
    }.items():
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=section).click()
        expect_live(page)
        expect(page.locator("main")).to_contain_text(words)
    # The calls of kube-scheduler, and the watches.
    expect(page.locator("section", has_text="Hooks")).to_contain_text("filter")
    expect(page.locator("section", has_text="Watches")).to_contain_text("pods")
    expect(page.locator(".page-head")).to_contain_text("ready")


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), ("dark", NARROW["width"])], ids=["light", "dark-narrow"]
)
def test_pages_fit_the_window_and_have_no_serious_accessibility_violation(
    open_page: Open, filled: Pool, namespace: str, scheme: str, width: int
) -> None:
    window = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    page = open_page("/", quiet=False, bypass_csp=True, **window)
    url = page.url.removesuffix("/")
    for path in (*SECTIONS, f"/gangs/{namespace}/train", f"/gangs/{namespace}/night"):
        page.goto(url + path)

        expect_live(page)
        assert serious_violations(page) == [], path
        assert overflow(page) <= 0, path
        assert (brightness(page) < 150) == (scheme == "dark")


def test_new_gang_appears_waits_and_starts_without_a_reload(
    open_page: Open, api: Api, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    pool = nodes(2, cpu="2")
    page = open_page(f"/gangs?namespace={namespace}")
    mark_page(page)
    expect(page.locator("main")).to_contain_text(re.compile("matches|no gangs yet"))
    submit("night", 4, pool, labels={"app": "night"})
    expect(row(page, "night")).to_contain_text("running")
    submit("train", 3, pool)
    expect(row(page, "train")).to_contain_text("InsufficientCapacity needs 3 x 1 cpu")
    expect(row(page, "train")).to_contain_text("waiting")
    story = open_page(f"/gangs/{namespace}/train")
    mark_page(story)
    expect(story.locator(".said")).to_contain_text("InsufficientCapacity")
    expect(story.locator(".page-head .chip")).to_have_text("waiting")

    api.delete_all("pods", namespace, labels="app=night", grace_seconds=0)

    expect(row(page, "train")).to_contain_text("running")
    expect(story.locator(".page-head .chip")).to_have_text("running")
    steps = story.locator(".steps li b")
    expect(steps.first).to_have_text("Created")
    expect(steps.last).to_have_text("Running")
    assert "InsufficientCapacity" in steps.all_inner_texts()
    # The page shows the nodes that kube-scheduler chose.
    members = members_of(story).locator("tbody tr")
    expect(members).to_have_count(3)
    for pod in api.list("pods", namespace):  # those of the other gang are deleted
        where = members.filter(has_text=pod["metadata"]["name"])
        expect(where).to_contain_text(objects.node_of(pod) or "a node")
    assert is_same_page(page)
    assert is_same_page(story)


def test_filters_are_in_the_address_and_the_keyboard_works(
    open_page: Open, filled: Pool, namespace: str
) -> None:
    page = open_page("/gangs")
    mark_page(page)
    page.get_by_role("searchbox").fill(f"{namespace}/nig")
    expect(page.locator(".gangs tbody tr")).to_have_count(1)
    assert is_same_page(page)
    page.reload()
    assert gang_names(page) == [f"{namespace}/night"]

    page.goto(page.url.partition("?")[0] + f"?namespace={namespace}&sort=gang")
    assert gang_names(page) == [f"{namespace}/night", f"{namespace}/train"]
    page.get_by_label("status").select_option("waiting")
    expect(page.locator(".gangs tbody tr")).to_have_count(1)
    assert "status=waiting" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("a.name", has_text="train")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/gangs/{namespace}/train")
    expect(page.locator("h1")).to_contain_text("train")


def test_free_capacity_of_nodes_is_shown(open_page: Open, filled: Pool) -> None:
    page = open_page(f"/nodes?find={filled.names[0].rpartition('-')[0]}")
    expect(page.locator(".map li")).to_have_count(2)
    for name in filled.names:
        expect(page.locator(".map li", has_text=name)).to_contain_text("0 free of 2")


def test_waiting_binds_are_shown_until_the_gang_is_complete(
    open_page: Open, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    stage = TrainGang(api, pair, namespace, nodes(1))
    page = open_page("/holds")
    mark_page(page)
    stage.create_waiting(2, minimum=3)

    expect(row(page, "train")).to_contain_text("2 waiting")
    stage.add(2)
    expect(page.locator("main")).to_contain_text("There are no reservations")
    page.goto(page.url.replace("/holds", f"/gangs/{namespace}/train"))
    expect(page.locator(".page-head .chip")).to_have_text("running")


def test_evictions_are_shown_with_their_preemptor(
    open_page: Open,
    api: Api,
    pair: GangScheduler,
    nodes: Nodes,
    submit: Submit,
    create: Create,
    namespace: str,
) -> None:
    pool, queue, urgent = nodes(1, cpu="2"), f"q-{namespace}", f"urgent-{namespace}"
    create(objects.queue(queue), objects.priority_class(urgent, 1000))
    reported.wait_until_queue_is_known(pair.extender, queue)
    submit("old", 2, pool, queue=queue)
    wait_until_reason_is(pair, namespace, "old", "Running")
    page = open_page("/evictions")
    mark_page(page)
    api.create(objects.pod_group("vip", namespace, 2, queue=queue, priorityClassName=urgent))
    facts = {"scheduler": SCHEDULER, "node_selector": pool.selector, "priority": urgent}
    api.create(*objects.pods(2, "vip", namespace, gang="vip", **facts))

    for pod in ("old-0", "old-1"):
        gone = page.locator("tbody tr", has_text=f"{namespace}/{pod}")
        expect(gone).to_contain_text(f"{namespace}/vip")
        expect(gone).to_contain_text("preempt")
    assert is_same_page(page)


def test_what_if_answer_matches_what_happens(
    open_page: Open, pair: GangScheduler, filled: Pool, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    page = open_page("/whatif")
    page.get_by_label("name", exact=True).fill("soon")
    page.get_by_label("namespace").fill(namespace)
    page.get_by_label("members").fill("2")
    page.get_by_label("cpu of each").fill("1")
    pool = nodes(1, cpu="2")
    # Answers are cached, so the new node must be known first.
    expect(open_page(f"/nodes?find={pool.names[0]}").locator(".map li")).to_have_count(1)
    page.get_by_role("button").click()
    expect(page.locator(".asked .chip")).to_have_text("would start now")
    expect(page.locator(".asked")).to_contain_text(re.compile("on .*-2 x2"))

    page.get_by_label("without").fill(f"node/{pool.names[0]}")
    page.get_by_role("button").click()
    expect(page.locator(".asked .chip")).to_have_text("would wait")
    submit("soon", 2, pool)
    wait_until_reason_is(pair, namespace, "soon", "Running")


def test_page_recovers_after_the_extender_was_killed(
    open_page: Open, pair: GangScheduler, filled: Pool, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    # Browsers log failed requests themselves.
    page = open_page(f"/gangs?namespace={namespace}", quiet=False)
    expect_live(page)
    mark_page(page)

    pair.extender.kill()
    try:
        expect(page.locator("#stale")).to_contain_text("What you see is from")
        expect(row(page, "train")).to_contain_text("waiting")
    finally:
        pair.extender.start()
    expect(page.locator("#state")).to_have_attribute("data-is", "live")
    expect(page.locator("#stale")).to_be_hidden()

    # Enough capacity for `train` too, which is older.
    submit("after", 2, nodes(1, cpu="8"))
    expect(row(page, "after")).to_contain_text("running")
    assert is_same_page(page)


def test_hostile_names_and_annotations_are_escaped(
    open_page: Open, api: Api, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    pool = nodes(1)
    # A script as queue name, a role of 60 kB, and an invalid duration.
    marks = {
        "volcano.sh/task-spec": f"{IMAGE}{BIDI}{LONG}",
        "gang-extender.io/duration": f"{SCRIPT}{BIDI}{LONG}",
    }
    submit("train", 2, pool, queue=f"{SCRIPT}{BIDI}", annotations=marks)
    # A gang with such a name, by a pod's annotation.
    named = {"gang-extender.io/gang": f"{SCRIPT}{BIDI}txt.exe"}
    facts = {"scheduler": SCHEDULER, "node_selector": pool.selector}
    api.create(objects.pod("named", namespace, annotations=named, **facts))

    page = open_page(f"/gangs?namespace={namespace}")
    expect(page.locator(".gangs tbody tr")).to_have_count(2)
    expect(page.get_by_role("link", name=SCRIPT).first).to_be_visible()
    is_only_text(page)
    page.locator("a.name", has_text="train").click()
    expect(page.locator(".facts")).to_contain_text(SCRIPT)
    expect(members_of(page)).to_contain_text("onerror")
    is_only_text(page)
    page.go_back()
    page.locator("a.name", has_text=SCRIPT).click()
    expect(page.locator("h1")).to_contain_text(SCRIPT)
    is_only_text(page)
    for section in ("Overview", "Health"):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=section).click()
        expect_live(page)
        is_only_text(page)


def is_only_text(page: Page) -> None:
    expect(page.locator("main img, main script")).to_have_count(0)
    assert BIDI not in page.content()
    assert len(page.content()) < 40_000
