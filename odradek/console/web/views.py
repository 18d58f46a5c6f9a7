"""Between Starlette and the pages: sessions, login, forged requests, errors.

A page is a function from a `ViewRequest` to a `Shown` page, a `Redirect` or a `Download`. It may block: it runs in a
thread. A function for a POST request is called only where changes are allowed and the form has the session's token.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from odradek.admin.client import AdminClient
from odradek.commands.failures import DENIED, NOT_FOUND, exit_code_of, failure_of
from odradek.console.history import ClusterHistory
from odradek.console.moments import MomentError
from odradek.console.paging import PAGE_SIZE, Listing
from odradek.console.sample import CLIENT_ERRORS
from odradek.console.web.rendering import rendered
from odradek.console.web.sessions import UserSession, UserSessions
from odradek.console.web.settings import ConsoleSettings
from odradek.console.workspace import Workspace
from odradek.records.filters import FilterError

LOG = logging.getLogger(__name__)
LARGEST_FORM: Final = 2 * 1024 * 1024
MOST_FIELDS: Final = 200
_SAME_SITE: Final = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Shown:
    """A page to render."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """The page to show next, and a notice for it: `error` where the change failed."""

    path: str
    notice: str = ""
    error: bool = False


@dataclass(frozen=True, slots=True)
class Download:
    """A file."""

    name: str
    media_type: str
    content: Iterable[bytes]


class BadInputError(ValueError):
    """A form or a query whose values cannot be used; the message is for the user."""


class _RefusedError(Exception):
    """A form that no page of this session has sent."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """A request to a page."""

    settings: ConsoleSettings
    session: UserSession
    path: str
    params: Mapping[str, str]
    """Parts of the path."""
    query: Mapping[str, str]
    form: Mapping[str, str]
    url: str
    """The path with its query."""

    @property
    def workspace(self) -> Workspace:
        """The connections of the user."""
        assert self.session.workspace is not None
        return self.session.workspace

    @property
    def history(self) -> ClusterHistory:
        """What the sampler has kept, with a sample wherever the cluster answers."""
        self.workspace.ensure()
        return self.workspace.history

    def client(self) -> AbstractContextManager[AdminClient]:
        """A client for this request."""
        return self.workspace.client()

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number of the query or the form; the default where it is empty. Raises BadInputError."""
        text = self.form.get(name, self.query.get(name, "")).strip()
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise BadInputError(f"{name.replace('_', ' ')}: {text!r} is not a whole number") from None

    def text(self, name: str, default: str = "") -> str:
        """A text of the form, else of the query."""
        return self.form.get(name, self.query.get(name, default))

    def listing(self, sort: str = "") -> Listing:
        """Which part of a list the query asks for."""
        try:
            page = int(self.query.get("page", "1"))
        except ValueError:
            page = 1
        return Listing(self.query.get("q", "").strip(), page, PAGE_SIZE, self.query.get("sort", sort))


Page = Callable[[ViewRequest], Shown | Redirect | Download]


class Views:
    """Makes endpoints of pages."""

    def __init__(self, settings: ConsoleSettings, sessions: UserSessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._cookie = f"odradek_console_{settings.port}"  # cookies do not distinguish the ports of a host

    def page(self, function: Page) -> Callable[[Request], Any]:
        """An endpoint for GET; users who have to log in see the login first."""

        async def endpoint(request: Request) -> Response:
            session = self._sessions.get(request.cookies.get(self._cookie)) or self._sessions.begin()
            if session.workspace is not None:
                response = await self._answer(request, session, function, {})
            elif "hx-request" in request.headers:  # a part of a page: the browser has to leave the page
                response = Response(headers={"HX-Redirect": "/login"})
            else:
                response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
            return self._with_cookie(response, request, session)

        return endpoint

    def change(self, function: Page) -> Callable[[Request], Any]:
        """An endpoint for POST that changes the cluster."""

        async def endpoint(request: Request) -> Response:
            try:
                session, form = await self._form(request)
            except _RefusedError as error:
                return PlainTextResponse(f"{error}\n", error.status)
            if not self._settings.allow_changes:
                return self._error(session, "The console is read-only; start it with --allow-changes.", 403)
            if session.workspace is None:
                return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
            return await self._answer(request, session, function, form)

        return endpoint

    def login_page(self, page: Callable[[UserSession], Response]) -> Callable[[Request], Any]:
        """An endpoint for GET that needs no login."""

        async def endpoint(request: Request) -> Response:
            session = self._sessions.get(request.cookies.get(self._cookie)) or self._sessions.begin()
            return self._with_cookie(page(session), request, session)

        return endpoint

    def login_form(
        self, submit: Callable[[UserSession, Mapping[str, str]], tuple[UserSession, Response]]
    ) -> Callable[[Request], Any]:
        """An endpoint for POST that begins or ends a session."""

        async def endpoint(request: Request) -> Response:
            try:
                session, form = await self._form(request)
            except _RefusedError as error:
                return PlainTextResponse(f"{error}\n", error.status)
            session, response = await run_in_threadpool(submit, session, form)
            return self._with_cookie(response, request, session)

        return endpoint

    def render(self, session: UserSession, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        """A page with what the frame around it needs."""
        workspace = session.workspace
        frame = {
            "path": "",
            "url": "",
            "csrf": session.csrf,
            "user": session.user,
            "notices": session.take_notices(),
            "allow_changes": self._settings.allow_changes,
            "has_logs": bool(self._settings.data_dirs),
            "has_streams": bool(self._settings.streams),
            "requires_login": self._settings.requires_login,
            "bootstrap": self._settings.bootstrap,
            "sample": None if workspace is None else workspace.history.sample,
            "cluster_error": None if workspace is None else workspace.history.error,
        }
        return HTMLResponse(rendered(template, {**frame, **values}), status)

    async def _form(self, request: Request) -> tuple[UserSession, dict[str, str]]:
        """The session and the fields of a form. Raises _RefusedError."""
        if request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "The form is from another site.")
        session = self._sessions.get(request.cookies.get(self._cookie))
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_FORM:
                raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A form has at most {LARGEST_FORM} bytes.")
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "The form cannot be read.") from None
        token = form.pop("csrf", "")
        if session is None or not hmac.compare_digest(token.encode(), session.csrf.encode()):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "The form is not from this session; load the page again.")
        return session, form

    async def _answer(
        self, request: Request, session: UserSession, function: Page, form: Mapping[str, str]
    ) -> Response:
        url = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        view = ViewRequest(
            self._settings,
            session,
            request.url.path,
            dict(request.path_params),
            dict(request.query_params),
            form,
            url,
        )
        return await run_in_threadpool(self._respond, view, function)

    def _respond(self, view: ViewRequest, function: Page) -> Response:
        try:
            result = function(view)
        except (BadInputError, FilterError, MomentError) as error:
            return self._error(view.session, str(error), 400, view)
        except KeyError as error:
            return self._error(view.session, f"There is no {error.args[0]}.", 404, view)
        except CLIENT_ERRORS as error:
            status = {NOT_FOUND: 404, DENIED: 403}.get(exit_code_of(error), 502)
            about = f"topic {view.params['topic']}" if status == 404 and "topic" in view.params else ""
            return self._error(view.session, failure_of(error, about).message, status, view)
        if isinstance(result, Redirect):
            if result.notice:
                view.session.notices.append(("error" if result.error else "done", result.notice))
            return RedirectResponse(result.path, HTTPStatus.SEE_OTHER)
        if isinstance(result, Download):
            name = "".join(each if each.isalnum() or each in "._-" else "_" for each in result.name)
            headers = {"Content-Disposition": f'attachment; filename="{name}"'}
            return StreamingResponse(iter(result.content), 200, headers, result.media_type)
        frame = {"path": view.path, "url": view.url}
        return self.render(view.session, result.template, {**frame, **result.values}, result.status)

    def _error(self, session: UserSession, text: str, status: int, view: ViewRequest | None = None) -> Response:
        values = {"text": text, "status": status, "path": "" if view is None else view.path}
        return self.render(session, "error.html", values, status)

    def _with_cookie(self, response: Response, request: Request, session: UserSession) -> Response:
        if request.cookies.get(self._cookie) != session.session_id:
            secure = request.url.scheme == "https"
            response.set_cookie(
                self._cookie, session.session_id, httponly=True, samesite="strict", secure=secure, path="/"
            )
        return response
