"""The registry of messages: nothing is read before it is needed, and the stub describes the classes."""

from __future__ import annotations

import copy
import json
import keyword
import pickle
import subprocess
import sys

import pytest

from odradek.protocol import messages as m
from odradek.protocol import programs
from odradek.protocol.stubs import STUB, stub
from tests.protocol.samples import definitions

WHAT_IS_TOUCHED = """
import importlib, json, sys
from odradek.protocol import messages
import odradek.protocol.classes

touched, steps = [], []

def hook(event, args):
    name = str(args[{"open": 0, "compile": 1}.get(event, 0)]) if args else ""
    if (event == "open" and name.endswith(".txt")) or (event == "compile" and name.startswith("<odradek")):
        touched.append(name.rpartition("/")[2])

def step():
    steps.append(touched[:])
    touched.clear()

sys.addaudithook(hook)
importlib.reload(messages); step()
messages.texts(); step()
messages.ProduceRequest; step()
messages.ProduceRequest.decode(bytes(10), 0); step()
messages.ProduceRequest(); step()
messages.ProduceResponse, messages.ProduceRequest(), messages.ProduceRequest.decode(bytes(10), 0); step()
print(json.dumps(steps))
"""


def test_nothing_is_read_or_compiled_before_it_is_needed() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WHAT_IS_TOUCHED], capture_output=True, text=True, timeout=60, check=True
    )
    imported, names, looked_up, decoded, made, again = json.loads(run.stdout)
    assert imported == []
    assert len(names) == len(set(names)) > 60
    assert looked_up == []  # the text has been read with the names: a broker may have no file descriptor left by now
    in_c = programs.codecs is programs.in_c  # which needs no generated code for valid bytes
    assert decoded == ([] if in_c else ["<odradek decoder of ProduceRequest v0>"])
    assert made == ["<odradek constructor of ProduceRequest>"]
    assert again == []


def test_the_stub_is_the_output_of_stubs() -> None:
    assert STUB.read_text(encoding="utf-8") == stub(), "stale: run python -m odradek.protocol.stubs"


def test_classes_describe_themselves() -> None:
    assert (m.FetchRequest.API_KEY, m.FetchRequest.MIN_VERSION, m.FetchRequest.MAX_VERSION) == (1, 0, 18)
    assert m.FetchRequest.FIRST_FLEXIBLE == 12
    assert m.SaslHandshakeRequest.FIRST_FLEXIBLE == m.NEVER
    assert m.request_class(18) is m.ApiVersionsRequest
    assert m.response_class(18) is m.ApiVersionsResponse
    assert m.APIS[18] == m.Api("ApiVersions", 18, 0, 4, 3)
    assert list(m.APIS) == sorted(m.APIS)
    with pytest.raises(KeyError):
        m.request_class(9999)
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        m.NoSuchRequest  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_is_a_python_identifier() -> None:
    for name, message in definitions().items():
        assert getattr(m, name) is getattr(m, name)
        for struct in (message.root, *message.structs.values()):
            for field in struct.fields:
                assert field.attribute.isidentifier()
                assert not keyword.iskeyword(field.attribute), f"{name}.{field.attribute}"
    assert set(definitions()) <= set(dir(m))


def test_defaults_are_those_of_kafka_and_new_for_each_object() -> None:
    first, second = m.FetchRequest(), m.FetchRequest()
    assert (first.replica_id, first.max_bytes, first.session_epoch, first.rack_id) == (-1, 0x7FFFFFFF, -1, "")
    assert first.topics == []
    assert first.topics is not second.topics
    assert first.unknown_tagged_fields is None
    # An absent tagged structure is None; one that may also be null has its defaults.
    assert first.replica_state is None
    member = m.ConsumerGroupMemberMetadataValue()
    assert member.classic_member_metadata == m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()
    assert m.ConsumerGroupHeartbeatResponse().assignment is None
    # Both kinds of absence are decoded as they were encoded.
    for metadata in (member.classic_member_metadata, None):
        member.classic_member_metadata = metadata
        assert m.ConsumerGroupMemberMetadataValue.decode(member.encode(0), 0).classic_member_metadata == metadata


def test_messages_are_equal_by_value_and_print_their_fields() -> None:
    key = m.OffsetCommitKey(group="g", topic="t", partition=1)
    assert key == m.OffsetCommitKey(group="g", topic="t", partition=1)
    assert key != m.OffsetCommitKey(group="g", topic="t", partition=2)
    assert key != m.GroupMetadataKey(group="g")
    assert m.ApiVersionsRequest() != m.ApiVersionsRequest(unknown_tagged_fields=[(1, b"")])
    assert repr(key) == "OffsetCommitKey(group='g', topic='t', partition=1)"
    records = m.ProduceRequest.PartitionProduceData(index=1, records=memoryview(b"abc"))
    assert repr(records) == "ProduceRequest.PartitionProduceData(index=1, records=<3 bytes>)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(key)


def test_messages_can_be_copied_and_pickled_and_accept_no_other_fields() -> None:
    topic = m.MetadataRequest.MetadataRequestTopic(name="t")
    request = m.MetadataRequest(topics=[topic])
    implementations: list[m.MetadataRequest] = [copy.deepcopy(request), pickle.loads(pickle.dumps(request))]
    for reference in implementations:
        assert reference == request
        assert reference.topics is not None
        assert reference.topics[0] is not topic
    with pytest.raises(AttributeError):
        request.no_such_field = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="no_such_field"):
        m.MetadataRequest(no_such_field=1)  # type: ignore[call-arg]
