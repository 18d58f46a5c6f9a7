"""The forms for ACLs, on Odradek and on Apache Kafka 3.9.2: kafka-acls sees what they change, and nothing changes
without the option and without the token of the session.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from odradek.console.workspace import ClusterWorkspace
from odradek.top.access_report import access_report
from tests.commands.running import Running, stock_acls
from tests.console.refusals import check_refusals, console_of
from tests.console.workspaces import token_of
from tests.security.authorization_oracle import RunningPair
from tests.top.panes import context_of, table_of

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

ACCESS = "/access"


@pytest.mark.parametrize("side", ["odradek", "kafka"])
def test_acls_are_added_and_removed(side: str, authorized: RunningPair, name: str) -> None:
    running = Running(f"127.0.0.1:{authorized.ports.ours if side == 'odradek' else authorized.ports.theirs}")
    rule = {
        "principal": f"User:{name}",
        "permission": "DENY",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": name,
        "pattern_type": "PREFIXED",
        "host": "192.0.2.7",
    }
    shown = ("TOPIC", name, "PREFIXED", f"User:{name}", "192.0.2.7", "READ", "DENY")
    before = stock_acls(running)
    with console_of(running.bootstrap, allow_changes=True) as console:

        def sent(path: str, **changed: str) -> Any:
            return console.post(path, data={"csrf": token_of(console, ACCESS), **rule, **changed})

        check_refusals(running.bootstrap, console, ACCESS, f"{ACCESS}/acls/add", rule)
        for wrong in ({"principal": ""}, {"resource_name": " "}, {"operation": "DANCE"}, {"principal": "absent"}):
            answer = sent(f"{ACCESS}/acls/add", **wrong)
            assert answer.status_code == (502 if wrong == {"principal": "absent"} else 400), (wrong, answer.text)
        assert stock_acls(running) == before
        assert "Added: " in sent(f"{ACCESS}/acls/add").text
        assert stock_acls(running) - before == {shown}
        page = console.get(ACCESS, params={"q": name}).text
        assert ("1–1 of 1" in page, f"User:{name}" in page) == (True, True)
        with contextlib.closing(ClusterWorkspace(running.bootstrap, {})) as workspace:
            (row,) = table_of(access_report(context_of(workspace)), "ACLs", name)
        assert row == [f"User:{name}", "deny", "read", "topic", name, "prefixed", "192.0.2.7"], "in odradek top"
        check_refusals(running.bootstrap, console, ACCESS, f"{ACCESS}/acls/remove", rule)
        absent = sent(f"{ACCESS}/acls/remove", host="*")
        assert (absent.status_code, "There is no ACL User:" in absent.text) == (404, True)
        for wildcard in ({"operation": "ANY"}, {"pattern_type": "MATCH"}, {"permission": "ANY"}):
            assert sent(f"{ACCESS}/acls/remove", **wildcard).status_code == 400, "it could remove several"
        assert stock_acls(running) - before == {shown}
        assert "Removed: " in sent(f"{ACCESS}/acls/remove").text
        assert stock_acls(running) == before
