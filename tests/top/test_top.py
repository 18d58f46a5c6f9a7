"""`odradek top` without a terminal, by Textual's pilot: what the panes show, and what the keys do."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from textual.widgets import DataTable, Input, Sparkline

from odradek.admin.controllers import KRAFT, NO_CONTROLLER
from odradek.admin.groups import GroupDescription, MemberDescription
from odradek.admin.lag import PartitionLag
from odradek.cli import main
from odradek.console.group_pages import GroupDetail
from odradek.console.history import ClusterHistory
from odradek.console.overview import overview_of
from odradek.top import group_report
from odradek.top.app import BY_NAME, OVERVIEW, ClusterTop, target_of
from odradek.top.cells import WRONG, safe
from odradek.top.panes import PANES, summary
from odradek.top.topic_report import TopicScreen
from tests.console.samples import group, partition, sample, topic
from tests.console.workspaces import GivenWorkspace
from tests.top.panes import SIZE, about, context_of, report_rows, rows, status

MEMBER = MemberDescription("member-1", None, "client", "/127.0.0.1", {}, None, None)
HOSTILE = "[red]evil[/]\x1b[2J"


def filled() -> ClusterHistory:
    """Two samples: between them broker 3 leaves, orders-1 changes its leader, and the lag of billing grows."""
    history = ClusterHistory()
    topics = [topic("orders", partition("orders", 0), partition("orders", 1, leader=3)), topic("users")]
    ends = {("orders", 0): 100, ("orders", 1): 50, ("users", 0): 5}
    hostile = group(HOSTILE, state="Empty", members=0, lag=7)
    history.add(sample(1000.0, *topics, ends=ends, groups=[group("billing", lag=10), hostile]))
    moved = topic("orders", partition("orders", 0, isr=(1, 2)), partition("orders", 1, leader=2, isr=(2, 1)))
    later = {**ends, ("orders", 0): 300}
    groups = [group("billing", lag=30), hostile]
    history.add(sample(1002.0, moved, topics[1], ends=later, groups=groups, brokers=(1, 2)))
    return history


def detail(client: object, group_id: str) -> GroupDetail:
    described = GroupDescription(group_id, "classic", "consumer", "Stable", 1, "range", None, (MEMBER,))
    return GroupDetail(described, (PartitionLag("orders", 0, 270, 300, MEMBER),))


def test_the_rows_of_panes() -> None:
    history = filled()

    def cells(name: str, search: str = "", sort: str = "") -> list[list[str]]:
        return [[cell.plain for cell in row] for row in BY_NAME[name].rows(history, search, sort).rows.values()]

    orders, users = cells("topics")
    assert orders == ["orders", "2", "3", "2", "0", "350", "100.0", "-"]
    assert [row[0] for row in cells("topics", sort="-rate")] == ["orders", "users"]
    assert [row[0] for row in cells("topics", "US")] == [users[0]]
    assert cells("partitions")[1] == ["orders-1", "2", "1", "1,2,3", "2,1", "50", "under-replicated"]
    assert [row[0] for row in cells("partitions", "under-replicated")] == ["orders-0", "orders-1"]
    billing = ["billing", "Stable", "classic", "1", "1", "30", "1"]
    assert cells("groups", sort="-lag") == [billing, ["[red]evil[/]\ufffd[2J", "Empty", "classic", "0", "1", "7", "1"]]
    assert [row[3] for row in cells("brokers")] == ["controller", "running", "down"]
    events = [row[1:] for row in cells("timeline")]
    assert ["leader election", "orders-1", "broker 2 leads the partition; before, broker 3"] in events
    assert any(kind == "broker" and about == "broker 3" for kind, about, _ in events)
    numbers = overview_of(history)
    assert numbers is not None
    assert "brokers  2 of 3" in summary(numbers).plain
    assert "records/s  100.0" in summary(numbers).plain
    for pane in PANES:
        assert pane.rows(ClusterHistory(), "", pane.sorts[0]) == ({}, 0, 0)
        assert all(len(row) == len(pane.columns) for row in pane.rows(history, "", "").rows.values())


@pytest.mark.parametrize(
    ("controller", "shown", "is_wrong"), [(2, "2", False), (NO_CONTROLLER, "none", True), (KRAFT, "in a quorum", False)]
)
def test_a_cluster_with_kraft_lacks_no_controller(controller: int, shown: str, is_wrong: bool) -> None:
    history = ClusterHistory()
    history.add(sample(1, controller=controller))
    overview = overview_of(history)
    assert overview is not None
    found = summary(overview)
    assert f"controller  {shown}" in found.plain
    at = found.plain.index(shown, found.plain.index("controller"))
    assert any(span.style == WRONG for span in found.spans if span.start <= at < span.end) is is_wrong


@pytest.mark.slow
async def test_search_open_and_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_report, "group_detail", detail)
    app = ClusterTop(context_of(GivenWorkspace(filled())))
    async with app.run_test(size=SIZE) as pilot:
        alerts = [row[0] for row in rows(app, OVERVIEW)]
        assert alerts[0].startswith("Broker 3 is not in the cluster")
        await pilot.press("down", "enter")  # what the second alert is about
        assert "search: under-replicated" in status(app)
        assert [row[0] for row in rows(app, "partitions")] == ["orders-0", "orders-1"]
        await pilot.press("2", "slash", "u", "s")
        assert app.query_one(Input).has_focus
        assert [row[0] for row in rows(app, "topics")] == ["users"]
        assert "1 of 1 (2)" in status(app)
        await pilot.press("enter")
        assert not app.query_one(Input).display
        await pilot.press("enter")  # the topic
        assert isinstance(app.screen, TopicScreen)
        await pilot.press("escape", "3", "escape")
        assert len(rows(app, "partitions")) == 3

        await pilot.press("4", "s", "up", "enter")  # the group with the largest lag
        assert "by lag" in status(app)
        assert (await about(pilot)).startswith("group billing   state Stable   members 1   lag 30")
        assert report_rows(app) == [["orders", "0", "270", "300", "30", "client", "/127.0.0.1", "member-1"]]
        assert app.screen.query_one("#line", Sparkline).data == [10.0, 30.0], "the lag over time"
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


@pytest.mark.slow
async def test_samples_change_cells_and_keep_the_cursor() -> None:
    def added(taken_s: float, *names: str, end: int) -> None:
        topics = [topic(each) for each in names]
        history.add(sample(taken_s, *topics, ends={("users", 0): end}, groups=[group("billing")]))

    history = ClusterHistory()
    app = ClusterTop(context_of(GivenWorkspace(history)))
    async with app.run_test(size=SIZE) as pilot:
        assert "waiting for the cluster" in status(app)
        added(1000.0, "orders", "users", end=5)
        await pilot.press("1")
        assert rows(app, OVERVIEW) == [["All is well.", ""]]
        await pilot.press("2", "down", "p")
        added(1002.0, "first", "orders", "users", end=25)
        await pilot.press("2")
        assert [row[0] for row in rows(app, "topics")] == ["orders", "users"]
        assert "paused" in status(app)
        await pilot.press("3")
        assert [row[0] for row in rows(app, "partitions")] == ["first-0", "orders-0", "users-0"], "a pane not yet drawn"
        await pilot.press("2")
        assert "first" in str(rows(app, "topics"))
        await pilot.press("p", "2")
        assert [row[0] for row in rows(app, "topics")] == ["first", "orders", "users"]
        assert app.query_one("#topics-table", DataTable).cursor_row == 2, "still users"
        assert rows(app, "topics")[2][6] == "10.0"
        added(1004.0, "first", "orders", "users", end=65)
        history.fail("no broker answers")
        await pilot.press("2")
        assert rows(app, "topics")[2][5:7] == ["65", "20.0"]
        assert "no broker answers" in status(app)
        await pilot.press("4", "enter")
        assert await about(pilot) == "there is no cluster"


def test_targets_and_texts() -> None:
    assert target_of("/topics?health=offline") == ("partitions", "offline")
    assert target_of("/groups/a/b") == ("groups", "a/b")
    assert target_of("/brokers") == ("brokers", "")
    assert target_of("/nothing") == (OVERVIEW, "")
    assert safe("\x1b[31ma\u202eb\n").plain == "\ufffd[31ma\ufffdb\ufffd"


def test_the_command_needs_a_terminal_and_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(main, ["top"])
    assert (done.exit_code, done.stderr) == (
        1,
        "odradek: odradek top needs a terminal; odradek cluster status and odradek group lag print to a file\n",
    )
    monkeypatch.setitem(__import__("sys").modules, "odradek.top.app", None)
    assert "the extra `top`" in CliRunner().invoke(main, ["top"]).stderr
