"""A damaged registry journal of a single broker: the start is refused, `odradek registry` checks and repairs it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.broker.registry.journal import DamagedJournalError
from odradek.cli import main
from odradek.protocol import messages as m
from odradek.protocol.batch import records
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.pair import running_pair
from tests.broker.wire import Client, batch, running_broker
from tests.support.eventually import eventually_async

JOURNAL = "__cluster_metadata-0/version-2"


async def written(folder: Path) -> dict[str, bytes]:
    """A stopped broker with two topics; the topic ids."""
    async with running_broker(folder) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("orders", partitions=2, configs={"retention.ms": "-1"})
        await client.create_topic("events", configs={"cleanup.policy": "compact"})
        for index in range(2):
            assert (await client.produce("orders", batch(b"order"), partition=index)).error_code == 0
        answer = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert (await client.produce("events", batch(b"event"))).error_code == 0
        assert answer.error_code == 0
        ids = await topic_ids(client)
        client.close()
    return ids


async def topic_ids(client: Client) -> dict[str, bytes]:
    answer = await client.ask(m.MetadataRequest(topics=None), 12)
    return {topic.name: bytes(topic.topic_id) for topic in answer.topics}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["registry", *arguments])


async def served(folder: Path, topics: dict[str, bytes]) -> None:
    """The broker starts, and has these topics with their records."""
    async with running_broker(folder) as broker:
        client = await Client.connect(broker.port)

        async def fetched() -> list[bytes | None]:
            found = []
            for topic, index in (("orders", 0), ("orders", 1), ("events", 0)):
                answer = await client.fetch(topic, 0, partition=index)
                if answer.error_code == 0 and answer.records:
                    found += [record.value for record in records(answer.records)]
            return found

        assert await eventually_async(fetched, lambda found: len(found) == 3) == [b"order", b"order", b"event"]
        assert await topic_ids(client) == topics
        for topic in topics:
            assert (await client.produce(topic, batch(b"more"))).error_code == 0
        answer = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert answer.error_code == 0
        client.close()


async def test_a_sound_journal_has_no_problem_and_is_not_repaired(tmp_path: Path) -> None:
    await written(tmp_path)
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / JOURNAL).iterdir())
    checked = run("check", "--data", str(tmp_path))
    assert (checked.exit_code, checked.output.count("problem:")) == (0, 0), checked.output
    assert "2 topics are readable; 3 logs, 0 problems" in checked.output
    repaired = run("repair", "--data", str(tmp_path))
    assert (repaired.exit_code, "nothing to repair" in repaired.output) == (0, True), repaired.output
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / JOURNAL).iterdir()) == before


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
async def test_a_journal_that_was_cut_is_refused_and_repaired(tmp_path: Path, share: float) -> None:
    ids = await written(tmp_path)
    (log,) = (tmp_path / JOURNAL).glob("log.*")
    log.write_bytes(log.read_bytes()[: int(log.stat().st_size * share)])
    with pytest.raises(DamagedJournalError, match="registry check"):
        async with running_broker(tmp_path):
            pass
    checked = run("check", "--data", str(tmp_path))
    assert (checked.exit_code, "were acknowledged" in checked.output) == (1, True), checked.output
    repaired = run("repair", "--data", str(tmp_path))
    assert repaired.exit_code == 0, repaired.output
    assert "the old journal is in" in repaired.output
    assert run("check", "--data", str(tmp_path)).exit_code == 0
    await served(tmp_path, ids)


async def test_damage_in_the_middle_loses_only_the_damaged_records(tmp_path: Path) -> None:
    ids = await written(tmp_path)
    (log,) = (tmp_path / JOURNAL).glob("log.*")
    content = bytearray(log.read_bytes())
    content[content.index(b"/config/topics/orders") + 5] ^= 1
    log.write_bytes(content)
    checked = run("check", "--data", str(tmp_path))
    assert (checked.exit_code, "is damaged at" in checked.output) == (1, True), checked.output
    repaired = run("repair", "--data", str(tmp_path))
    assert "topic orders: its configuration is lost" in repaired.output, repaired.output
    assert "topic events" not in repaired.output
    await served(tmp_path, ids)


async def test_topics_are_rebuilt_from_the_logs_where_the_journal_is_gone(tmp_path: Path) -> None:
    ids = await written(tmp_path)
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    with pytest.raises(KafkaError) as refused:
        async with running_broker(tmp_path):
            pass
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    checked = run("check", "--data", str(tmp_path))
    assert checked.output.count("that the registry does not have") == 3, checked.output
    repaired = run("repair", "--data", str(tmp_path))
    assert "topic orders: rebuilt partitions 0, 1" in repaired.output, repaired.output
    assert "retention.ms=-1" in repaired.output
    await served(tmp_path, ids)


async def test_producer_ids_of_the_logs_are_not_given_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("orders")
        answer = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        first = answer.producer_id
        idempotent = batch(b"v", producer_id=first, producer_epoch=answer.producer_epoch, base_sequence=0)
        assert (await client.produce("orders", idempotent)).error_code == 0
        client.close()
    shutil.rmtree(tmp_path / "__cluster_metadata-0")
    assert run("repair", "--data", str(tmp_path)).exit_code == 0
    async with running_broker(tmp_path) as broker:
        client = await Client.connect(broker.port)
        answer = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert answer.error_code == 0
        assert answer.producer_id > first
        client.close()


async def test_a_journal_in_use_and_a_folder_without_one_are_rejected(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data"):
        for command in ("check", "repair"):
            rejected = run(command, "--data", str(tmp_path / "data"))
            assert (rejected.exit_code, "is in use" in rejected.output) == (1, True)
    (tmp_path / "empty").mkdir()
    rejected = run("check", "--data", str(tmp_path / "empty"))
    assert (rejected.exit_code, "has no registry" in rejected.output) == (1, True)


async def test_a_start_reports_logs_that_the_registry_does_not_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await written(tmp_path)
    shutil.copytree(tmp_path / "orders-1", tmp_path / "forgotten-7")
    with caplog.at_level(logging.ERROR):
        async with running_broker(tmp_path):
            pass
    (line,) = [each.getMessage() for each in caplog.records if "without a topic" in each.getMessage()]
    assert f"path={tmp_path / 'forgotten-7'} topic=forgotten partition=7 bytes=" in line
    assert (tmp_path / "forgotten-7" / f"{0:020d}.log").stat().st_size


async def test_the_logs_of_one_broker_of_a_cluster_become_a_broker_of_their_own(tmp_path: Path) -> None:
    """The way out when the registry of several brokers has lost topics: a copy of a replica is served and mirrored."""
    async with running_pair(tmp_path / "cluster") as pair:
        await pair.create("orders", [1, 2], [2, 1])
        for index, leader in enumerate((1, 2)):
            written = await pair.clients[leader].produce("orders", batch(b"order"), partition=index)
            assert written.error_code == 0
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "cluster" / "2", copy)
    result = run("repair", "--data", str(copy))
    assert result.exit_code == 0, result.output
    async with running_broker(copy, {"broker.id": "2"}) as broker:
        client = await Client.connect(broker.port)
        for index in range(2):
            answer = await eventually_async(
                lambda index=index: client.fetch("orders", 0, partition=index), lambda found: not found.error_code
            )
            assert [record.value for record in records(answer.records)] == [b"order"]
        client.close()
