"""The message definitions inside Kafka's own jars: the reference for every definition text of Odradek."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any, NamedTuple

from odradek.protocol.grammar import NO_VERSIONS, Versions
from tests.jvm.jars import classpath

RELEASES = ("3.9.2", "4.3.0")
FOLDER = "common/message/"
COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*')

Json = dict[str, Any]


class FieldFacts(NamedTuple):
    """The properties of a field in one version that affect the wire format or a constructor."""

    path: str
    type: str
    nullable: bool
    default: object
    tag: int | None
    ignorable: bool
    inflexible: bool


@cache
def definitions(release: str) -> dict[str, Json]:
    """Every message definition in the jars of a release, by message name."""
    found: dict[str, Json] = {}
    for jar in classpath(release):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith(FOLDER) and name.endswith(".json"):
                    text = COMMENT.sub(lambda match: match[1] or "", archive.read(name).decode())
                    definition = json.loads(text)
                    found[definition["name"]] = definition
    return {name: definition for name, definition in found.items() if definition["validVersions"] != "none"}


def versions(text: str | None) -> Versions:
    """A range as the JSON writes it; none where it is missing."""
    return Versions.parse(text) if text else NO_VERSIONS


def fields_at(definition: Json, version: int) -> list[FieldFacts]:
    """The fields of a message in one version, in the order of the wire, those of structures after their field."""
    shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    return list(_walk(definition["fields"], shared, "", version))


def _walk(fields: list[Json], shared: dict[str, list[Json]], prefix: str, version: int) -> list[FieldFacts]:
    found: list[FieldFacts] = []
    for field in fields:
        # Some tagged fields declare only the versions in which they are tagged.
        if version not in versions(field.get("versions") or field["taggedVersions"]):
            continue
        path, kind = prefix + field["name"], field["type"]
        tagged = version in versions(field.get("taggedVersions"))
        found.append(
            FieldFacts(
                path=path,
                type=kind,
                nullable=version in versions(field.get("nullableVersions")),
                default=default(kind, field.get("default")),
                tag=field["tag"] if tagged else None,
                ignorable=field.get("ignorable") in (True, "true"),
                inflexible=field.get("flexibleVersions") == "none",
            )
        )
        name = kind.removeprefix("[]")
        inner = field.get("fields") or shared.get(name, [])
        found += _walk(inner, shared, path + ".", version)
    return found


def default(kind: str, given: object) -> object:
    """The default of a field as Kafka's generator takes it: a JSON null declares nothing, the word null means null."""
    if given == "null":
        return None
    text = "" if given is None else str(given)
    if kind.startswith("[]"):
        return ()
    if kind == "bool":
        return text.lower() == "true"
    if kind == "float64":
        return float(text or 0)
    if kind.startswith(("int", "uint")):
        return int(text or "0", 0)
    return {"string": text, "bytes": b"", "uuid": bytes(16), "records": None}.get(kind, "a new structure")
