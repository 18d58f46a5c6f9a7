"""Groups: list, members and lag, reset offsets with a preview, delete."""

from __future__ import annotations

import json
import time
from typing import Final
from urllib.parse import quote

from odradek.admin import groups
from odradek.admin.offset_reset import OffsetChange
from odradek.commands.failures import failure_of
from odradek.console import group_pages
from odradek.console.group_pages import RESETS, STATES, group_detail, groups_page
from odradek.console.moments import MomentError, moment_ms
from odradek.console.web.plots import line_plot, spark_line
from odradek.console.web.views import BadInputError, Redirect, Shown, ViewRequest
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

_MOST_SHOWN: Final = 500
"""Partitions of one group."""


def list_all(request: ViewRequest) -> Shown:
    """The groups of the latest sample."""
    state = request.query.get("state", "")
    page = groups_page(request.history, request.listing("-lag"), state=state)
    sparks = {}
    for row in page.rows:
        series = request.history.lags_of(row.group_id)
        sparks[row.group_id] = spark_line([] if series is None else series.values())
    return Shown("groups.html", {"page": page, "state": state, "states": STATES, "sparks": sparks})


def show(request: ViewRequest) -> Shown:
    """One group."""
    group_id = _group_id(request)
    with request.client() as client:
        detail = group_detail(client, group_id)
    series = request.history.lags_of(group_id)
    values = {
        "group_id": group_id,
        "detail": detail,
        "partitions": sorted(detail.partitions, key=lambda each: -(each.lag or 0))[:_MOST_SHOWN],
        "plot": line_plot([] if series is None else list(series)),
        "changes": request.history.timeline.newest(subject=group_id)[:10],
    }
    return Shown("group.html", values)


def plan(request: ViewRequest) -> Shown:
    """The form of a reset, and the preview of the one that it asks for."""
    group_id, kind = _group_id(request), request.query.get("kind", "")
    values = {
        "group_id": group_id,
        "kinds": RESETS,
        "kind": kind,
        "fields": request.query,
        "changes": None,
        "errors": {},
        "plan": "",
        "error": "",
    }
    if not kind:
        return Shown("group_reset.html", values)
    try:
        amount = _amount(request, kind)
        with request.client() as client:
            found = group_pages.plan_of_reset(client, group_id, kind, amount, request.query.get("topic", "").strip())
    except (BadInputError, MomentError, KafkaError) as error:
        text = failure_of(error).message if isinstance(error, KafkaError) else str(error)
        return Shown("group_reset.html", {**values, "error": text}, 400)
    changes = [each for each in found.values() if not isinstance(each, KafkaError)]
    errors = {f"{place[0]}-{place[1]}": each for place, each in found.items() if isinstance(each, KafkaError)}
    written = json.dumps([[each.topic, each.partition, each.new] for each in changes])
    return Shown("group_reset.html", {**values, "changes": changes, "errors": errors, "plan": written})


def reset(request: ViewRequest) -> Redirect:
    """Commit the offsets of a preview."""
    group_id = _group_id(request)
    changes = _plan(request.form.get("plan", ""))
    with request.client() as client:
        results = group_pages.reset_offsets(client, group_id, changes)
    request.workspace.refresh()
    failed = {place: each for place, each in results.items() if isinstance(each, KafkaError)}
    path = f"/group?id={quote(group_id, safe='')}"
    if failed:
        (topic, partition), error = next(iter(failed.items()))
        text = f"{len(failed)} of {len(results)} offsets were not changed; {topic}-{partition}: "
        return Redirect(path, text + failure_of(error).message, error=True)
    return Redirect(path, f"{len(results)} offsets of {group_id} were reset.")


def ask_delete(request: ViewRequest) -> Shown:
    """What a deletion removes."""
    group_id = _group_id(request)
    path = f"/group?id={quote(group_id, safe='')}"
    values = {
        "heading": f"Delete group {group_id}",
        "what": "The group and its committed offsets are deleted. Its consumers begin again by auto.offset.reset.",
        "name": group_id,
        "hidden": {"id": group_id},
        "back": path,
        "action": "/group/delete",
    }
    return Shown("delete.html", values)


def delete(request: ViewRequest) -> Redirect:
    """Delete a group whose id the user has typed."""
    group_id = _group_id(request)
    quoted = quote(group_id, safe="")
    if request.form.get("confirmation", "").strip() != group_id:
        return Redirect(f"/group/delete?id={quoted}", "Type the id of the group to delete it.", error=True)
    with request.client() as client:
        result = groups.delete_groups(client, [group_id])[group_id]
    if isinstance(result, KafkaError):
        return Redirect(f"/group?id={quoted}", failure_of(result).message, error=True)
    request.workspace.refresh()
    return Redirect("/groups", f"Group {group_id} was deleted.")


def _group_id(request: ViewRequest) -> str:
    group_id = request.text("id")
    if not group_id:
        raise BadInputError("which group? The query has no id.")
    return group_id


def _amount(request: ViewRequest, kind: str) -> int:
    if kind == "time":
        return moment_ms(request.query.get("amount", "").strip(), int(time.time() * 1000))
    if kind in ("offset", "shift"):
        amount = request.number("amount")
        if amount is None:
            raise BadInputError(f"{kind}: a number is required")
        return amount
    return 0


def _plan(text: str) -> dict[TopicPartition, OffsetChange]:
    """The offsets of a preview. Raises BadInputError."""
    try:
        rows = json.loads(text)
        return {
            (str(topic), int(number)): OffsetChange(str(topic), int(number), None, int(new))
            for topic, number, new in rows
        }
    except (ValueError, TypeError):
        raise BadInputError("the plan cannot be read; make the preview again") from None
