"""Admin APIs of a single broker: pages of topics, quotas, credentials, and requests that have no meaning without
security. `tests/comparison` and, for newer requests, `test_admin_apis_oracle` compare the responses with Kafka's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.config.state import client_quotas as quotas
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.sasl import scram_credentials as scram
from tests.broker.admin_scripts import alter_quotas, alter_scram, describe_quotas, describe_scram, update_features
from tests.broker.wire import Client, running_broker

Pages = m.DescribeTopicPartitionsRequest


async def test_client_settings_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        await client.ask(alter_quotas(({"user": "u"}, {"producer_byte_rate": 4.0}), validate_only=True))
        assert (await client.ask(describe_quotas())).entries == []
        await client.ask(alter_quotas(({"user": "u"}, {"producer_byte_rate": 5.0})))
        await client.ask(alter_scram(("u", 2, 4096)))
        client.close()
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        (entry,) = (await client.ask(describe_quotas())).entries
        assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", "u")]
        assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 5.0)]
        (user,) = (await client.ask(describe_scram())).results
        assert [(each.mechanism, each.iterations) for each in user.credential_infos] == [(2, 4096)]
        client.close()


@pytest.mark.parametrize("user", [".", ".."])
async def test_a_user_that_cannot_be_stored_is_refused_and_the_connection_stays_open(client: Client, user: str) -> None:
    (entry,) = (await client.ask(alter_quotas(({"user": user}, {"producer_byte_rate": 5.0})))).entries
    (result,) = (await client.ask(alter_scram((user, 1, 4096)))).results
    (notified,) = (await client.ask(describe_scram(user))).results
    assert entry.error_code == result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert notified.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert (await client.ask(describe_quotas(("user", 0, user)))).entries == []
    assert (await client.ask(describe_quotas())).entries == []


async def test_no_client_can_change_feature_levels(client: Client) -> None:
    levels = {"group.version": 1, "transaction.version": 2}
    for name, level in levels.items():
        for wanted, kind in ((level, 1), (level + 1, 1), (level - 1, 2), (level - 1, 3), (0, 2)):
            answer = await client.ask(update_features((name, wanted, kind)), 1)
            assert [each.error_code for each in answer.results] == [ErrorCode.INVALID_REQUEST]
            newest = await client.ask(update_features((name, wanted, kind)), 2)
            same = wanted == level
            assert newest.error_code == (ErrorCode.NONE if same else ErrorCode.INVALID_UPDATE_VERSION)
    notified = await client.ask(m.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    assert {each.name: each.max_version_level for each in notified.finalized_features} == levels


async def test_every_partition_is_on_one_page(tmp_path: Path) -> None:
    """For any size of a page, following the cursors gives every partition once, in order."""
    topics = {"a": 3, "b": 1, "c.d": 4}
    every = [(name, index) for name, count in topics.items() for index in range(count)]
    async with running_broker(tmp_path / "data", {"max.request.partition.size.limit": "5"}) as broker:
        client = await Client.connect(broker.port)
        for name, count in topics.items():
            await client.create_topic(name, count)
        for size in (1, 2, 3, 4, 5, 2000):
            found, cursor = [], None
            for _ in every:
                request = Pages(response_partition_limit=size, cursor=cursor)
                answer = await client.ask(request)
                page = [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]
                assert len(page) <= min(size, 5)
                found += page
                at = answer.next_cursor
                if at is None:
                    break
                cursor = Pages.Cursor(topic_name=at.topic_name, partition_index=at.partition_index)
            assert found == every
        client.close()


async def test_the_topic_of_group_offsets_can_be_deleted_as_in_kafka(client: Client) -> None:
    metadata = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")])
    assert (await client.ask(metadata)).topics[0].error_code == ErrorCode.NONE
    answer = await client.ask(m.DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=10_000), 5)
    assert answer.responses[0].error_code == ErrorCode.NONE


async def test_an_envelope_closes_only_its_own_connection(broker: Broker, client: Client) -> None:
    other = await Client.connect(broker.port)
    await other.send(m.EnvelopeRequest(request_data=b"", client_host_address=b"\x7f\0\0\1"), 0)
    assert await other.is_closed()
    assert (await client.ask(m.DescribeAclsRequest(operation=1, permission_type=1, resource_type_filter=1))).error_code


# ---- rules


def test_credentials_match_those_of_the_rfc() -> None:
    """The exchange of RFC 7677: the stored credentials verify the client's proof, and sign as the server there did."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    kept = dict(
        part.split("=", 1)
        for part in scram.text(scram.UserScramCredentialUpsertion("user", 1, 4096, salt, salted)).split(",")
    )
    server_nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={server_nonce}"
    ).encode()
    stored_key, server_key = (base64.b64decode(kept[name]) for name in ("stored_key", "server_key"))
    signature = hmac.digest(stored_key, message, "sha256")
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
    assert hashlib.sha256(client_key).digest() == stored_key
    expected = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert base64.b64encode(hmac.digest(server_key, message, "sha256")).decode() == expected
    assert (kept["iterations"], base64.b64decode(kept["salt"])) == ("4096", salt)


@given(st.floats())
def test_a_number_in_javas_notation_is_the_same_number(value: float) -> None:
    text = quotas.java_double(value)
    assert float(text) == value or (value != value and text == "NaN")
    assert value != value or "." in text or "Infinity" in text


@given(st.floats(), st.sampled_from(["producer_byte_rate", "consumer_byte_rate"]))
def test_a_rate_in_bytes_is_a_whole_number_that_is_not_negative(value: float, key: str) -> None:
    possible = value != value or (0 <= value <= 2.0**62 and value == int(value))
    if possible:
        text = quotas.value_text({"user": "u"}, key, value)
        assert int(text) == (0 if value != value else value)
    elif value < -1 or value > 2.0**64 or 1e-3 < value % 1 < 0.999:
        with pytest.raises(KafkaError) as refused:
            quotas.value_text({"user": "u"}, key, value)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


names = st.none() | st.text(min_size=1, max_size=5)
entities = st.one_of(
    st.dictionaries(st.sampled_from(["user", "client-id"]), names, min_size=1),
    st.builds(lambda name: {"ip": name}, names),
)


@given(entities, entities)
def test_every_entity_has_a_node_of_its_own(one: quotas.Entity, other: quotas.Entity) -> None:
    default = "<default>"  # the path encoding of names never produces it
    assert (quotas.path(one) == quotas.path(other)) == (dict(one) == dict(other))
    assert quotas.path(one).count(default) == sum(name is None for name in one.values())


@given(entities, st.booleans())
def test_a_filter_that_names_an_entity_matches_it(entity: quotas.Entity, strict: bool) -> None:
    assert quotas.matches(
        {kind: quotas.ClientQuotaFilterComponent(name) for kind, name in entity.items()}, entity, strict=strict
    )
    assert quotas.matches({}, entity, strict=False)
    assert not quotas.matches({}, entity, strict=True)
