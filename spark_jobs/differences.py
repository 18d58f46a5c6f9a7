"""Compares two copies of the same records, on data frames alone, for `reconcile`.

Both sides have the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
timestampType, headers.
Kafka guarantees an order within a partition and gives each record an offset there. A record of the right side is
compared with the record of the left side of which it is a copy. One of three rules finds that record:

- by `offset`: the same topic, partition and offset. For an archive, or a log that was copied byte for byte.
- by `origin`: a header of the copy names its source (`odradek.spark_jobs.origin`). For a mirror, a replay.
- by `content`: nothing names it. The n-th record of some content in a partition belongs to the n-th of the same content
  there. Two records without a partner between the same two neighbors count as one record with changed content.

Contents are compared by a 128-bit hash of key, value, headers and timestamp; null is not the same as empty. Where the
broker sets the time of a copy (message.timestamp.type=LogAppendTime), the time in the header of the copy counts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from odradek.spark_jobs import origin

Match = Literal["offset", "origin", "content"]
MATCHES: Final[tuple[Match, ...]] = ("offset", "origin", "content")
PARTS: Final = ("key", "value", "headers", "timestamp")
"""The compared parts of a record."""
LOSS, DUPLICATE, CORRUPTION, REORDERING = "loss", "duplicate", "corruption", "reordering"
MISPLACED, UNEXPECTED = "misplaced", "unexpected"
KINDS: Final = (LOSS, DUPLICATE, CORRUPTION, REORDERING, MISPLACED, UNEXPECTED)
"""The kinds of differences.

- loss: a record of the left side that is not on the right
- duplicate: a copy beside the first one
- corruption: a copy with another content
- reordering: the first copy of a record comes after that of a later one; by `offset`, contents have changed places
- misplaced: a copy in another partition than that of its record (`origin` only: otherwise it is a loss)
- unexpected: a record of the right side that is a copy of nothing
"""
LOG_APPEND_TIME: Final = 1
"""timestampType where the time is the broker's."""
_PLACE: Final = ("topic", "partition", "offset")
_FOUND: Final = ("found_topic", "found_partition", "found_offset")
_EVERYTHING_BEFORE: Final = (Window.unboundedPreceding, -1)


def differences(left: DataFrame, right: DataFrame, match: Match, ignore: Collection[str] = ()) -> DataFrame:
    """Every difference of `right` from `left`: a row with kind, the place in `left`, and the place in `right`.

    The columns are kind, topic, partition, offset, found_topic, found_partition, found_offset; null means unknown.
    A record can differ in several ways and has a row for each. `ignore` names PARTS that are not compared.
    By `offset` and by `content` topics must have the same names on both sides. Raises ValueError for other names.
    """
    return differences_of_prints(*prints(left, right, match, ignore), match)


def prints(
    left: DataFrame, right: DataFrame, match: Match, ignore: Collection[str] = ()
) -> tuple[DataFrame, DataFrame]:
    """The compared data of each side: a row for each record, with its place and the hash of its content.

    Raises ValueError as `differences` does.
    """
    unknown = sorted(set(ignore) - set(PARTS))
    if unknown or match not in MATCHES:
        raise ValueError(f"{', '.join(unknown) or match} is not one of {', '.join(PARTS if unknown else MATCHES)}")
    ours = left.select(*_PLACE, _print_of(ignore).alias("print"))
    if match == "content":
        return ours, right.select(*_found(), _print_of(ignore).alias("found_print"))
    named = _origin() if match == "origin" else f.struct(*_PLACE)
    of_copy = match == "origin"
    return ours, right.select(named.alias("named"), *_found(), _print_of(ignore, of_copy=of_copy).alias("found_print"))


def differences_of_prints(ours: DataFrame, theirs: DataFrame, match: Match) -> DataFrame:
    """The rows of `differences`, from what `prints` returns for the same `match`."""
    return _by_content(ours, theirs) if match == "content" else _by_identity(ours, theirs)


def _found() -> list[Column]:
    return [f.col(name).alias(found) for name, found in zip(_PLACE, _FOUND, strict=True)]


def _origin() -> Column:
    return origin.place_of(f.col("headers"))


def _print_of(ignore: Collection[str], *, of_copy: bool = False) -> Column:
    """The hash of the content, without origin headers; with `of_copy` the original time replaces the broker's time."""
    parts: list[Column] = []
    for name in PARTS:
        column = f.col(name)
        if name in ignore:
            continue
        if name == "headers":
            parts.append(origin.once(origin.without(column), _headers))
        elif name == "timestamp":
            shown = f.unix_millis(column)
            if of_copy:
                appended = f.col("timestampType") == LOG_APPEND_TIME
                shown = f.coalesce(f.when(appended, origin.timestamp_ms_of(f.col("headers"))), shown)
            parts += [shown.isNull(), shown]
        else:
            parts += [column.isNull(), f.length(column), column]
    return origin.once(
        f.struct(*parts),
        lambda content: f.struct(f.xxhash64(f.lit(0), content).alias("a"), f.xxhash64(f.lit(1), content).alias("b")),
    )


def _headers(kept: Column) -> Column:
    """Spark's hashes skip null values, so a flag before each value states whether it is null."""
    return f.struct(f.size(kept), f.transform(kept, lambda h: f.struct(h.key, h.value.isNull(), h.value)))


# ---- by offset, by origin


def _by_identity(ours: DataFrame, theirs: DataFrame) -> DataFrame:
    """In the right side's rows, `named` is the record of which the row is a copy."""
    copies = Window.partitionBy("named").orderBy(*_FOUND, "found_print")
    first = f.col("copy") == 1
    earlier = Window.partitionBy("found_topic", "found_partition", "named.topic", "named.partition").orderBy(
        "found_offset"
    )
    behind = f.max(f.when(first, f.col("named.offset"))).over(earlier.rowsBetween(*_EVERYTHING_BEFORE))
    theirs = theirs.withColumn("copy", f.row_number().over(copies)).withColumn(
        "late", f.coalesce(first & (f.col("named.offset") < behind), f.lit(False))
    )
    both = ours.withColumn("there", f.lit(True)).join(
        theirs.withColumn("named_topic", f.col("named.topic")),
        (f.col("topic") == f.col("named_topic"))
        & (f.col("partition") == f.col("named.partition"))
        & (f.col("offset") == f.col("named.offset")),
        "full_outer",
    )
    is_copy, is_record = f.col("found_topic").isNotNull(), f.col("there").isNotNull()
    kinds = {
        LOSS: ~is_copy,
        UNEXPECTED: ~is_record,
        DUPLICATE: is_copy & is_record & ~first,
        CORRUPTION: is_copy & is_record & (f.col("print") != f.col("found_print")),
        REORDERING: is_copy & is_record & f.col("late"),
        MISPLACED: is_copy & is_record & first & (f.col("partition") != f.col("found_partition")),
    }
    named = [f.coalesce(f.col(name), f.col(f"named.{name}")).alias(name) for name in _PLACE]
    rows = both.select(
        f.explode(f.array_compact(f.array(*(f.when(holds, f.lit(kind)) for kind, holds in kinds.items())))).alias(
            "kind"
        ),
        *named,
        *_FOUND,
        "print",
        "found_print",
    )
    return _changed_places(rows).select("kind", *_PLACE, *_FOUND)


def _changed_places(rows: DataFrame) -> DataFrame:
    """Turns the corruption of records that exchanged contents within a partition into reordering."""
    corrupt = f.col("kind") == CORRUPTION
    as_found = f.struct(f.lit(True).alias("found"), f.col("found_print").alias("print"))
    as_was = f.struct(f.lit(False).alias("found"), f.col("print").alias("print"))
    one = f.struct(f.lit(True).alias("found"), f.lit(None).cast("struct<a:bigint,b:bigint>").alias("print"))
    shown = rows.withColumn("told", f.explode(f.when(corrupt, f.array(as_found, as_was)).otherwise(f.array(one))))
    # Groups the rows by content; the offset spreads those that have no content to be compared.
    same = Window.partitionBy("topic", "partition", "told.print", f.when(f.col("told.print").isNull(), f.col("offset")))
    elsewhere = f.max(~f.col("told.found") & corrupt).over(same)
    return (
        shown.withColumn("kind", f.when(corrupt & elsewhere, f.lit(REORDERING)).otherwise(f.col("kind")))
        .where(f.col("told.found"))
        .drop("told")
        .distinct()
    )


# ---- by content


def _by_content(ours: DataFrame, theirs: DataFrame) -> DataFrame:
    ours = ours.withColumn("number", _number("topic", "partition", "print", by="offset"))
    theirs = theirs.withColumn("number", _number("found_topic", "found_partition", "found_print", by="found_offset"))
    both = ours.join(
        theirs.withColumnRenamed("number", "found_number"),
        (f.col("topic") == f.col("found_topic"))
        & (f.col("partition") == f.col("found_partition"))
        & (f.col("print") == f.col("found_print"))
        & (f.col("number") == f.col("found_number")),
        "full_outer",
    )
    partition = [
        f.coalesce(f.col("topic"), f.col("found_topic")).alias("in_topic"),
        f.coalesce(f.col("partition"), f.col("found_partition")).alias("in_partition"),
    ]
    content = Window.partitionBy("in_topic", "in_partition", "any_print")
    rows = both.select(
        *partition,
        f.coalesce(f.col("print"), f.col("found_print")).alias("any_print"),
        *_PLACE,
        *_FOUND,
    ).withColumn("known", f.max(f.col("offset").isNotNull()).over(content))
    return _aligned(rows).select("kind", *_PLACE, *_FOUND)


def _number(*names: str, by: str) -> Column:
    return f.row_number().over(Window.partitionBy(*names).orderBy(by))


def _aligned(rows: DataFrame) -> DataFrame:
    """Aligns the rows: those with a partner are in order, those without one lie side by side in the gaps."""
    here, there = f.col("offset").isNotNull(), f.col("found_offset").isNotNull()
    matched = here & there
    before_here = Window.partitionBy("in_topic", "in_partition").orderBy("offset").rowsBetween(*_EVERYTHING_BEFORE)
    before_there = (
        Window.partitionBy("in_topic", "in_partition").orderBy("found_offset").rowsBetween(*_EVERYTHING_BEFORE)
    )
    offset_of_matched = f.when(matched, f.col("offset"))
    rows = (
        rows.withColumn("latest", f.max(offset_of_matched).over(before_there))
        .withColumn("gap_there", f.last(offset_of_matched, ignorenulls=True).over(before_there))
        .withColumn("gap_here", f.last(offset_of_matched, ignorenulls=True).over(before_here))
        .withColumn(
            "kind",
            f.when(matched & (f.col("offset") < f.col("latest")), f.lit(REORDERING))
            .when(~there, f.lit(LOSS))
            .when(~here & f.col("known"), f.lit(DUPLICATE))
            .when(~here, f.lit(UNEXPECTED)),
        )
        .where(f.col("kind").isNotNull())
        .withColumn("gap", f.coalesce(f.when(here, f.col("gap_here")).otherwise(f.col("gap_there")), f.lit(-1)))
    )
    in_gap = Window.partitionBy("in_topic", "in_partition", "kind", "gap").orderBy("offset", "found_offset")
    beside = Window.partitionBy("in_topic", "in_partition", "pairs", "gap", "rank")
    rows = rows.withColumn("pairs", f.col("kind").isin(LOSS, UNEXPECTED)).withColumn(
        "rank", f.row_number().over(in_gap)
    )
    for name in _FOUND:
        other = f.max(f.when(f.col("kind") == UNEXPECTED, f.col(name))).over(beside)
        rows = rows.withColumn(name, f.when(f.col("pairs"), other).otherwise(f.col(name)))
    paired = f.col("pairs") & (f.size(f.collect_set("kind").over(beside)) == 2)
    return (
        rows.withColumn("paired", paired)
        .where(~(f.col("paired") & (f.col("kind") == UNEXPECTED)))
        .withColumn("kind", f.when(f.col("paired"), f.lit(CORRUPTION)).otherwise(f.col("kind")))
    )
