"""The application: which page answers which path."""

from __future__ import annotations

import contextlib
import mimetypes
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NoReturn

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from odradek.commands.failures import failure_of
from odradek.console.sample import CLIENT_ERRORS
from odradek.console.web.guard import LOCAL, Guard
from odradek.console.web.logins import LoginFormError, login_of
from odradek.console.web.pages import access, brokers, groups, logs, messages, overview, timeline, topics, transactions
from odradek.console.web.rendering import static_file
from odradek.console.web.sessions import UserSession, UserSessions
from odradek.console.web.settings import TOKENS, ConsoleSettings
from odradek.console.web.views import Page, ViewRequest, Views
from odradek.console.workspace import ClusterWorkspace, Workspace

Connect = Callable[[ConsoleSettings, Mapping[str, Any]], Workspace]
PAGES: Final[Mapping[str, Page]] = {
    "/": overview.show,
    "/topics": topics.list_all,
    "/topics/new": topics.new,
    "/topics/{topic}": topics.show,
    "/topics/{topic}/configs": topics.show_configs,
    "/topics/{topic}/configs/{config}": topics.edit_config,
    "/topics/{topic}/delete": topics.ask_delete,
    "/topics/{topic}/messages": messages.browse,
    "/topics/{topic}/messages/download": messages.download,
    "/topics/{topic}/messages/new": messages.new,
    "/topics/{topic}/messages/{partition:int}/{offset:int}": messages.show,
    "/groups": groups.list_all,
    "/group": groups.show,
    "/group/reset": groups.plan,
    "/group/delete": groups.ask_delete,
    "/transactions": transactions.list_all,
    "/transactions/hanging": transactions.show_hanging,
    "/transaction": transactions.show,
    "/brokers": brokers.list_all,
    "/brokers/{broker:int}": brokers.show,
    "/brokers/{broker:int}/configs/{config}": brokers.edit_config,
    "/access": access.show,
    "/timeline": timeline.show,
    "/logs": logs.list_all,
    "/logs/{directory:int}/{log}": logs.show,
    "/logs/{directory:int}/{log}/{base_offset:int}": logs.show_segment,
    "/logs/{directory:int}/{log}/{base_offset:int}/indexes": logs.show_indexes,
}
CHANGES: Final[Mapping[str, Page]] = {
    "/topics/new": topics.create,
    "/topics/{topic}/partitions": topics.add_partitions,
    "/topics/{topic}/configs/{config}": topics.change_config,
    "/topics/{topic}/delete": topics.delete,
    "/topics/{topic}/messages/new": messages.produce,
    "/group/reset": groups.reset,
    "/group/delete": groups.delete,
    "/transactions/abort": transactions.abort,
    "/brokers/{broker:int}/configs/{config}": brokers.change_config,
    "/access/acls/add": access.add_acl,
    "/access/acls/remove": access.remove_acl,
    "/access/users/set": access.set_user,
    "/access/users/remove": access.remove_user,
}


def connected(settings: ConsoleSettings, properties: Mapping[str, Any]) -> ClusterWorkspace:
    """The workspace of a login with these properties of a client. Raises SecurityConfigError."""
    return ClusterWorkspace(
        settings.bootstrap,
        properties,
        interval_s=settings.interval_s,
        metrics=settings.metrics,
        schemas=settings.schemas,
    )


def application(settings: ConsoleSettings, connect: Connect = connected) -> Starlette:
    """The application. `connect` makes the workspace of a login. Raises SecurityConfigError."""
    shared = None if settings.requires_login else connect(settings, settings.properties)
    sessions = UserSessions(shared)
    views = Views(settings, sessions)
    streams = _streams(settings)
    login = _Login(settings, sessions, views, connect)
    # Forms come first: a route answers 405 for a method that it does not have only where no later route has it.
    routes = [
        *(Route(path, views.change(page), methods=["POST"]) for path, page in CHANGES.items()),
        *(Route(path, views.page(page), methods=["GET"]) for path, page in PAGES.items()),
        *(Route(path, views.page(page), methods=["GET"]) for path, page in streams.pages.items()),
        Route("/login", views.login_page(login.show), methods=["GET"]),
        Route("/login", views.login_form(login.log_in), methods=["POST"]),
        Route("/logout", views.login_form(login.log_out), methods=["POST"]),
        Route("/static/{name}", _static, methods=["GET"]),
        Route("/{path:path}", views.page(_missing), methods=["GET"]),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with streams.opened():
            try:
                yield
            finally:
                sessions.close()
                if settings.schemas is not None:
                    settings.schemas.close()

    hosts = {*LOCAL, settings.host.lower(), *settings.hosts}
    return Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Guard, hosts=hosts)])


@dataclass(frozen=True, slots=True)
class _Streams:
    """The pages of stream applications, and what has to be open for them."""

    pages: Mapping[str, Page]
    opened: Callable[[], AbstractContextManager[object]]


def _streams(settings: ConsoleSettings) -> _Streams:
    if not settings.streams:
        return _Streams({}, contextlib.nullcontext)
    # Imported late: most consoles need no part of the streams runtime.
    from odradek.console.streams_monitor import StreamsMonitor
    from odradek.console.web.pages.streams import StreamsPages

    monitor = StreamsMonitor(settings.streams, settings.interval_s)
    return _Streams({"/streams": StreamsPages(monitor).show}, monitor.running)


def _missing(request: ViewRequest) -> NoReturn:
    raise KeyError(f"page {request.path}")


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    try:
        content = static_file(name)
    except (OSError, ValueError):
        return PlainTextResponse("There is no such file.\n", 404)
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, media_type=media_type, headers={"Cache-Control": "max-age=31536000, immutable"})


class _Login:
    """The login: the credentials are those of the cluster, and are tried there."""

    def __init__(self, settings: ConsoleSettings, sessions: UserSessions, views: Views, connect: Connect) -> None:
        self._settings = settings
        self._sessions = sessions
        self._views = views
        self._connect = connect

    def show(self, session: UserSession) -> Response:
        if not self._settings.requires_login:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        return self._page(session, "")

    def log_in(self, session: UserSession, form: Mapping[str, str]) -> tuple[UserSession, Response]:
        if not self._settings.requires_login:
            return session, RedirectResponse("/", HTTPStatus.SEE_OTHER)
        try:
            login = login_of(self._settings, form)
            workspace = self._connect(self._settings, login.properties)
        except LoginFormError as error:
            return session, self._page(session, str(error), 400)
        except CLIENT_ERRORS as error:
            return session, self._page(session, failure_of(error).message, 403)
        try:
            with workspace.client() as client:
                client.metadata([])
        except CLIENT_ERRORS as error:
            workspace.close()
            return session, self._page(session, failure_of(error).message, 403)
        return self._sessions.log_in(session, login, workspace), RedirectResponse("/", HTTPStatus.SEE_OTHER)

    def log_out(self, session: UserSession, form: Mapping[str, str]) -> tuple[UserSession, Response]:
        self._sessions.end(session)
        return self._sessions.begin(), RedirectResponse("/login", HTTPStatus.SEE_OTHER)

    def _page(self, session: UserSession, error: str, status: int = 200) -> Response:
        settings = self._settings
        values = {
            "error": error,
            "mechanism": settings.mechanism,
            "takes_token": settings.mechanism == TOKENS,
            "takes_client": settings.has_token_endpoint,
            "path": "/login",
        }
        return self._views.render(session, "login.html", values, status)
