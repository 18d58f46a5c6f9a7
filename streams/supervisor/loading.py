"""Loading of an application: the topology that `module:topology` names, and the properties of one process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.streams.config import PROPERTIES
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.topology import Topology

_INSTANCE_IDS: Final = ("group.instance.id", "consumer.group.instance.id", "main.consumer.group.instance.id")


class ApplicationError(Exception):
    """A name that does not lead to a topology; the message states what is there."""


def load_attribute(name: str, folder: Path, expected: str) -> Any:
    """What `module:attribute` names; `folder` is the first place to search for the module.

    `expected` is the form of the name, for messages. Raises ApplicationError, and the exceptions of the module.
    """
    module_name, separator, attribute = name.partition(":")
    if not separator or not module_name or not attribute:
        raise ApplicationError(f"{name!r} is not {expected}")
    sys.path.insert(0, str(folder.absolute()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; it is another one that it imports
        raise ApplicationError(f"there is no module {error.name!r} in {folder.absolute()} or on the path") from error
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ApplicationError(f"module {module_name!r} has no attribute {attribute!r}") from error
    return found


def load_topology(name: str, folder: Path) -> Topology:
    """The topology of `module:attribute`; `folder` is the first place to search for the module.

    The attribute is what `topology_of` accepts. Raises ApplicationError, TopologyError, and the exceptions of the
    module and of the function.
    """
    return topology_of(load_attribute(name, folder, "MODULE:TOPOLOGY, as word_count:topology is"), name)


def topology_of(found: Any, name: str) -> Topology:
    """The topology of a Topology, a StreamsBuilder, or a function without parameters that returns one of them.

    `name` is that of the object, for the message of ApplicationError. Raises TopologyError, and the exceptions of the
    function.
    """
    made = found() if callable(found) and not isinstance(found, Topology | StreamsBuilder) else found
    if isinstance(made, StreamsBuilder):
        return made.build()
    if isinstance(made, Topology):
        return made
    raise ApplicationError(f"{name} gives {made!r}; expected a Topology or a StreamsBuilder, or a function of one")


def properties_of_process(given: Mapping[str, Any], process: int, threads: int | None) -> dict[str, Any]:
    """The application's properties for the process of this number, which counts from 0.

    Each process has a state.dir, a client.id and, for static membership (KIP-345), a group.instance.id of its own, the
    same ones after a restart. `threads` overrides num.stream.threads.
    """
    properties = dict(given)
    state = properties.get("state.dir") or PROPERTIES["state.dir"].default
    properties["state.dir"] = str(Path(state) / f"process-{process}")
    prefix = properties.get("client.id") or properties.get("application.id")
    if prefix:
        properties["client.id"] = f"{prefix}-{process}"
    for name in _INSTANCE_IDS:
        if properties.get(name):
            properties[name] = f"{properties[name]}-{process}"
    if threads is not None:
        properties["num.stream.threads"] = threads
    return properties
