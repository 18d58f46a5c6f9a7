"""Samples become rates, lags, alerts and a timeline."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from odradek.admin.controllers import KRAFT
from odradek.admin.quorum import MetadataQuorum
from odradek.console.alerts import AlertLevel, alerts_of
from odradek.console.history import ClusterHistory, DiskUsage
from odradek.console.overview import overview_of
from odradek.console.series import Series
from odradek.console.timeline import MOST_OF_A_KIND, ChangeKind, ClusterChange, Timeline, changes_between
from tests.console.samples import group, partition, sample, topic


def texts(changes: list[ClusterChange]) -> list[tuple[ChangeKind, str, str]]:
    return [(each.kind, each.subject, each.text) for each in changes]


@given(st.lists(st.floats(0, 1e12), max_size=60), st.integers(2, 20))
def test_a_series_keeps_the_newest_numbers(values: list[float], limit: int) -> None:
    series = Series(limit)
    for number, value in enumerate(values):
        series.add(float(number), value)
    kept = list(enumerate(values))[-limit:]
    assert list(series) == kept
    assert len(series) == len(kept)
    assert series.last == (values[-1] if values else None)


def test_a_rate_is_the_growth_of_the_ends_of_logs_and_leaves_out_internal_topics() -> None:
    history = ClusterHistory()
    topics = (
        topic("__consumer_offsets", internal=True),
        topic("orders", partition("orders", 0), partition("orders", 1)),
    )
    offsets = ("__consumer_offsets", 0)
    history.add(sample(10, *topics, ends={("orders", 0): 5, ("orders", 1): 7, offsets: 0}))
    assert history.rate_of("orders") is None
    history.add(sample(12, *topics, ends={("orders", 0): 9, ("orders", 1): 17, offsets: 100}))
    assert history.rate_of("orders") == 7
    assert history.rate_of("__consumer_offsets") == 50
    assert history.records.values() == [7]


def test_a_truncated_or_a_new_log_adds_nothing_to_the_rate() -> None:
    history = ClusterHistory()
    history.add(sample(0, topic("orders"), ends={("orders", 0): 100}))
    both = topic("orders", partition("orders", 0), partition("orders", 1))
    history.add(sample(1, both, ends={("orders", 0): 40, ("orders", 1): 1000}))
    assert history.rate_of("orders") == 0


def test_what_is_kept_of_a_topic_or_group_ends_with_it() -> None:
    history = ClusterHistory()
    history.add(sample(0, topic("orders"), groups=[group("billing", lag=3)]))
    history.add(sample(1, topic("orders"), groups=[group("billing", lag=4)]))
    lags = history.lags_of("billing")
    assert lags is not None
    assert lags.values() == [3, 4]
    history.add(sample(2))
    assert history.rates_of("orders") is None
    assert history.lags_of("billing") is None


def test_the_timeline_names_controllers_brokers_elections_and_isr_changes() -> None:
    before = sample(1, topic("orders", partition("orders", 0), partition("orders", 1, leader=2)))
    after = sample(
        2,
        topic(
            "orders",
            partition("orders", 0, leader=2, isr=(2, 3)),
            partition("orders", 1, leader=-1, isr=(), replicas=(1, 2, 3)),
        ),
        brokers=(2, 3),
        controller=3,
    )
    changes = changes_between(before, after)
    assert texts(changes) == [
        (ChangeKind.ISR, "orders-0", "1 left the ISR, which is 2, 3"),
        (ChangeKind.ISR, "orders-1", "1, 2, 3 left the ISR, which is empty"),
        (ChangeKind.ELECTION, "orders-0", "broker 2 leads the partition; before, broker 1"),
        (ChangeKind.ELECTION, "orders-1", "no broker leads the partition; before, broker 2"),
        (ChangeKind.BROKER, "broker 1", "the broker has left the cluster"),
        (ChangeKind.CONTROLLER, "broker 3", "the controller is broker 3; before, broker 1"),
    ]
    assert [each.is_problem for each in changes] == [True, True, False, True, True, False]
    back = changes_between(after, before)
    assert (ChangeKind.BROKER, "broker 1", "the broker has joined the cluster") in texts(back)
    assert (ChangeKind.ISR, "orders-0", "1 joined the ISR, which is 1, 2, 3") in texts(back)
    assert changes_between(before, before) == []


def test_the_timeline_names_topics_and_tells_a_new_one_from_one_with_more_partitions() -> None:
    before = sample(1, topic("a"), topic("b", topic_id="1"), topic("c"))
    more = topic("c", partition("c", 0), partition("c", 1))
    after = sample(2, topic("b", topic_id="2"), more, topic("d"))
    assert texts(changes_between(before, after)) == [
        (ChangeKind.TOPIC, "a", "the topic was deleted"),
        (ChangeKind.TOPIC, "b", "the topic was deleted and created again"),
        (ChangeKind.TOPIC, "c", "the topic has 2 partitions; before, 1"),
        (ChangeKind.TOPIC, "d", "the topic was created with 1 partition"),
    ]


def test_the_timeline_shows_rebalances() -> None:
    def change(was: object, now: object) -> list[tuple[ChangeKind, str, str]]:
        return texts(changes_between(sample(1, groups=[was]), sample(2, groups=[now])))  # type: ignore[list-item]

    stable = group("g", members=2)
    assert change(stable, group("g", members=2)) == []
    assert change(stable, group("g", state="PreparingRebalance", members=2)) == [
        (ChangeKind.REBALANCE, "g", "a rebalance began: PreparingRebalance")
    ]
    assert change(group("g", state="CompletingRebalance", members=2), stable) == [
        (ChangeKind.REBALANCE, "g", "the rebalance ended: Stable")
    ]
    assert change(stable, group("g", members=3)) == [(ChangeKind.REBALANCE, "g", "the group has 3 members; before, 2")]
    assert change(stable, group("g", members=2, assignment=5)) == [
        (ChangeKind.REBALANCE, "g", "partitions were assigned anew")
    ]


def test_a_quorum_of_controllers_is_neither_a_change_nor_an_alert() -> None:
    history = ClusterHistory()
    history.add(sample(1, topic("orders"), controller=KRAFT))
    history.add(sample(2, topic("orders"), controller=KRAFT))
    assert history.timeline.newest() == []
    assert alerts_of(history) == []
    led, moved = (MetadataQuorum(leader, epoch, 9, (), ()) for leader, epoch in ((3, 1), (4, 2)))
    before = replace(sample(3, controller=KRAFT), quorum=led)
    assert texts(changes_between(before, replace(sample(4, controller=KRAFT), quorum=moved))) == [
        (ChangeKind.CONTROLLER, "controller 4", "the controller leads the quorum at epoch 2; before, controller 3")
    ]
    lost = replace(sample(4, controller=KRAFT), quorum=moved._replace(leader_id=-1))
    assert [each.is_problem for each in changes_between(before, lost)] == [True]


def test_many_changes_of_one_kind_are_one_event() -> None:
    count = MOST_OF_A_KIND + 1
    parts = [partition("orders", number) for number in range(count)]
    moved = [partition("orders", number, leader=2) for number in range(count)]
    changes = changes_between(sample(1, topic("orders", *parts)), sample(2, topic("orders", *moved)))
    assert texts(changes) == [
        (ChangeKind.ELECTION, "orders-0, orders-1, orders-2, …", f"{count} partitions have new leaders")
    ]


def test_the_timeline_is_bounded_and_searched() -> None:
    timeline = Timeline(limit=3)
    timeline.extend(
        ClusterChange(number, kind, f"orders-{number}", "text")
        for number, kind in enumerate([ChangeKind.ISR, ChangeKind.ISR, ChangeKind.ELECTION, ChangeKind.ISR])
    )
    assert [each.time_s for each in timeline.newest()] == [3, 2, 1]
    assert [each.time_s for each in timeline.newest([ChangeKind.ELECTION])] == [2]
    assert [each.time_s for each in timeline.newest(subject="orders-1")] == [1]


def test_a_group_that_commits_now_and_then_does_not_fall_behind() -> None:
    history = ClusterHistory()
    for second in range(0, 40, 2):
        history.add(sample(second, topic("orders"), groups=[group("billing", lag=30 + 100 * (second % 6))]))
        assert alerts_of(history) == [], second
    for second in range(40, 70, 2):
        history.add(sample(second, topic("orders"), groups=[group("billing", lag=100 * (second % 6) + 20 * second)]))
    (found,) = alerts_of(history)
    assert found.text.startswith("Group billing falls behind: its lag grew by ")


def test_alerts_say_in_plain_words_what_is_wrong_the_worst_first() -> None:
    history = ClusterHistory()
    history.add(sample(0, topic("orders"), groups=[group("billing", lag=100), group("idle", members=0, lag=100)]))
    assert alerts_of(history) == []
    broken = topic(
        "orders",
        partition("orders", 0, leader=-1, isr=()),
        partition("orders", 1, leader=2, isr=(2,)),
        partition("orders", 2, leader=2),
    )
    groups = [group("billing", lag=900), group("idle", members=0, lag=901), group("still", members=0, lag=9)]
    history.add(sample(30, broken, groups=groups, brokers=(2, 3), controller=-1))
    found = alerts_of(history)
    levels = [each.level for each in found]
    assert levels == sorted(levels, reverse=True)
    assert [each.text for each in found] == [
        "No broker is the controller: topics cannot be created, and no leader can be elected.",
        "Broker 1 is not in the cluster; 3 replicas should be on it.",
        "1 partition is without a leader: orders-0. They can be neither written nor read.",
        "1 partition is under-replicated: orders-1. A follower is down or behind.",
        "Group billing falls behind: its lag grew by 800 within a minute, to 900 records.",
        "Group idle has no members, and 901 records wait for it.",
        "1 partition is not led by the preferred replica: orders-2.",
    ]
    history.fail("no broker answers")
    assert alerts_of(history)[0].level is AlertLevel.CRITICAL
    assert "no broker answers" in alerts_of(history)[0].text


def test_partitions_under_min_isr_are_worse_than_under_replicated_ones() -> None:
    history = ClusterHistory()
    parts = (partition("orders", 0, isr=(1,)), partition("orders", 1, isr=(1, 2)))
    history.add(sample(0, topic("orders", *parts), min_isr={"orders": 2}))
    assert [(each.level, each.text) for each in alerts_of(history)] == [
        (
            AlertLevel.CRITICAL,
            "1 partition is under min.insync.replicas: orders-0. Writes with acks=all fail.",
        ),
        (AlertLevel.WARNING, "1 partition is under-replicated: orders-1. A follower is down or behind."),
    ]


def test_the_overview_counts() -> None:
    history = ClusterHistory()
    assert overview_of(history) is None
    parts = (partition("orders", 0), partition("orders", 1, leader=2, isr=(2, 3)))
    history.add(sample(0, topic("orders", *parts), ends={("orders", 0): 0}, groups=[group("g", lag=4)]))
    history.add(sample(1, topic("orders", *parts), ends={("orders", 0): 8}, groups=[group("g", lag=5)]))
    found = overview_of(history)
    assert found is not None
    assert (found.topics, found.partitions, found.under_replicated, found.offline) == (1, 2, 1, 0)
    assert (found.groups, found.lag, found.records_per_s) == (1, 5, 8)
    assert [(each.topic, each.records_per_s) for each in found.busiest] == [("orders", 8)]
    assert [(row.node.broker_id, row.leaders, row.replicas, row.out_of_sync) for row in found.brokers] == [
        (1, 1, 2, 1),
        (2, 1, 2, 0),
        (3, 0, 2, 0),
    ]
    history.disk = DiskUsage({"orders": 9}, {1: 7})
    again = overview_of(history)
    assert again is not None
    assert again.brokers[0].disk_bytes == 7
    assert overview_of(history) is again, "what walks through all partitions is made once for a sample"
    assert [row.is_controller for row in found.brokers] == [True, False, False]
