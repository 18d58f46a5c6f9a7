"""Seeds that once caused a violation, and the reasons. Each runs in the tests.

A seed means the same only as long as the draws stay the same. When the simulation changes its draws, the seeds stay as
samples, and the tests named beside them hold the rule that each seed showed.
"""

from __future__ import annotations

SEEDS: dict[int, str] = {
    57: "a control request for the process before was applied before the new process had registered (KIP-380)",
    167: "a loss of power took the end of a segment and left the next one: a hole in the log",
    224: "a fetcher that had backed off with nothing to fetch never resumed",
    274: "leaving a leader whose idle loop had been ended raised KeyError in the middle of a control request",
    1888: "a loss of power took a whole segment, whose name had not been synced",
    2174: "an ISR was written over the registration of a member that had just come back with less",
    11234: "a follower received the high watermark only together with a divergence, and ignored it",
    11440: "a request to the registry was lost with a cut that no process detected",
    34924: "a controller epoch that ended within its first event left a starting broker waiting for ever",
    35000: "the same, with another broker",
    44390: "the same, after six restarts",
    700094: "a loss of power restored records that a follower had truncated, beside a segment with the same offsets",
    300935: "records that a follower had truncated took the place of later ones, after a loss of power took only these",
    449: "a check: a broker without new metadata rejected an EndTxn from its old state, as a coordinator of Kafka does",
    100127: "a check: a leader that had been replaced rejected a batch by its own log, as a leader of Kafka does",
    1543: "a replaced coordinator rejected a request from its old state when its own append failed",
    11822: "a follower did not receive in a new epoch the high watermark that it had received in the old one",
}

COMPACTION_SEEDS: dict[int, str] = {
    415: "a loss of power made a gap in a segment that had been found clean before it was durable",
    318: "the marker that compaction had emptied and kept for its epoch was skipped when the log was read again",
    17: "a restarted leader read a high watermark below its compacted end, so a consumer saw neither record",
    920005: "after a restart a transaction counted as stable whose marker the high watermark had not passed",
    930084: "a follower lacked a last sequence that compaction had removed for the sake of a batch not replicated yet",
}
"""The same for the simulation with compaction. The mutants show again what its first seeds found."""

COMPACTION_SEEDS_WITH_DISKS: dict[int, str] = {17: COMPACTION_SEEDS[17]}
"""The same for disks that fail. The tests beside: tests/broker/test_high_watermarks.py, for 920005
tests/storage/test_transactions.py, for 930084 tests/storage/test_compaction.py.
"""
