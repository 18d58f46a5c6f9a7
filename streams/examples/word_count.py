"""Word count, as in Kafka's tutorial: reads lines, writes each word with its count.

A session, in three terminals (or with the console tools of any Kafka):

    odradek broker
    python -m odradek.streams.examples.word_count

    kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic streams-plaintext-input
    > all streams lead to kafka
    > hello kafka streams

    kafka-console-consumer.sh --bootstrap-server 127.0.0.1:9092 --topic streams-wordcount-output --from-beginning \\
        --property print.key=true \\
        --property value.deserializer=org.apache.kafka.common.serialization.LongDeserializer
    all      1
    streams  1
    lead     1
    to       1
    kafka    1
    hello    1
    kafka    2
    streams  2

With `--windows 5s` every five seconds have their own counts, and the key contains the window: [kafka@5000/10000]. These
counts are in the topic streams-wordcount-windowed-output. The application is another one as well
(streams-wordcount-5000ms), since the two kinds of state differ.

Streams, topics, names and bytes are those of Java's WordCountDemo. ctrl-C ends it; started again, it continues
counting.
"""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from typing import Final

from odradek.streams import LONG, STRING, Consumed, Grouped, Produced, StreamsBuilder, TimeWindows, Topology
from odradek.streams.examples.running import configuration, make_topics, parser, run

INPUT: Final = "streams-plaintext-input"
OUTPUT: Final = "streams-wordcount-output"
WINDOWED_OUTPUT: Final = "streams-wordcount-windowed-output"
APPLICATION: Final = "streams-wordcount"
CONFIG: Final = {"statestore.cache.max.bytes": 0}  # emit every count; a cache would drop intermediate ones

_NO_WORD = re.compile(r"\W+", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def words_of(line: str) -> list[str]:
    """The words of a line, split as Java's `toLowerCase().split("\\\\W+")` does."""
    words = _NO_WORD.split(line.lower())
    if len(words) > 1:
        while words and not words[-1]:
            words.pop()
    return words


def show(word: str, count: int) -> None:
    """Print a count."""
    print(f"{word}\t{count}", flush=True)


def topology(window: timedelta | None = None) -> Topology:
    """Count all words forever, or for each window separately."""
    builder = StreamsBuilder()
    words = (
        builder.stream(INPUT, Consumed(STRING, STRING))
        .flat_map_values(words_of)
        .group_by(lambda key, word: word, Grouped(STRING, STRING))
    )
    if window is None:
        counts = words.count().to_stream()
    else:
        windows = TimeWindows.of_size_with_no_grace(window)
        counts = words.windowed_by(windows).count().to_stream(lambda windowed, count: str(windowed))
    counts.peek(show).to(output(window), Produced(STRING, LONG))
    return builder.build()


def output(window: timedelta | None) -> str:
    """The topic of the counts: windowed keys and bare words are not in one topic."""
    return OUTPUT if window is None else WINDOWED_OUTPUT


def application_id(window: timedelta | None) -> str:
    """The default application.id. Its changelog has one format: windows of another length are another application."""
    return APPLICATION if window is None else f"{APPLICATION}-{window // timedelta(milliseconds=1)}ms"


def duration(text: str) -> timedelta:
    """Read "5s". Raises ValueError."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h)", text)
    if found is None or not int(found[1]):
        raise ValueError(text)
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    options = parser(__doc__, APPLICATION)
    options.add_argument(
        "--windows",
        type=duration,
        metavar="5s",
        help=f"count for each such time by itself (ms, s, m, h); the application is then {APPLICATION}-5000ms",
    )
    options.set_defaults(application_id=None)
    chosen = options.parse_args(arguments)
    chosen.application_id = chosen.application_id or application_id(chosen.windows)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [INPUT, output(chosen.windows)])
    return run(topology(chosen.windows), configuration(chosen, CONFIG), chosen)


if __name__ == "__main__":
    sys.exit(main())
