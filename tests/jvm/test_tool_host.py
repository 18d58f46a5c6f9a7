"""The JVM that stays: a tool in it behaves as in a JVM of its own."""

from __future__ import annotations

import pytest

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from tests.jvm.process import Result, ToolError, run_java
from tests.jvm.tool_host import Host, Hosts
from tests.jvm.tools import VERSIONS, main_class, run_tool, tool_command

pytestmark = pytest.mark.jvm


def in_its_own_jvm(version: str, tool: str, arguments: list[str]) -> Result:
    return run_java(tool_command(version, tool, arguments), timeout_s=60, check=False)


def without_traces(result: Result) -> Result:
    """Traces end in the host's main rather than in the tool's."""
    lines = result.stderr.splitlines(keepends=True)
    return result._replace(stderr="".join(line for line in lines if not line.startswith("\tat ")))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("arguments", [[], ["--version"], ["--bootstrap-server", "x:1", "--no-such-option"]])
def test_status_and_output_are_those_of_a_process(version: str, arguments: list[str]) -> None:
    expected = in_its_own_jvm(version, "kafka-topics", arguments)
    for _ in range(2):
        assert without_traces(run_tool(version, "kafka-topics", arguments, check=False)) == without_traces(expected)


def test_a_tool_that_is_not_done_in_time_is_ended_and_the_next_one_runs() -> None:
    hosts = Hosts()
    try:
        nowhere = ["--bootstrap-server", f"127.0.0.1:{free_port()}", "--topic", "t"]
        consumer = main_class("3.9.2", "kafka-console-consumer")
        with pytest.raises(ToolError, match="not done after 3 s"):
            hosts.run("3.9.2", consumer, nowhere, "", None, timeout_s=3)
        topics = main_class("3.9.2", "kafka-topics")
        assert hosts.run("3.9.2", topics, ["--version"], "", None, timeout_s=60).stdout == "3.9.2\n"
    finally:
        hosts.end()


def test_a_failure_contains_the_output_of_the_tool() -> None:
    with pytest.raises(ToolError, match=r"exit status 1: kafka-topics --create\n(.*\n)*.*bootstrap-server"):
        run_tool("3.9.2", "kafka-topics", ["--create"])


@pytest.mark.parametrize("version", ["3.9.2", "4.3.0"])
def test_a_host_closes_the_admin_client_that_a_tool_leaves_open(odradek_broker: BrokerProcess, version: str) -> None:
    host = Host(version)
    try:
        listed = ["--bootstrap-server", odradek_broker.bootstrap, "list"]
        assert host.run(main_class(version, "kafka-transactions"), listed, "", None, 60).status == 0
        assert host.usable
    finally:
        host.end()
