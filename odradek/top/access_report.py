"""ACLs and users of SASL/SCRAM in `odradek top`."""

from __future__ import annotations

from typing import Final

from odradek.admin.users import ScramUser
from odradek.broker.security.state.acls import AclBinding
from odradek.console.access_pages import SORTS, acl_text, acls_page, scram_users
from odradek.console.paging import Listing
from odradek.top.cells import WRONG, Cells, PaneRows, safe, selected, shown
from odradek.top.context import TopContext
from odradek.top.report_screen import ReportScreen
from odradek.top.reports import Report, ReportTable, facts

ACLS: Final = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST")
USERS: Final = ("USER", "CREDENTIALS")


def access_screen(context: TopContext) -> ReportScreen:
    """ACLs and users, read again every few seconds."""
    return ReportScreen(lambda: access_report(context))


def access_report(context: TopContext) -> Report:
    """The tables read when they are shown: a cluster may have users and no authorizer."""

    def acls(listing: Listing) -> PaneRows:
        with context.workspace.client() as client:
            return shown(acls_page(client, listing), acl_text, _acl)

    def users(listing: Listing) -> PaneRows:
        with context.workspace.client() as client:
            return selected(scram_users(client), listing, lambda each: each.name, _user)

    tables = (ReportTable("ACLs", ACLS, acls, sorts=tuple(SORTS)), ReportTable("users", USERS, users))
    return Report(facts("access"), tables)


def _acl(binding: AclBinding) -> Cells:
    pattern, entry = binding
    denies = entry.permission_type.name == "DENY"
    return (
        safe(entry.principal),
        safe(entry.permission_type.name.lower(), WRONG if denies else ""),
        safe(entry.operation.name.lower()),
        safe(pattern.resource_type.name.lower()),
        safe(pattern.name),
        safe(pattern.pattern_type.name.lower()),
        safe(entry.host),
    )


def _user(user: ScramUser) -> Cells:
    return safe(user.name), safe(", ".join(f"{name} {count:,} iterations" for name, count in user.iterations.items()))
