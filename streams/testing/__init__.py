"""Tests of stream applications: a driver with one clock, golden topologies, and properties for hypothesis.

The pytest plugin of Odradek has fixtures for the first two, `streams_driver` and `assert_topology_matches`
(docs/testing.md). The strategies and properties need the package hypothesis (extra `testing`), which is imported when
one of them is called.
"""

from odradek.streams.testing.driver import DriverTopic, StreamsDriver
from odradek.streams.testing.golden import GoldenTopologyError, compare_with_golden
from odradek.streams.testing.properties import (
    no_state_leak,
    same_result_despite_disorder,
    same_result_for_any_interleaving,
    tables,
)
from odradek.streams.testing.strategies import interleavings, records, values_of

__all__ = [
    "DriverTopic",
    "GoldenTopologyError",
    "StreamsDriver",
    "compare_with_golden",
    "interleavings",
    "no_state_leak",
    "records",
    "same_result_despite_disorder",
    "same_result_for_any_interleaving",
    "tables",
    "values_of",
]
