"""The pages in Chromium: every page, the flows, the keyboard alone, light and dark, a narrow window, axe-core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.admin import topics
from odradek.admin.client import AdminClient
from odradek.broker_process import BrokerProcess
from odradek.commands.session import parse_bootstrap
from odradek.streams.topology_view.document import ApplicationDocument
from odradek.streams.topology_view.model import view_of
from tests.console.chromium import AbsentError, axe_source, faults_of, running_chromium
from tests.console.console_process import running_console
from tests.console.served_pages import served
from tests.streams import counting
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

TOPIC = "orders"
GROUP = "billing"
EVIL = '<script>window.evil = 1</script><img src="/x" onerror="window.evil = 2">'
PAGES = (
    "/",
    "/topics",
    "/topics/new",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}/configs?all=on",
    f"/topics/{TOPIC}/configs/retention.ms",
    f"/topics/{TOPIC}/delete",
    f"/topics/{TOPIC}/messages",
    f"/topics/{TOPIC}/messages?tail=on",
    f"/topics/{TOPIC}/messages/0/0",
    f"/topics/{TOPIC}/messages/new",
    "/groups",
    f"/group?id={GROUP}",
    f"/group/reset?id={GROUP}&kind=shift&amount=-1",
    f"/group/delete?id={GROUP}",
    "/transactions",
    "/transactions/hanging",
    "/brokers",
    "/brokers/0",
    "/access",
    "/timeline",
    "/streams",
    "/logs",
    f"/logs/0/{TOPIC}-0",
    f"/logs/0/{TOPIC}-0/0",
    f"/logs/0/{TOPIC}-0/0/indexes",
    "/topics/absent",
)
NARROW = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with running_chromium() as running:
            yield running
    except AbsentError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def address(ours: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console over a broker with a topic and a group, and over the pages of a stream application."""
    with AdminClient(parse_bootstrap(ours.bootstrap)) as client:
        topics.create_topics(client, [topics.CreatableTopic(TOPIC, 1, 1)])
    write(ours, EVIL, *(f'{{"n": {number}}}' for number in range(9)))
    config = {"bootstrap.servers": ours.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    assert len(consumer.consume(10, 60)) == 10
    consumer.commit(asynchronous=False)
    consumer.close()
    pages = {
        "/topology": ApplicationDocument(EVIL, view_of(counting.word_counts())).text(),
        "/metrics": "kafka_streams_stream_metrics_alive_stream_threads 1.0\n",
    }
    with served(pages) as application:
        options = ("--allow-changes", "--data-dir", str(ours.data_dir), "--streams", application)
        with running_console(tmp_path_factory.mktemp("console"), ours.bootstrap, *options) as (found, _):
            yield found


def write(broker: BrokerProcess, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(TOPIC, value.encode(), EVIL.encode())
    assert producer.flush(30) == 0


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens pages that must have no error of a script or of the content security policy."""
    contexts = []
    problems: list[str] = []

    def open_one(path: str, **options: Any) -> Page:
        contexts.append(browser.new_context(base_url=address, **options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert [each for each in problems if "status of 404" not in each] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault_of_accessibility(open_page: Callable[..., Page], scheme: str) -> None:
    try:
        axe_source()
    except AbsentError as error:
        pytest.skip(str(error))
    page = open_page("/", color_scheme=scheme)
    faults = {}
    for path in PAGES:
        page.goto(path)
        # The tree is the same in the dark; only the contrast of colors can differ.
        if found := faults_of(page, ["color-contrast", "link-in-text-block"] if scheme == "dark" else []):
            faults[path] = found
    assert faults == {}


def test_pages_fit_a_narrow_window_and_run_no_script_of_a_record(open_page: Callable[..., Page]) -> None:
    page = open_page("/", viewport=NARROW)
    for path in PAGES:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], path
        assert page.evaluate("window.evil") is None, path
    page.goto(f"/topics/{TOPIC}/messages/0/0")
    assert EVIL in (page.locator("pre").last.text_content() or "")


def focused(page: Page, text: str) -> None:
    """Press Tab until the element with a text, a label or a name has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if text in page.evaluate("[document.activeElement.textContent.trim(), document.activeElement.name]"):
            return
    raise AssertionError(f"Tab does not reach {text!r}")


def has_focus(page: Page, name: str) -> None:
    """Await that the field which a page begins with has the focus: the browser gives it after the page is loaded."""
    page.wait_for_function("name => document.activeElement.name === name", arg=name)


def test_a_topic_is_created_written_and_configured_with_the_keyboard_alone(open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    focused(page, "Topics")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    focused(page, "all")
    page.goto("/topics")
    focused(page, "Create topic")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/new")
    has_focus(page, "name")
    page.keyboard.type("keyboard")
    focused(page, "partitions")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/keyboard")
    assert page.get_by_role("status").text_content() == "Topic keyboard was created."
    focused(page, "Produce")
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/new")
    has_focus(page, "value")
    page.keyboard.type('{"typed": true}')
    focused(page, "Produce")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/keyboard/messages/*/0")
    assert '"typed": true' in (page.locator("pre").last.text_content() or "")
    page.goto("/topics/keyboard/configs/retention.ms")
    focused(page, "value")
    page.keyboard.press("Control+a")
    page.keyboard.type("60000")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/keyboard/configs")
    assert page.get_by_role("status").text_content() == "retention.ms is set to 60000."


def test_the_tail_shows_new_records_without_a_reload(open_page: Callable[..., Page], ours: BrokerProcess) -> None:
    page = open_page(f"/topics/{TOPIC}/messages")
    page.get_by_role("button", name="Tail").click()
    page.get_by_text("live", exact=True).wait_for()
    page.evaluate("window.kept = true")
    write(ours, '{"tailed": 1}')
    page.get_by_text('{"tailed": 1}').wait_for()
    assert page.evaluate("window.kept") is True


def test_records_are_filtered(open_page: Callable[..., Page]) -> None:
    page = open_page(f"/topics/{TOPIC}/messages")
    page.get_by_label("From").select_option("beginning")
    page.get_by_label("Where").fill("value.n > 6")
    page.get_by_role("button", name="Show").click()
    page.get_by_text('{"n": 7}').wait_for()
    assert page.locator("table.records tbody tr").count() == 2


def test_a_group_is_reset_after_a_preview(open_page: Callable[..., Page]) -> None:
    page = open_page(f"/group?id={GROUP}")
    page.get_by_role("link", name="Reset offsets").click()
    page.locator("select[name=kind]").select_option("shift")
    page.get_by_label("Amount").fill("-3")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("cell", name="-3").wait_for()
    page.get_by_role("button", name="Reset 1 offsets").click()
    page.wait_for_url("**/group?id=*")
    assert page.get_by_role("status").text_content() == f"1 offsets of {GROUP} were reset."


def test_lists_are_searched_while_typing(open_page: Callable[..., Page]) -> None:
    page = open_page("/topics?internal=on")
    page.evaluate("window.kept = true")
    page.get_by_role("link", name="__consumer_offsets").wait_for()
    page.get_by_role("searchbox").press_sequentially(TOPIC)
    page.get_by_role("link", name="__consumer_offsets").wait_for(state="detached")
    assert page.get_by_role("link", name=TOPIC).is_visible()
    assert page.evaluate("window.kept") is True


def test_a_refresh_leaves_the_focus_where_it_is(open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.locator("#live td a").first.focus()
    page.evaluate("window.focused = document.activeElement")
    for _ in range(2):
        with page.expect_response(lambda answer: answer.url.endswith("/")):
            pass
    assert page.evaluate("window.focused.isConnected && window.focused === document.activeElement")
    page.evaluate("document.activeElement.blur()")
    assert eventually(lambda: page.evaluate("!window.focused.isConnected")), "then it is refreshed again"


def test_the_pages_work_without_scripts(open_page: Callable[..., Page]) -> None:
    page = open_page("/topics", java_script_enabled=False)
    page.get_by_role("searchbox").fill(TOPIC)
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics?*q=orders")
    page.get_by_role("link", name=TOPIC).click()
    page.get_by_role("link", name="Messages").click()
    assert page.locator("table.records tbody tr").count() > 5
