"""The command `odradek dump-log`: the options of kafka-dump-log, `--verify` and `--rescue`.

Modules that it needs are imported when it runs.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click


@click.command("dump-log")
@click.option("--files", required=True, metavar="FILE,FILE", help="Files of a log, with commas between them.")
@click.option(
    "--verify", is_flag=True, help="Check every batch of .log files, or of all in a directory; print no more."
)
@click.option(
    "--rescue",
    is_flag=True,
    help="List the readable batches of files and directories, also behind damage and in the quarantine.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="With --rescue: write the readable batches as segments into this new folder.",
)
@click.option("--print-data-log", is_flag=True, help="Print keys and values, too. Any decoder implies it.")
@click.option("--deep-iteration", is_flag=True, help="Print every record, not the batches alone.")
@click.option("--offsets-decoder", is_flag=True, help="Decode records as those of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records as those of __transaction_state.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only key and value of each record.")
@click.option("--index-sanity-check", is_flag=True, help="Run the index check of a starting broker.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes against their log without printing them.")
@click.option("--max-message-size", type=click.IntRange(1), default=5 * 1024 * 1024, show_default=True, metavar="BYTES")
@click.option("--max-bytes", type=click.IntRange(0), metavar="BYTES", help="Read no more of each log.")
def dump_log(files: str, verify: bool, rescue: bool, export: Path | None, **asked: object) -> None:
    """Print files of a log as kafka-dump-log does: .log, .index, .timeindex, .snapshot, .txnindex.

    Reads only, also beside a running broker. With --verify it prints a line for each sound file, and for a damaged one
    where its first bad byte is and why; the status is then 1. With --rescue it continues behind bad bytes.
    """
    if verify and rescue:
        raise click.UsageError("--verify and --rescue exclude each other")
    if export is not None and not rescue:
        raise click.UsageError("--export is for --rescue")
    paths = [name.strip() for name in files.split(",") if name.strip()]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # the bytes of records, in any locale
    if rescue:
        sys.exit(0 if _rescue(paths, export) else 1)
    sys.exit(0 if (_verify(paths) if verify else _dump(paths, asked)) else 1)


def _dump(paths: list[str], asked: dict[str, object]) -> bool:
    from odradek import dump_log, record_text
    from odradek.protocol.errors import ProtocolError

    decode = dump_log.plain_text
    if asked["offsets_decoder"]:
        decode = record_text.offsets_text
    elif asked["transaction_log_decoder"]:
        decode = record_text.transaction_text
    contents = bool(asked["print_data_log"]) or decode is not dump_log.plain_text
    max_size, max_bytes = asked["max_message_size"], asked["max_bytes"]
    assert isinstance(max_size, int)
    options = dump_log.DumpLogOptions(
        deep=bool(asked["deep_iteration"]) or contents,
        contents=contents,
        metadata=not asked["skip_record_metadata"],
        decode=decode,
        verify_only=bool(asked["verify_index_only"]),
        sanity_only=bool(asked["index_sanity_check"]),
        max_message_size=max_size,
        max_bytes=max_bytes if isinstance(max_bytes, int) else dump_log.NO_LIMIT,
    )
    try:
        dump_log.dump(paths, options, sys.stdout, sys.stderr)
    except (dump_log.DumpError, ProtocolError) as error:
        return _complain(str(error))
    except FileNotFoundError as error:
        return _complain(f"there is no file {error.filename}")
    except IsADirectoryError:
        return _complain("a directory can be checked with --verify, not printed")
    except PermissionError as error:
        return _complain(f"not allowed to read {error.filename}")
    except BrokenPipeError:
        raise  # the reader has closed the pipe; click ends silently
    except OSError as error:
        return _complain(f"cannot read {error.filename or paths}: {error.strerror}")
    return True


def _complain(message: str) -> bool:
    sys.stdout.flush()  # earlier output comes first
    click.echo(f"odradek: {message}", err=True)
    return False


def _rescue(paths: list[str], export: Path | None) -> bool:
    from odradek.rescue import RescueError, RescueExport, rescue

    try:
        for line in rescue(paths, RescueExport(export) if export is not None else None):
            print(line)
    except RescueError as error:
        return _complain(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        return _complain(f"cannot read or write {error.filename}: {error.strerror}")
    return True


def _verify(paths: list[str]) -> bool:
    from odradek.storage.read_files import log_files

    sound = True
    for path in paths:
        try:
            logs = log_files(path)
        except OSError as error:
            logs, problem = [], f"cannot be read: {error.strerror}"
        else:
            problem = "no log in it"
        if not logs:
            print(f"{path}: {problem}")
            sound = False
        for log in logs:
            sound = _verify_log(log) and sound
    return sound


def _verify_log(path: str) -> bool:
    from odradek.storage.reading import DamagedLog
    from odradek.storage.segment import LOG_SUFFIX
    from odradek.storage.verify import verify

    if not path.endswith(LOG_SUFFIX):
        print(f"{path}: not checked, since --verify reads {LOG_SUFFIX} files and directories that hold them")
        return False
    try:
        found = verify(path)
    except DamagedLog as error:
        print(f"{path}: damaged at byte {error.position}: {error.reason}")
    except OSError as error:
        print(f"{path}: cannot be read: {error.strerror}")
    else:
        offsets = "" if found.first_offset is None else f", offsets {found.first_offset} to {found.next_offset}"
        print(f"{path}: ok, {found.size} bytes, {found.batches} batches, {found.records} records{offsets}")
        return True
    return False
