"""A broker dies and comes back: what the timeline and the alerts have of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.admin import topics
from odradek.admin.client import AdminClient
from odradek.cluster_process import ClusterProcess
from odradek.commands.session import parse_bootstrap
from odradek.console.alerts import alerts_of
from odradek.console.sampler import ClusterSampler
from odradek.console.timeline import ChangeKind
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


def test_a_failover_is_on_the_timeline_and_among_the_alerts(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        addresses = parse_bootstrap(cluster.bootstrap_servers)
        with AdminClient(addresses) as client:
            topic = topics.CreatableTopic("orders", 1, 3, (), {"min.insync.replicas": "3"})
            topics.create_topics(client, [topic])
        cluster.await_isr("orders", 0, {1, 2, 3})
        sampler = ClusterSampler(lambda: AdminClient(addresses, timeout_s=5))
        history = sampler.history
        try:
            eventually(lambda: (sample := sampler.refresh()) is not None and len(sample.broker_ids) == 3)
            leader = cluster.leader_of("orders", 0)
            cluster.kill(leader)

            def found() -> set[tuple[ChangeKind, str]]:
                sampler.refresh()
                return {(each.kind, each.subject) for each in history.timeline.newest()}

            wanted = {
                (ChangeKind.BROKER, f"broker {leader}"),
                (ChangeKind.ELECTION, "orders-0"),
                (ChangeKind.ISR, "orders-0"),
            }
            eventually(found, lambda changes: wanted <= changes)
            texts = " ".join(each.text for each in alerts_of(history))
            assert f"Broker {leader} is not in the cluster; 1 replica should be on it." in texts
            assert "1 partition is under min.insync.replicas: orders-0. Writes with acks=all fail." in texts
            cluster.restart(leader)
            eventually(lambda: sampler.refresh() and not [each for each in alerts_of(history) if each.level > 0])
            joined = [each.text for each in history.timeline.newest() if each.kind is ChangeKind.BROKER]
            assert joined[0] == "the broker has joined the cluster"
        finally:
            sampler.close()
