"""ACLs and users."""

from __future__ import annotations

from odradek.admin.users import CODES
from odradek.broker.security.state.acls import AclBinding
from odradek.commands.failures import failure_of
from odradek.console import access_pages
from odradek.console.access_pages import OPERATIONS, RESOURCES
from odradek.console.sample import CLIENT_ERRORS
from odradek.console.web.views import BadInputError, Redirect, Shown, ViewRequest


def show(request: ViewRequest) -> Shown:
    """ACLs and users, or why they cannot be shown."""
    page, users, acl_error, user_error = None, None, "", ""
    with request.client() as client:
        try:
            page = access_pages.acls_page(client, request.listing("principal"))
        except CLIENT_ERRORS as error:
            acl_error = failure_of(error).message
        try:
            users = access_pages.scram_users(client)
        except CLIENT_ERRORS as error:
            user_error = failure_of(error).message
    values = {
        "page": page,
        "acl_error": acl_error,
        "users": users,
        "user_error": user_error,
        "resources": RESOURCES,
        "operations": OPERATIONS,
        "mechanisms": list(CODES),
    }
    return Shown("access.html", values)


def add_acl(request: ViewRequest) -> Redirect:
    """Create an ACL."""
    binding = _binding(request)
    with request.client() as client:
        access_pages.add_acl(client, binding)
    return Redirect("/access", f"Added: {access_pages.acl_text(binding)}")


def remove_acl(request: ViewRequest) -> Redirect:
    """Delete an ACL."""
    binding = _binding(request)
    with request.client() as client:
        access_pages.remove_acl(client, binding)
    return Redirect("/access", f"Removed: {access_pages.acl_text(binding)}")


def set_user(request: ViewRequest) -> Redirect:
    """Create a user, or replace the password."""
    user, password, mechanism = (request.form.get(name, "") for name in ("user", "password", "mechanism"))
    if not user or not password or mechanism not in CODES:
        raise BadInputError("user, password and mechanism are required")
    with request.client() as client:
        access_pages.set_password(client, user, mechanism, password)
    return Redirect("/access", f"User {user} has a password for {mechanism}.")


def remove_user(request: ViewRequest) -> Redirect:
    """Delete a user's credentials."""
    user = request.form.get("user", "")
    with request.client() as client:
        access_pages.remove_user(client, user)
    return Redirect("/access", f"User {user} has no credentials.")


def _binding(request: ViewRequest) -> AclBinding:
    names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    fields = {name: request.form.get(name, "").strip() for name in names}
    if not fields["principal"] or not fields["resource_name"]:
        raise BadInputError("principal and name of the resource are required")
    try:
        return access_pages.acl_of(fields)
    except KeyError as error:
        raise BadInputError(f"{error.args[0]!r} does not exist") from error
