"""C extensions: finds those that this installation lacks, where the pure-Python fallbacks run.

An installation without a compiler has no extension. One that was built from older sources may lack functions. The
results are equal in both cases, but the work of each record is many times slower.
"""

from __future__ import annotations

from odradek.protocol import chain, constructors, frames, legacy_walks, log_append, offset_map, programs, reads, records


def missing_extensions() -> dict[str, str]:
    """The extensions that are not in use: name -> the work that runs in Python instead."""
    in_python = chain.scan is chain.scan_in_python or records.write_records is records.write_records_in_python
    fallbacks = (
        ("_chain", "produce", in_python),
        ("_offset_map", "compaction", offset_map.OffsetMap is offset_map.OffsetMapInPython),
        ("_legacy", "message-format-conversion", legacy_walks.survey is legacy_walks.survey_in_python),
        ("_codec", "requests", programs.codecs is programs.generated),
        ("_constructors", "messages", constructors.install is constructors.in_python),
        ("_frames", "small-requests", frames.frame_handler is frames.in_python),
        ("_log_append", "appends", log_append.append_usual is log_append.not_in_c),
        ("_reads", "connections", reads.install is reads.in_python),
    )
    return {name: work for name, work, runs in fallbacks if runs}
