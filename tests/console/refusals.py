"""What refuses a form on a cluster: no option for changes, and no token of the session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.testclient import TestClient

from odradek.console.web.application import application
from odradek.console.web.settings import ConsoleSettings
from tests.console.workspaces import token_of


@contextmanager
def console_of(bootstrap: str, *, allow_changes: bool) -> Iterator[TestClient]:
    settings = ConsoleSettings(bootstrap, allow_changes=allow_changes, interval_s=0.5)
    with TestClient(application(settings), base_url="http://127.0.0.1:8080") as client:
        yield client


def check_refusals(bootstrap: str, console: TestClient, page: str, path: str, form: dict[str, str]) -> None:
    """A form with everything but the token of its session, and one to a console that only reads."""
    with console_of(bootstrap, allow_changes=True) as another:
        stolen = token_of(another, "/topics/new")
    for more in ({}, {"csrf": ""}, {"csrf": stolen}):
        answer = console.post(path, data={**form, **more})
        assert (answer.status_code, "not from this session" in answer.text) == (403, True), more
    with console_of(bootstrap, allow_changes=False) as reading:
        shown = reading.get(page)
        assert (shown.status_code, 'method="post"' in shown.text) == (200, False)
        assert reading.post(path, data=form).status_code == 403
        assert reading.post(path, data={**form, "csrf": stolen}).status_code == 403
