"""The pages without a cluster: what every request passes, escaping, sessions, lists."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.console.history import ClusterHistory
from odradek.console.messages import RecordQuery
from odradek.console.timeline import ChangeKind, ClusterChange
from odradek.console.web.application import CHANGES, PAGES
from odradek.console.web.guard import host_of
from odradek.console.web.logins import UserLogin
from odradek.console.web.plots import MOST_POINTS, line_plot
from odradek.console.web.rendering import HTMX_INTEGRITY, bytes_text, duration_text, environment, static_file
from odradek.console.web.sessions import IDLE_S, MOST_LOGINS, MOST_SESSIONS, UserSessions
from odradek.console.web.settings import ConsoleSettings
from odradek.protocol.client.errors import LoginFailedError
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.records.consumed import ConsumedRecord
from tests.console.samples import group, partition, sample, topic
from tests.console.workspaces import GivenWorkspace, browser_of, token_of

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">"\'&{{7*7}}'


def history() -> ClusterHistory:
    found = ClusterHistory()
    for second in range(3):
        found.add(
            sample(
                second,
                topic("orders", partition("orders", 0), partition("orders", 1, leader=2, isr=(2,))),
                *(topic(f"topic-{number:03}") for number in range(120)),
                ends={("orders", 0): 10 * second},
                groups=[group("billing", lag=5 * second), group(EVIL, lag=1)],
            )
        )
    return found


def test_the_first_page_shows_the_cluster() -> None:
    page = browser_of(GivenWorkspace(history())).get("/")
    assert page.status_code == 200
    assert "1 partition is under-replicated: orders-1." in page.text
    assert "read-only" in page.text
    assert re.search(r'<path class="line" d="M0,', page.text)


def test_lists_are_searched_sorted_and_paged_on_the_server() -> None:
    client = browser_of(GivenWorkspace(history()))
    first = client.get("/topics").text
    assert "1–50 of 121" in first
    assert "topic-047" in first
    assert "topic-051" not in first
    last = client.get("/topics?page=99").text
    assert "101–121 of 121" in last
    found = client.get("/topics?q=PIC-11").text
    assert "1–10 of 10" in found
    assert "(121 in all)" in found
    assert "orders" in client.get("/topics?health=under-replicated").text
    assert "No topic matches" in client.get("/topics?q=nothing").text
    assert "/group?id=billing" in client.get("/groups?q=bill").text


def test_everything_of_a_record_and_a_name_is_escaped() -> None:
    evil = EVIL.encode()
    record = ConsumedRecord(
        "orders", 0, 3, 1000, evil, b'{"a":"' + b"<script>alert(3)</script>" + b'"}', ((EVIL, evil),)
    )
    client = browser_of(GivenWorkspace(history(), [record]))
    for path in ("/topics/orders/messages", "/topics/orders/messages/0/3", "/groups", f"/topics/{EVIL[:8]}/messages"):
        text = client.get(path).text
        assert "alert(" in text or path.startswith("/topics/<")
        assert "<script>" not in text, path
        assert "<img src=x" not in text, path
        assert "{{7*7}}" in text or "49" not in text
    shown = client.get("/topics/orders/messages", params={"text": EVIL, "key": "", "header": EVIL}).text
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_record_is_downloaded_as_a_file_that_no_browser_renders() -> None:
    record = ConsumedRecord("orders", 0, 3, 1000, None, EVIL.encode(), ())
    answer = browser_of(GivenWorkspace(history(), [record])).get("/topics/orders/messages/download")
    assert answer.headers["content-disposition"] == 'attachment; filename="orders.jsonl"'
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.json()["value"] == EVIL


def test_every_answer_restricts_the_browser_and_no_template_has_inline_code() -> None:
    client = browser_of(GivenWorkspace(history()))
    for path in ("/", "/topics", "/nothing", "/static/console.css", "/static/missing", "/login"):
        answer = client.get(path)
        policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    loader = environment().loader
    assert loader is not None
    for name in loader.list_templates():
        source, _, _ = loader.get_source(environment(), name)
        assert not re.search(r"\sstyle=|\son[a-z]+=|javascript:|https?://|<style|\|\s*safe", source), name
        assert not re.search(r"<script(?![^>]*\ssrc=)", source), name


def test_pages_are_not_kept_by_the_browser_and_static_files_are() -> None:
    client = browser_of(GivenWorkspace(history()))
    assert client.get("/").headers["cache-control"] == "no-store"
    assert "immutable" in client.get("/static/htmx.min.js").headers["cache-control"]


def test_htmx_is_the_file_of_the_digest_in_the_pages() -> None:
    digest = base64.b64encode(hashlib.sha384(static_file("htmx.min.js")).digest()).decode()
    assert f"sha384-{digest}" == HTMX_INTEGRITY


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::2]"])
def test_a_name_of_another_site_is_not_served(host: str) -> None:
    answer = browser_of(GivenWorkspace(history())).get("/topics", headers={"host": host})
    assert answer.status_code == 421
    assert "orders" not in answer.text


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST", "console.example:80"])
def test_known_names_are_served(host: str) -> None:
    client = browser_of(GivenWorkspace(history()), hosts=frozenset({"console.example"}))
    assert client.get("/topics", headers={"host": host}).status_code == 200


def test_the_name_in_a_host_header() -> None:
    assert [host_of(each) for each in ("A:1", "[::1]:2", "b", "")] == ["a", "[::1]", "b", ""]


@pytest.mark.parametrize(
    "path", [each.replace("{broker:int}", "1").replace("{", "").replace("}", "") for each in CHANGES]
)
def test_changes_need_the_option_and_the_token_of_the_session(path: str) -> None:
    refused = browser_of(GivenWorkspace(history()), allow_changes=True)
    refused.get("/")
    assert refused.post(path, data={}).status_code == 403
    assert refused.post(path, data={"csrf": "wrong"}).status_code == 403
    other = browser_of(GivenWorkspace(history()), allow_changes=True)
    stolen = token_of(other, "/topics/new")
    assert refused.post(path, data={"csrf": stolen}).status_code == 403
    own = token_of(refused, "/topics/new")
    foreign = {"sec-fetch-site": "cross-site"}
    assert refused.post(path, data={"csrf": own}, headers=foreign).status_code == 403


def test_the_read_only_console_has_no_forms_for_changes_and_refuses_them() -> None:
    writable = browser_of(GivenWorkspace(history()), allow_changes=True)
    assert 'method="post"' in writable.get("/topics/new").text
    client = browser_of(GivenWorkspace(history()))
    for path in PAGES:
        if "{" not in path:
            assert 'method="post"' not in client.get(path).text, path
    # Where users log in, pages show the token for the logout.
    client = browser_of(GivenWorkspace(history()), properties=SASL)
    client.post("/login", data={"csrf": token_of(client, "/login"), "user": "alice", "password": "right"})
    token = token_of(client, "/")
    for path in CHANGES:
        answer = client.post(path.replace("{broker:int}", "1"), data={"csrf": token})
        assert (answer.status_code, "The console is read-only" in answer.text) == (403, True), path


def test_a_form_that_is_too_large_is_refused() -> None:
    client = browser_of(GivenWorkspace(history()), allow_changes=True)
    client.get("/")
    assert client.post("/topics/new", content=b"a=" + b"x" * (3 << 20)).status_code == 413


def test_the_cookie_is_for_this_site_and_not_for_scripts() -> None:
    cookie = browser_of(GivenWorkspace(history())).get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


SASL: Mapping[str, str] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.password": "configured",
}


def test_users_of_a_cluster_with_sasl_log_in_with_their_own_credentials() -> None:
    given: list[Mapping[str, str]] = []
    workspaces: list[GivenWorkspace] = []

    def connect(settings: ConsoleSettings, properties: Mapping[str, str]) -> GivenWorkspace:
        given.append(properties)
        workspaces.append(GivenWorkspace(history()))
        if properties["sasl.password"] != "right":
            workspaces[-1].error = LoginFailedError("SASL/PLAIN failed")
        return workspaces[-1]

    client = browser_of(GivenWorkspace(), connect, properties=SASL)
    for path in ("/", "/topics", "/topics/orders/messages"):
        assert client.get(path).url.path == "/login", path
    assert given == []
    token = token_of(client, "/login")
    failed = client.post("/login", data={"csrf": token, "user": "alice", "password": "wrong"})
    assert failed.status_code == 403
    assert "SASL/PLAIN failed" in failed.text
    assert workspaces[0].closed == 1
    before = dict(client.cookies)
    page = client.post("/login", data={"csrf": token, "user": "alice", "password": "right"})
    assert page.url.path == "/"
    assert "alice" in page.text
    assert "right" not in page.text
    assert dict(client.cookies) != before, "a login has a session of its own"
    assert given[-1]["sasl.username"] == "alice"
    assert "configured" not in given[-1].values()
    token = token_of(client, "/")
    assert client.post("/logout", data={"csrf": token}).url.path == "/login"
    assert workspaces[1].closed == 1
    assert client.get("/topics").url.path == "/login"


def test_sessions_end_when_they_are_idle_and_logins_are_bounded() -> None:
    now = [0.0]
    sessions = UserSessions(None, lambda: now[0])
    first = GivenWorkspace()
    session = sessions.log_in(sessions.begin(), UserLogin("alice", {}), first)
    assert sessions.get(session.session_id) is session
    for number in range(MOST_LOGINS):
        sessions.log_in(sessions.begin(), UserLogin(f"user-{number}", {}), GivenWorkspace())
    assert (first.closed, sessions.get(session.session_id)) == (1, None)
    kept = sessions.log_in(sessions.begin(), UserLogin("bob", {}), GivenWorkspace())
    for _ in range(2 * MOST_SESSIONS):
        sessions.begin()
    assert sessions.get(kept.session_id) is kept, "requests without a cookie end no login"
    now[0] = IDLE_S + 1
    assert sessions.get(kept.session_id) is None


def test_errors_of_the_cluster_are_pages_with_a_reason() -> None:
    workspace = GivenWorkspace(history())
    client = browser_of(workspace)
    for error, status, text in (
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 404, "it does not exist"),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 403, "may not do this"),
        (ConnectionError("no broker answers"), 502, "no broker answers"),
    ):
        workspace.error = error
        answer = client.get("/topics/orders")
        assert (answer.status_code, text in answer.text) == (status, True)
    workspace.error = None
    assert client.get("/topics/orders/messages?start=nonsense").status_code == 400
    assert client.get("/topics/orders/messages?start=time&time=yesterday").status_code == 400
    assert client.get("/topics/orders/messages?partition=x").status_code == 400
    assert client.get("/topics/orders/messages?key=(").status_code == 400
    assert client.get("/group").status_code == 400
    workspace.history.fail("no broker answers")
    assert "The cluster does not answer: no broker answers" in client.get("/topics").text


def test_a_path_without_a_page_is_an_error_page() -> None:
    answer = browser_of(GivenWorkspace(history())).get("/no/such page")
    assert (answer.status_code, "There is no page /no/such page." in answer.text) == (404, True)
    assert 'href="/topics"' in answer.text


def test_the_objects_of_events_are_links() -> None:
    now = history()
    kinds = (
        (ChangeKind.TOPIC, "a.b"),
        (ChangeKind.ISR, "orders-1"),
        (ChangeKind.REBALANCE, "g/1"),
        (ChangeKind.BROKER, "broker 2"),
        (ChangeKind.CONTROLLER, "broker -1"),
        (ChangeKind.TOPIC, "a, b, …"),
    )
    now.timeline.extend(ClusterChange(0, kind, subject, "changed") for kind, subject in kinds)
    text = browser_of(GivenWorkspace(now)).get("/timeline").text
    for path in ("/topics/a.b", "/topics/orders", "/group?id=g%2F1", "/brokers/2"):
        assert f'<td><a href="{path}">' in text, path
    assert "<td>broker -1</td>" in text
    assert "<td>a, b, …</td>" in text


def test_an_offset_or_a_time_that_is_filled_in_is_meant() -> None:
    workspace = GivenWorkspace(history())
    client = browser_of(workspace)
    for query in (
        "start=newest&offset=5&time=",
        "start=newest&offset=&time=1h",
        "start=newest",
        "start=beginning&offset=5",
    ):
        assert client.get(f"/topics/orders/messages?{query}").status_code == 200
    assert [each.start for each in workspace.given.queries] == ["offset", "time", "newest", "beginning"]


def test_a_query_for_records_is_read_from_the_form() -> None:
    workspace = GivenWorkspace(history())
    query = "start=offset&offset=5&partition=1&limit=9999&text=a&key=k&header=h&uncommitted=on&from=0:3,1:4"
    assert browser_of(workspace).get(f"/topics/orders/messages?{query}").status_code == 200
    expected = RecordQuery("orders", 1, "offset", 5, 200, "a", "k", "h", "", False, False, {0: 3, 1: 4})
    assert workspace.given.queries == [expected]


def test_logs_are_shown_only_of_the_given_directories(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    without = browser_of(GivenWorkspace(history()))
    assert "Logs on disk" not in without.get("/").text
    assert without.get("/logs/0/orders-0").status_code == 404
    client = browser_of(GivenWorkspace(history()), data_dirs=(tmp_path,))
    assert "orders-0" in client.get("/logs").text
    for path, status in (
        ("/logs/0/orders-0", 200),
        ("/logs/0/orders-0/0", 200),
        ("/logs/0/orders-0/0/indexes", 200),
        ("/logs/0/orders-0/7", 404),
        ("/logs/1/orders-0", 404),
    ):
        assert client.get(path).status_code == status, path


def test_sizes_and_durations_are_for_a_reader() -> None:
    assert [bytes_text(each) for each in (None, 0, 1023, 1536, 10 << 20, 300 << 30)] == [
        "–",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "10.0 MiB",
        "300 GiB",
    ]
    assert [duration_text(each) for each in (0, 59, 90, 3600, 90000)] == [
        "0 s",
        "59 s",
        "1 min 30 s",
        "1 h 0 min",
        "1 d 1 h",
    ]


def test_a_plot_keeps_its_peaks_and_its_size() -> None:
    points = [(float(number), 9.0 if number == 777 else 1.0) for number in range(2000)]
    plot = line_plot(points)
    assert plot.highest == 9
    assert plot.line.count("L") <= MOST_POINTS
    assert ",1L" in plot.line, "the peak is at the top"
    assert line_plot([(0.0, 1.0)]).line == ""
    assert line_plot([(0.0, 0.0), (1.0, 0.0)]).line == "M0,119L600,119"
