"""Topics: list, one topic, configs, create, add partitions, delete."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from odradek.admin import topics
from odradek.admin.configs import DescribedConfig, ResourceKind
from odradek.admin.topics import BROKER_DEFAULT, CreatableTopic
from odradek.commands.failures import failure_of
from odradek.console import config_pages
from odradek.console.group_pages import groups_of_topic
from odradek.console.topic_pages import HEALTH, topic_detail, topics_page
from odradek.console.web.views import BadInputError, Redirect, Shown, ViewRequest
from odradek.protocol.errors import KafkaError

_PER_PAGE: Final = 100
"""Partitions."""
_SETTING: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*=\s*(.*?)\s*")


def list_all(request: ViewRequest) -> Shown:
    """The topics of the latest sample."""
    health = request.query.get("health", "")
    internal = "internal" in request.query
    page = topics_page(request.history, request.listing("name"), internal=internal, health=health)
    return Shown("topics.html", {"page": page, "health": health, "internal": internal, "filters": list(HEALTH)})


def show(request: ViewRequest) -> Shown:
    """One topic with its partitions."""
    name = request.params["topic"]
    with request.client() as client:
        detail = topic_detail(client, name)
    number = request.listing().page
    pages = max(1, -(-len(detail.partitions) // _PER_PAGE))
    number = min(max(1, number), pages)
    values = {
        "topic": name,
        "detail": detail,
        "partitions": detail.partitions[(number - 1) * _PER_PAGE : number * _PER_PAGE],
        "number": number,
        "pages": pages,
        "groups": groups_of_topic(request.history, name),
        "rate": request.history.rate_of(name),
    }
    return Shown("topic.html", values)


def show_configs(request: ViewRequest) -> Shown:
    """The configs of a topic."""
    name, everything = request.params["topic"], "all" in request.query
    with request.client() as client:
        entries = config_pages.described_configs(client, ResourceKind.TOPIC, name)
    page = config_pages.configs_page(entries, request.listing(), changed=not everything)
    values = {"topic": name, "page": page, "everything": everything, "sources": config_pages.SOURCES}
    return Shown("topic_configs.html", values)


def edit_config(request: ViewRequest) -> Shown:
    """One config of a topic, with a form."""
    name, config = request.params["topic"], request.params["config"]
    with request.client() as client:
        entry = _entry(config_pages.described_configs(client, ResourceKind.TOPIC, name), config)
    values = {
        "heading": f"Topic {name}",
        "back": f"/topics/{name}/configs",
        "entry": entry,
        "sources": config_pages.SOURCES,
        "is_own": entry.source in config_pages.OWN,
    }
    return Shown("config.html", values)


def change_config(request: ViewRequest) -> Redirect:
    """Set or unset a config of a topic."""
    name, config = request.params["topic"], request.params["config"]
    value = None if "unset" in request.form else request.form.get("value", "")
    with request.client() as client:
        try:
            config_pages.change_config(client, ResourceKind.TOPIC, name, config, value)
        except KafkaError as error:
            return Redirect(f"/topics/{name}/configs/{quote(config)}", failure_of(error).message, error=True)
    done = "unset" if value is None else f"set to {value}"
    return Redirect(f"/topics/{name}/configs", f"{config} is {done}.")


def new(request: ViewRequest) -> Shown:
    """The form for a topic."""
    return Shown("topic_new.html", {"form": request.query, "error": ""})


def create(request: ViewRequest) -> Redirect | Shown:
    """Create a topic."""
    name = request.form.get("name", "").strip()
    try:
        topic = CreatableTopic(
            name,
            request.number("partitions", BROKER_DEFAULT) or BROKER_DEFAULT,
            request.number("replication_factor", BROKER_DEFAULT) or BROKER_DEFAULT,
            (),
            _settings(request.form.get("configs", "")),
        )
        with request.client() as client:
            result = topics.create_topics(client, [topic])[name]
    except BadInputError as error:
        return Shown("topic_new.html", {"form": request.form, "error": str(error)}, 400)
    if isinstance(result, KafkaError):
        return Shown("topic_new.html", {"form": request.form, "error": failure_of(result).message}, 400)
    request.workspace.refresh()
    return Redirect(f"/topics/{quote(name)}", f"Topic {name} was created.")


def add_partitions(request: ViewRequest) -> Redirect:
    """Raise the number of partitions."""
    name, count = request.params["topic"], request.number("count")
    if count is None:
        raise BadInputError("how many partitions?")
    with request.client() as client:
        result = topics.create_partitions(client, {name: count})[name]
    if isinstance(result, KafkaError):
        return Redirect(f"/topics/{name}", failure_of(result).message, error=True)
    request.workspace.refresh()
    return Redirect(f"/topics/{name}", f"Topic {name} has {count} partitions.")


def ask_delete(request: ViewRequest) -> Shown:
    """What a deletion removes."""
    name = request.params["topic"]
    with request.client() as client:
        detail = topic_detail(client, name)
    values = {
        "heading": f"Delete topic {name}",
        "what": f"{len(detail.partitions):,} partitions and up to {detail.records:,} records are deleted. "
        "Deleted records cannot be restored.",
        "name": name,
        "hidden": {},
        "back": f"/topics/{name}",
        "action": f"/topics/{name}/delete",
    }
    return Shown("delete.html", values)


def delete(request: ViewRequest) -> Redirect:
    """Delete a topic whose name the user has typed."""
    name = request.params["topic"]
    if request.form.get("confirmation", "").strip() != name:
        return Redirect(f"/topics/{name}/delete", "Type the name of the topic to delete it.", error=True)
    with request.client() as client:
        result = topics.delete_topics(client, [name])[name]
    if isinstance(result, KafkaError):
        return Redirect(f"/topics/{name}", failure_of(result).message, error=True)
    request.workspace.refresh()
    return Redirect("/topics", f"Topic {name} was deleted.")


def _entry(entries: list[DescribedConfig], name: str) -> DescribedConfig:
    for each in entries:
        if each.name == name:
            return each
    raise KeyError(f"config {name}")


def _settings(text: str) -> dict[str, str]:
    """Lines KEY=VALUE. Raises BadInputError."""
    found = {}
    for line in text.splitlines():
        if line.strip():
            setting = _SETTING.fullmatch(line)
            if setting is None:
                raise BadInputError(f"{line.strip()!r} is not KEY=VALUE")
            found[setting[1]] = setting[2]
    return found
