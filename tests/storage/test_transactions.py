"""Transactions of one log against a model that stores only the list of written batches.

The model checks the records readable with read_committed (the last stable offset), the aborted transactions that a read
returns, which producers may begin a transaction, and that a restart, a truncation and a follower give the same state.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.protocol.batch import control_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.log import Log
from odradek.storage.producers import OPEN, Verification, encode_snapshot
from tests.storage.batches import NOW_MS, batch, open_log

CONFIG = LogConfig(segment_bytes=700)
PRODUCERS = (1, 2, 3)


class Written(NamedTuple):
    """One batch of the model's log; `commit` is None for data."""

    first: int
    last: int
    producer_id: int
    epoch: int = -1
    commit: bool | None = None


class Span(NamedTuple):
    """A transaction: where it starts and, once it has one, where its marker stands."""

    producer_id: int
    first: int
    marker: int | None = None
    commit: bool = False


class TransactionalLog(RuleBasedStateMachine):
    """Producers, markers, verifications by the coordinator, and all events that make a log forget and rebuild state."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="odradek-transactions-"))
        self.logs = 0
        self.written: list[Written] = []
        self.high_watermark = 0
        self.questions: dict[int, Verification] = {}

    @initialize()
    def begin(self) -> None:
        self.log = self.fresh()

    def fresh(self) -> Log:
        self.logs += 1
        return open_log(self.folder / str(self.logs) / "topic-0", CONFIG)

    def teardown(self) -> None:
        self.log.close_files()
        shutil.rmtree(self.folder)

    # ---- the model

    @property
    def end(self) -> int:
        return self.written[-1].last + 1 if self.written else 0

    def spans(self) -> list[Span]:
        """Every transaction, in the order of their starts."""
        found: list[Span] = []
        open_now: dict[int, int] = {}
        for each in self.written:
            if each.producer_id < 0:
                continue
            if each.commit is None:
                if each.producer_id not in open_now:
                    open_now[each.producer_id] = len(found)
                    found.append(Span(each.producer_id, each.first))
            elif each.producer_id in open_now:
                place = open_now.pop(each.producer_id)
                found[place] = Span(each.producer_id, found[place].first, each.first, each.commit)
        return found

    def is_open(self, producer_id: int) -> bool:
        return any(span.producer_id == producer_id and span.marker is None for span in self.spans())

    def next_of(self, producer_id: int) -> tuple[int, int]:
        """The valid epoch and sequence of this producer."""
        epoch, sequence = 0, 0
        for each in self.written:
            if each.producer_id == producer_id:
                if each.epoch != epoch:
                    epoch, sequence = each.epoch, 0
                if each.commit is None:
                    sequence += each.last - each.first + 1
        return epoch, sequence

    # ---- events

    producers = st.sampled_from(PRODUCERS)
    counts = st.integers(1, 3)

    @rule(count=counts)
    def send_plain(self, count: int) -> None:
        appended = self.log.append(batch(count), leader_epoch=0, now_ms=NOW_MS)
        assert appended.first_offset == self.end
        self.written.append(Written(self.end, self.end + count - 1, -1))

    @rule(producer_id=producers)
    def ask(self, producer_id: int) -> None:
        epoch, sequence = self.next_of(producer_id)
        verification = self.log.producers.begin_verification(producer_id, epoch, sequence, False, NOW_MS)
        assert (verification is OPEN) == self.is_open(producer_id)
        if verification is not OPEN:
            assert self.questions.setdefault(producer_id, verification) is verification

    @rule(producer_id=producers, count=counts)
    def send_confirmed(self, producer_id: int, count: int) -> None:
        self.ask(producer_id)
        self.send(producer_id, count)

    @rule(producer_id=producers, commit=st.booleans(), count=counts)
    def run_transaction(self, producer_id: int, commit: bool, count: int) -> None:
        self.send_confirmed(producer_id, count)
        self.mark(producer_id, commit, bump=False)

    @rule()
    def replicate_all(self) -> None:
        self.high_watermark = self.end
        self.log.producers.on_high_watermark(self.high_watermark)

    @rule(producer_id=producers, count=counts)
    def send(self, producer_id: int, count: int) -> None:
        epoch, sequence = self.next_of(producer_id)
        verification = self.questions.pop(producer_id, OPEN)
        data = batch(count, producer=(producer_id, epoch, sequence), transactional=True)
        if verification is OPEN and not self.is_open(producer_id):
            assert self.refusal(data, verification) is ErrorCode.INVALID_TXN_STATE
            return
        assert self.refusal(data, verification) is None
        self.written.append(Written(self.end, self.end + count - 1, producer_id, epoch))

    @rule(producer_id=producers, commit=st.booleans(), bump=st.booleans())
    def mark(self, producer_id: int, commit: bool, bump: bool) -> None:
        late = self.questions.pop(producer_id, None)
        epoch, sequence = self.next_of(producer_id)
        marker = control_batch(
            commit=commit,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=epoch + bump,
            timestamp_ms=NOW_MS,
        )
        self.log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
        self.written.append(Written(self.end, self.end, producer_id, epoch + bump, commit))
        if late is not None:
            data = batch(1, producer=(producer_id, epoch, sequence), transactional=True)
            # Otherwise it would begin a transaction that no marker ends.
            assert self.refusal(data, late) is ErrorCode.INVALID_TXN_STATE

    def refusal(self, data: memoryview, verification: Verification) -> ErrorCode | None:
        """Append a batch of a client; returns the reason of a refusal."""
        try:
            self.log.append(data, leader_epoch=0, now_ms=NOW_MS, verification=verification)
        except KafkaError as refused:
            return refused.code
        return None

    @precondition(lambda self: self.high_watermark < self.end)
    @rule(data=st.data())
    def replicated(self, data: st.DataObject) -> None:
        ends = [each.last + 1 for each in self.written if each.last >= self.high_watermark]
        self.high_watermark = data.draw(st.sampled_from(ends))
        self.log.producers.on_high_watermark(self.high_watermark)

    @precondition(lambda self: self.high_watermark < self.end)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        cut = data.draw(
            st.sampled_from([each.first for each in self.written if each.first >= self.high_watermark][-3:])
        )
        self.log.truncate_to(cut, now_ms=NOW_MS)
        self.written = [each for each in self.written if each.last < cut]
        self.questions.clear()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        before = self.state()
        directory = self.log.directory
        if clean:
            self.log.close(now_ms=NOW_MS)
        else:
            self.log.close_files()
        self.log = open_log(directory, CONFIG, clean=clean, high_watermark=self.high_watermark)
        self.log.producers.on_high_watermark(self.high_watermark)
        assert self.state() == before
        self.questions.clear()

    @rule()
    def fail_over(self) -> None:
        """A follower that has copied everything continues as the leader."""
        follower = self.fresh()
        while follower.end_offset < self.log.end_offset:
            part = self.log.read(follower.end_offset, 400).records
            follower.append_replicated(part if isinstance(part, bytes) else part.read(), now_ms=NOW_MS)
        follower.producers.on_high_watermark(self.high_watermark)
        before = self.state()
        self.log.close_files()
        self.log = follower
        assert self.state() == before
        self.questions.clear()

    def state(self) -> bytes:
        return encode_snapshot(sorted(self.log.producers.active(), key=lambda each: each.producer_id))

    # ---- invariants

    @invariant()
    def nothing_undecided_is_stable(self) -> None:
        spans = self.spans()
        undecided = [span.first for span in spans if span.marker is None]
        unreplicated = [span.first for span in spans if span.marker is not None and span.marker >= self.high_watermark]
        self.log.producers.on_high_watermark(self.high_watermark)  # as a replica does before the verification
        assert self.log.first_unstable_offset == min(undecided + unreplicated, default=None)

    @invariant()
    def every_aborted_transaction_is_named(self) -> None:
        aborted = [span for span in self.spans() if span.marker is not None and not span.commit]
        for start in range(0, self.end, 4):
            for end in (start + 1, (start + self.end) // 2, self.end):
                if end <= start:
                    continue
                found = self.log.search.aborted_transactions(start, end)
                assert len(found) == len(set(found))
                needed = {
                    (span.producer_id, span.first)
                    for span in aborted
                    if span.marker is not None and span.marker >= start and span.first < end
                }
                assert set(found) == needed


TestTransactionalLog = TransactionalLog.TestCase
TestTransactionalLog.settings = settings(max_examples=35, stateful_step_count=40, deadline=None)
