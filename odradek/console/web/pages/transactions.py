"""Transactions: all, one, and those that hang."""

from __future__ import annotations

import time

from odradek.console.transaction_pages import (
    OPEN,
    abort_hanging,
    hanging_transactions,
    transaction_detail,
    transactions_page,
)
from odradek.console.web.views import BadInputError, Redirect, Shown, ViewRequest


def list_all(request: ViewRequest) -> Shown:
    """The transactional ids of all coordinators."""
    only_open = "open" in request.query
    with request.client() as client:
        found = transactions_page(client, request.listing("id"), only_open=only_open)
    return Shown("transactions.html", {"found": found, "page": found.listed, "only_open": only_open, "open": OPEN})


def show(request: ViewRequest) -> Shown:
    """One transactional id."""
    transactional_id = request.text("id")
    with request.client() as client:
        detail = transaction_detail(client, transactional_id)
    values = {"detail": detail, "is_open": detail.state in OPEN, "now_ms": int(time.time() * 1000)}
    return Shown("transaction.html", values)


def show_hanging(request: ViewRequest) -> Shown:
    """The transactions that no coordinator will end."""
    sample = request.history.sample
    with request.client() as client:
        found, errors = hanging_transactions(client, sample) if sample is not None else ([], {})
    values = {"found": sorted(found), "errors": errors, "now_ms": int(time.time() * 1000)}
    return Shown("hanging.html", values)


def abort(request: ViewRequest) -> Redirect:
    """Write an abort marker for a transaction that hangs."""
    topic, partition, start = request.form.get("topic", ""), request.number("partition"), request.number("start_offset")
    if not topic or partition is None or start is None:
        raise BadInputError("topic, partition and start offset are required")
    with request.client() as client:
        abort_hanging(client, (topic, partition), start)
    return Redirect("/transactions/hanging", f"The transaction in {topic}-{partition} was aborted.")
