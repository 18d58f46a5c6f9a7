"""The same tool runs against Odradek and against Apache Kafka 3.9.2; both runs have to print the same.

A scenario is a function that runs stock tools on one broker. It runs on both, and the two transcripts are compared line
by line. Values that no two brokers share (ports, folders, ids, times) are replaced by a word first, and so is the text
of an error message: the broker's error code, of which the tool makes the exception, is compared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from odradek.broker_process import BrokerProcess
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool

# The properties of tests.jvm.kafka's broker, for Odradek's.
SAME_PROPERTIES: Final = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
}

_UNSHARED: Final = (
    (re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] "), ""),
    (re.compile(r"(TopicId: )\S{22}"), r"\1(topic id)"),
    # Only a broker with DescribeTopicPartitions (KIP-966), such as Kafka with KRaft, returns that there are no such
    # replicas.
    (re.compile(r"\tElr: .*"), ""),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "(uuid)"),
    (re.compile(r"\badminclient-\d+"), "(client)"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "(milliseconds)"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.:,]\d{3}"), "(time)"),
    (re.compile(r"(?<=\S)  +"), " "),  # the width of a column follows from the longest cell, such as an address
    (re.compile(r"[ \t]+$"), ""),
    (re.compile(r"(Valid states are: ).*"), r"\1(states)"),  # in the order of a set, which differs between JVMs
)
_REFUSAL: Final = re.compile(r"org\.apache\.kafka\.common\.errors\.\w+: (.+)")
# Lines of an exception's stack trace in the tool, and output of tools that share a JVM, one after the other.
_NOISE: Final = re.compile(
    r"\s+at \S+\(|\s*\.\.\. \d+ more|(ToolHost\$Exited: )?the tool has ended"
    r"|.*AppInfoParser - Error registering AppInfo mbean|javax\.management\.InstanceAlreadyExistsException"
)


class Sides(NamedTuple):
    """The two brokers."""

    ours: BrokerProcess
    kafka: Kafka


@contextmanager
def both(folder: Path, kafka: Kafka, overrides: Mapping[str, str] | None = None) -> Iterator[Sides]:
    """A broker of Odradek with the settings of `kafka`, beside it."""
    with BrokerProcess(folder, {**SAME_PROPERTIES, **(overrides or {})}) as ours:
        yield Sides(ours, kafka)


class Side(Protocol):
    @property
    def bootstrap(self) -> str: ...

    @property
    def data_dir(self) -> Path: ...


class Tools:
    """Runs the tools of one release on one broker and keeps their output.

    `broker` is the one that the tools connect to; `hidden` are further texts to be replaced by a word.
    """

    def __init__(self, broker: Side, version: str, hidden: Mapping[str, str] | None = None) -> None:
        self.broker = broker
        self.version = version
        self._hidden = {
            **(hidden or {}),
            broker.bootstrap: "(bootstrap)",
            broker.bootstrap.rpartition(":")[2]: "(port)",
            str(broker.data_dir): "(data)",
        }
        self.transcript: list[str] = []

    def __call__(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        unordered: bool = False,
        about: str = "",
        bootstrap: str | None = None,
    ) -> list[str]:
        """Runs a tool to its end, with any exit status, and returns its lines in the form that is compared.

        `unordered` is for tools that print in the order of a hash table. With `about` only lines that hold this text
        count, where a broker has more than this scenario created. `bootstrap` names the option for the address where it
        has another name; "" is for none.
        """
        where = [] if bootstrap == "" else [bootstrap or "--bootstrap-server", self.broker.bootstrap]
        result = run_tool(self.version, tool, [*where, *arguments], stdin=stdin, check=False)
        refusals = sorted(set(_REFUSAL.findall(result.stdout + result.stderr)), key=len, reverse=True)
        lines = [*self._shared(result.stdout, refusals), *self._shared(result.stderr, refusals)]
        lines = [line for line in lines if about in line]
        shown = sorted(lines) if unordered else lines
        self.transcript.append(f"{self._replace(' '.join([tool, *arguments]))} -> {result.status}")
        self.transcript.extend(f"    {line}" for line in shown)
        return lines

    def note(self, text: str) -> None:
        """Adds a line of the scenario's own."""
        self.transcript.append(self._replace(text))

    def _shared(self, text: str, refusals: list[str]) -> Iterator[str]:
        for line in text.splitlines():
            if not line.strip() or _NOISE.match(line):
                continue
            for refusal in refusals:
                line = line.replace(refusal, "(why)")
            yield self._replace(line)

    def _replace(self, line: str) -> str:
        for text, word in self._hidden.items():
            line = line.replace(text, word)
        for pattern, word in _UNSHARED:
            line = pattern.sub(word, line)
        return line


def assert_the_same(
    sides: Sides,
    version: str,
    scenario: Callable[[Tools], None],
    hidden: Callable[[Side], Mapping[str, str]] | None = None,
) -> list[str]:
    """Runs a scenario on both brokers; the transcripts are equal. Returns the transcript, for the values in it."""
    transcripts = []
    for side in sides:
        tools = Tools(side, version, hidden(side) if hidden else None)
        scenario(tools)
        transcripts.append(tools.transcript)
    ours, expected = transcripts
    assert ours == expected, "\n" + "\n".join(
        difflib.unified_diff(expected, ours, "Apache Kafka", "Odradek", n=3, lineterm="")
    )
    return ours
