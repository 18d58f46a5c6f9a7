"""Every definition text agrees with the JSON inside Kafka's jars, field by field and version by version."""

from __future__ import annotations

import re
from typing import Any

import pytest

from odradek.protocol import messages
from odradek.protocol.compile import Shape, literal
from odradek.protocol.grammar import Field, MessageSpec, parse
from tests.protocol.jar_differences import (
    DIFFERENT,
    NOT_OURS,
    OTHER_VERSIONS,
    OWN_FIELDS,
    RENAMED,
    is_ours,
    our_version,
)
from tests.protocol.kafka_definitions import RELEASES, FieldFacts, definitions, fields_at, versions

OURS: dict[str, MessageSpec] = {
    name: message
    for path in sorted(set(messages.texts().values()))
    for name, message in parse(path.read_text(encoding="utf-8"), path.name).items()
}


def ours_at(message: MessageSpec, version: int) -> list[FieldFacts]:
    shape = Shape(message, version)

    def walk(fields: tuple[Field, ...], prefix: str) -> list[FieldFacts]:
        found = []
        for field in fields:
            if not shape.has(field):
                continue
            path = prefix + field.name
            made: Any = {"[]": (), f"{field.type}()": "a new structure"}.get(literal(field), field.default)
            if field.absent_is_none:  # None stands for Kafka's structure of defaults
                made = "a new structure"
            found.append(
                FieldFacts(
                    path=path,
                    type=("[]" if field.is_array else "") + field.type,
                    nullable=version in field.nullable,
                    default=made,
                    tag=field.tag,
                    ignorable=field.ignorable,
                    inflexible=field.inflexible,
                )
            )
            if field.is_struct:
                found += walk(message.structs[field.type].fields, path + ".")
        return found

    return walk(message.root.fields, "")


def pairs() -> list[tuple[str, str]]:
    return [(release, name) for release in RELEASES for name in sorted(definitions(release)) if is_ours(name)]


def test_every_message_of_kafka_is_defined_or_left_out_for_a_reason() -> None:
    theirs = {RENAMED.get(name, name) for release in RELEASES for name in definitions(release)}
    missing = sorted(name for name in theirs - OURS.keys() if is_ours(name))
    assert missing == []
    assert sorted(OURS.keys() - theirs) == []
    for pattern, reason in NOT_OURS.items():
        assert any(re.fullmatch(pattern, name) for name in theirs), f"nothing is left out for {reason}: {pattern}"


def test_a_field_of_odradek_alone_is_a_tag_that_kafka_does_not_use_and_may_be_lost() -> None:
    for name, path in OWN_FIELDS:
        if (name, path.rpartition(".")[0]) in OWN_FIELDS:
            continue  # within a tag of Odradek's own
        ours = OURS[name]
        found = {v: facts for v in ours.versions for facts in ours_at(ours, v) if facts.path == path}
        assert set(found) == set(ours.flexible & ours.versions)
        for facts in found.values():
            assert facts.tag is not None
            assert facts.tag > 10_000
            assert facts.ignorable


@pytest.mark.parametrize("release", RELEASES)
def test_fields_are_those_of_the_jars(release: str) -> None:
    used = set()
    for name in sorted(definitions(release)):
        if not is_ours(name):
            continue
        definition, ours = definitions(release)[name], OURS[RENAMED.get(name, name)]
        valid = versions(definition["validVersions"])
        known, _ = OTHER_VERSIONS.get((release, name), (valid, ""))
        for version in valid & known:
            mine = our_version(definition, version)
            assert mine in ours.versions, f"{release} {name} v{version}: not among our {ours.versions}"
            flexible = version in versions(definition.get("flexibleVersions"))
            assert (mine in ours.flexible) == flexible, f"{release} {name} v{version}: flexible"
            theirs, have = fields_at(definition, version), ours_at(ours, mine)
            odd = {facts.path for facts in {*theirs} ^ {*have}}
            explained = {path for jar, message, path in DIFFERENT if (jar, message) == (release, name)}
            assert odd <= explained, f"{release} {name} v{version}: {theirs} and not {have}"
            used |= {(release, name, path) for path in odd}
            order = [facts.path for facts in theirs if facts.path not in odd]
            assert [facts.path for facts in have if facts.path not in odd] == order, f"{release} {name} v{version}"
    unused = sorted(key for key in DIFFERENT if key[0] == release and key not in used)
    assert unused == [], "listed as different, and are the same"


def test_versions_are_the_union_of_those_of_the_jars() -> None:
    found: dict[str, set[int]] = {}
    for release, name in pairs():
        definition = definitions(release)[name]
        valid = versions(definition["validVersions"])
        known, _ = OTHER_VERSIONS.get((release, name), (valid, ""))
        found.setdefault(RENAMED.get(name, name), set()).update(our_version(definition, v) for v in valid & known)
    assert {name: set(message.versions) for name, message in OURS.items()} == found


def test_api_keys_are_those_of_the_jars() -> None:
    theirs = {
        name: definition["apiKey"]
        for release in RELEASES
        for name, definition in definitions(release).items()
        if definition["type"] in ("request", "response") and is_ours(name)
    }
    assert {name: message.key for name, message in OURS.items() if message.key is not None} == theirs


def test_request_and_response_of_an_api_have_the_same_versions() -> None:
    for api in messages.APIS.values():
        request, response = OURS[f"{api.name}Request"], OURS[f"{api.name}Response"]
        assert (request.versions, request.flexible, request.key) == (response.versions, response.flexible, api.key)


def test_a_comment_lists_the_changes_of_each_version() -> None:
    for path in sorted(set(messages.texts().values())):
        text = path.read_text(encoding="utf-8")
        notified = {int(version) for version in re.findall(r"^# v(\d+) ", text, re.MULTILINE)}
        wanted = set()
        for message in parse(text, path.name).values():
            wanted |= set(message.versions) - {message.versions.first}
        assert notified >= wanted, f"{path.name} has no comment on the changes of {sorted(wanted - notified)}"


def test_no_array_has_elements_of_no_bytes() -> None:
    """Otherwise a count could be correct without a byte behind it, and the check of counts would refuse it."""
    for message in OURS.values():
        for version in message.versions:
            shape = Shape(message, version)
            for struct in (message.root, *message.structs.values()):
                for field in shape.present(struct) + shape.tagged(struct):
                    if field.is_array and field.is_struct:
                        element = message.structs[field.type]
                        assert shape.flexible or shape.present(element), f"{message.name} v{version} {field.name}"
