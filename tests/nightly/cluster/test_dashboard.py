"""The dashboard of an extender on the real control plane, in a real Chromium.

How it is drawn is tried at length over plans that tests write (`tests/nightly/browser`); here the
same is
asked of pages about gangs that a real kube-scheduler starts.
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
    gang_names,
    is_drawn_and_live,
    is_the_same,
    overhang,
    serious_faults,
    started,
    stays,
    windows,
)

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]
SECTIONS = ["/", "/gangs", "/nodes", "/holds", "/evictions", "/whatif", "/policy", "/health"]
SCRIPT = "<script>alert(1)</script>"
IMAGE = '<img src=x onerror="alert(2)">'
#: Turns what is written behind it round, for whoever reads.
BIDI = "\u202e"
LONG = "x" * 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    """An extender of these tests' own, to be killed, and the kube-scheduler that asks it."""
    with plane.extender(*OURS) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


@pytest.fixture
def look(browser: Browser, pair: GangScheduler) -> Iterator[Open]:
    with windows(browser, pair.extender.ops_url) as look:
        yield look


@pytest.fixture
def submit(api: Api, pair: GangScheduler, namespace: str) -> Callable[..., None]:
    """Create a gang of our own kube-scheduler in the namespace of the test."""

    def submit(name: str, count: int, pool: Pool, **rest: Any) -> None:
        gang(api, name, namespace, count, pool, scheduler=SCHEDULER, **rest)

    return submit


Submit = Callable[..., None]


def row(page: Page, name: str) -> Locator:
    return page.locator(f'tbody tr:has(a.name[href$="/{name}"])')


def members_of(page: Page) -> Locator:
    return page.locator("section", has=page.get_by_role("heading", name="Members", exact=True))


def wait_until_it_is(pair: GangScheduler, namespace: str, name: str, reason: str) -> None:
    def said() -> str:
        return str(reported.explanation(pair.extender, namespace, name)["reason"])

    wait_for(lambda: said() == reason, 60, f"{name} is {reason}", every_s=0.1, seeing=said)


@pytest.fixture
def filled(pair: GangScheduler, namespace: str, nodes: Nodes, submit: Submit) -> Pool:
    """Gang `night` runs on all of two nodes, and `train` waits for them."""
    pool = nodes(2, cpu="2")
    submit("night", 4, pool)
    wait_until_it_is(pair, namespace, "night", "Running")
    submit("train", 3, pool)
    wait_until_it_is(pair, namespace, "train", "InsufficientCapacity")
    return pool


def test_every_page_tells_of_the_cluster(look: Open, filled: Pool, namespace: str) -> None:
    page = look("/")
    is_drawn_and_live(page)
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
        is_drawn_and_live(page)
        expect(page.locator("main")).to_contain_text(words)
    # Asked of by the kube-scheduler that is there, over the watches that are there.
    expect(page.locator("section", has_text="Hooks")).to_contain_text("filter")
    expect(page.locator("section", has_text="Watches")).to_contain_text("pods")
    expect(page.locator(".page-head")).to_contain_text("ready")


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), ("dark", NARROW["width"])], ids=["light", "dark-narrow"]
)
def test_axe_finds_no_serious_fault_and_nothing_hangs_over(
    look: Open, filled: Pool, namespace: str, scheme: str, width: int
) -> None:
    window = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    page = look("/", quiet=False, bypass_csp=True, **window)
    url = page.url.removesuffix("/")
    for path in (*SECTIONS, f"/gangs/{namespace}/train", f"/gangs/{namespace}/night"):
        page.goto(url + path)

        is_drawn_and_live(page)
        assert serious_faults(page) == [], path
        assert overhang(page) <= 0, path
        assert (brightness(page) < 150) == (scheme == "dark")


def test_a_gang_that_is_created_appears_waits_and_starts_without_a_reload(
    look: Open, api: Api, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    pool = nodes(2, cpu="2")
    page = look(f"/gangs?namespace={namespace}")
    stays(page)
    expect(page.locator("main")).to_contain_text(re.compile("matches|no gangs yet"))
    submit("night", 4, pool, labels={"app": "night"})
    expect(row(page, "night")).to_contain_text("running")
    submit("train", 3, pool)
    expect(row(page, "train")).to_contain_text("InsufficientCapacity needs 3 x 1 cpu")
    expect(row(page, "train")).to_contain_text("waiting")
    story = look(f"/gangs/{namespace}/train")
    stays(story)
    expect(story.locator(".said")).to_contain_text("InsufficientCapacity")
    expect(story.locator(".page-head .chip")).to_have_text("waiting")

    api.delete_all("pods", namespace, labels="app=night", grace_seconds=0)

    expect(row(page, "train")).to_contain_text("running")
    expect(story.locator(".page-head .chip")).to_have_text("running")
    steps = story.locator(".steps li b")
    expect(steps.first).to_have_text("Created")
    expect(steps.last).to_have_text("Running")
    assert "InsufficientCapacity" in steps.all_inner_texts()
    # kube-scheduler chose among the nodes of the test, and the page says which.
    members = members_of(story).locator("tbody tr")
    expect(members).to_have_count(3)
    for pod in api.list("pods", namespace):  # those of the other gang are gone
        where = members.filter(has_text=pod["metadata"]["name"])
        expect(where).to_contain_text(objects.node_of(pod) or "a node")
    assert is_the_same(page)
    assert is_the_same(story)


def test_filters_live_in_the_address_and_the_keyboard_finds_its_way(
    look: Open, filled: Pool, namespace: str
) -> None:
    page = look("/gangs")
    stays(page)
    page.get_by_role("searchbox").fill(f"{namespace}/nig")
    expect(page.locator(".gangs tbody tr")).to_have_count(1)
    assert is_the_same(page)
    page.reload()
    assert gang_names(page) == [f"{namespace}/night"]

    page.goto(page.url.partition("?")[0] + f"?namespace={namespace}&sort=gang")
    assert gang_names(page) == [f"{namespace}/night", f"{namespace}/train"]
    page.get_by_label("status").select_option("waiting")
    expect(page.locator(".gangs tbody tr")).to_have_count(1)
    assert "stands=waiting" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("a.name", has_text="train")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/gangs/{namespace}/train")
    expect(page.locator("h1")).to_contain_text("train")


def test_the_room_of_nodes_is_what_pods_leave_of_it(look: Open, filled: Pool) -> None:
    page = look(f"/nodes?find={filled.names[0].rpartition('-')[0]}")
    expect(page.locator(".map li")).to_have_count(2)
    for name in filled.names:
        expect(page.locator(".map li", has_text=name)).to_contain_text("0 free of 2")


def test_binds_that_are_held_are_shown_until_the_rest_has_come(
    look: Open, api: Api, pair: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    stage = TrainGang(api, pair, namespace, nodes(1))
    page = look("/holds")
    stays(page)
    stage.create_waiting(2, minimum=3)

    expect(row(page, "train")).to_contain_text("2 waiting")
    stage.add(2)
    expect(page.locator("main")).to_contain_text("There are no reservations")
    page.goto(page.url.replace("/holds", f"/gangs/{namespace}/train"))
    expect(page.locator(".page-head .chip")).to_have_text("running")


def test_who_was_asked_to_leave_is_shown_with_whom_for(
    look: Open,
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
    wait_until_it_is(pair, namespace, "old", "Running")
    page = look("/evictions")
    stays(page)
    api.create(objects.pod_group("vip", namespace, 2, queue=queue, priorityClassName=urgent))
    facts = {"scheduler": SCHEDULER, "node_selector": pool.selector, "priority": urgent}
    api.create(*objects.pods(2, "vip", namespace, gang="vip", **facts))

    for pod in ("old-0", "old-1"):
        gone = page.locator("tbody tr", has_text=f"{namespace}/{pod}")
        expect(gone).to_contain_text(f"{namespace}/vip")
        expect(gone).to_contain_text("preempt")
    assert is_the_same(page)


def test_what_would_be_is_what_then_is(
    look: Open, pair: GangScheduler, filled: Pool, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    page = look("/whatif")
    page.get_by_label("name", exact=True).fill("soon")
    page.get_by_label("namespace").fill(namespace)
    page.get_by_label("members").fill("2")
    page.get_by_label("cpu of each").fill("1")
    pool = nodes(1, cpu="2")
    # An answer is good for a while: only who is known by then is counted.
    expect(look(f"/nodes?find={pool.names[0]}").locator(".map li")).to_have_count(1)
    page.get_by_role("button").click()
    expect(page.locator(".asked .chip")).to_have_text("would start now")
    expect(page.locator(".asked")).to_contain_text(re.compile("on .*-2 x2"))

    page.get_by_label("without").fill(f"node/{pool.names[0]}")
    page.get_by_role("button").click()
    expect(page.locator(".asked .chip")).to_have_text("would wait")
    submit("soon", 2, pool)
    wait_until_it_is(pair, namespace, "soon", "Running")


def test_an_extender_that_is_killed_and_begins_anew_is_noticed_and_the_page_goes_on(
    look: Open, pair: GangScheduler, filled: Pool, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    # Browsers themselves say on the console that nobody answers.
    page = look(f"/gangs?namespace={namespace}", quiet=False)
    is_drawn_and_live(page)
    stays(page)

    pair.extender.kill()
    try:
        expect(page.locator("#stale")).to_contain_text("What you see is from")
        expect(row(page, "train")).to_contain_text("waiting")
    finally:
        pair.extender.start()
    expect(page.locator("#state")).to_have_attribute("data-is", "live")
    expect(page.locator("#stale")).to_be_hidden()

    # Room for `train`, too, which was first.
    submit("after", 2, nodes(1, cpu="8"))
    expect(row(page, "after")).to_contain_text("running")
    assert is_the_same(page)


def test_whatever_the_api_server_admits_is_text(
    look: Open, api: Api, nodes: Nodes, submit: Submit, namespace: str
) -> None:
    pool = nodes(1)
    # A queue that is a script, an annotation of 60 kB that names the role, one that is no number.
    marks = {
        "volcano.sh/task-spec": f"{IMAGE}{BIDI}{LONG}",
        "gang-extender.io/duration": f"{SCRIPT}{BIDI}{LONG}",
    }
    submit("train", 2, pool, queue=f"{SCRIPT}{BIDI}", annotations=marks)
    # A gang that is named so, by a pod alone.
    named = {"gang-extender.io/gang": f"{SCRIPT}{BIDI}txt.exe"}
    facts = {"scheduler": SCHEDULER, "node_selector": pool.selector}
    api.create(objects.pod("named", namespace, annotations=named, **facts))

    page = look(f"/gangs?namespace={namespace}")
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
        is_drawn_and_live(page)
        is_only_text(page)


def is_only_text(page: Page) -> None:
    expect(page.locator("main img, main script")).to_have_count(0)
    assert BIDI not in page.content()
    assert len(page.content()) < 40_000
