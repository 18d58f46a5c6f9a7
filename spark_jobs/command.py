"""The command line that all jobs share, and the exit status of a job.

A job is a function of `Options`, and of the options of its own where it has some:

    @job_command("archive", example=EXAMPLE, output="Folder of the Parquet files.")
    @click.option("--codec", default="zstd", help="…")
    def command(options: Options, codec: str) -> int:
        \"\"\"Copies topics into Parquet files.\"\"\"

    def main(argv: Sequence[str] | None = None) -> int:
        return run(command, argv)

`run` returns the status of the process: 0 done, 1 the job failed, 2 wrong usage, 3 a requested topic, range or file is
missing, and any other status that the job returns. Errors are one line on stderr. Ctrl-C and SIGTERM end a job that
runs for ever: they stop it between batches, with status 0.
"""

from __future__ import annotations

import inspect
import json
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType
from typing import Any, Final, Literal

import click

from odradek.spark_jobs.client_properties import METAVAR, properties_of
from odradek.spark_jobs.errors import DONE, JobError, explained

Offsets = dict[str, dict[int, int]]
"""topic -> partition -> offset; the connector's JSON, with numbers for partitions."""
Job = Callable[..., int]
READ_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True)
class Position:
    """A position in topics: where to begin, or where to end (exclusive)."""

    kind: Literal["earliest", "latest", "time", "offsets"]
    time_ms: int = 0
    offsets: Offsets = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Position:
        """`earliest`, `latest`, a time in ISO 8601 (UTC unless it has a zone), or {"topic": {"0": 5}}.

        Raises ValueError with a message for the user.
        """
        if text in ("earliest", "latest"):
            return cls("earliest" if text == "earliest" else "latest")
        if text.lstrip().startswith("{"):
            return cls("offsets", offsets=parse_offsets(text))
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(
                f"{text!r} is not earliest, latest, a time as 2026-01-31T12:00:00, "
                'or offsets as {"topic": {"0": 5}}'
            ) from None
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls("time", time_ms=round(zoned.timestamp() * 1000))


EARLIEST: Final = Position("earliest")
LATEST: Final = Position("latest")


def parse_offsets(text: str) -> Offsets:
    """The connector's JSON of offsets, {"topic": {"0": 5}}. Raises ValueError."""
    try:
        found = json.loads(text)
        offsets = {topic: {int(n): int(at) for n, at in places.items()} for topic, places in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f'{text!r} is not offsets as {{"topic": {{"0": 5}}}} ({error})') from None
    if any(at < 0 for places in offsets.values() for at in places.values()):
        raise ValueError("offsets are not negative: use earliest or latest")
    return offsets


def offsets_json(offsets: Offsets) -> str:
    """The inverse of `parse_offsets`."""
    return json.dumps({topic: {str(n): at for n, at in sorted(places.items())} for topic, places in offsets.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that a user has set for a job. Paths are of a file system that every worker mounts."""

    job: str
    bootstrap: str
    topics: tuple[str, ...]
    checkpoint: str = ""
    start: Position = EARLIEST
    until: Position = LATEST
    once: bool = False
    interval_s: float = 0.0
    isolation: str = READ_COMMITTED
    output: str = ""
    group: str = ""
    master: str | None = None
    batch_records: int | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)

    @property
    def trigger(self) -> dict[str, Any]:
        """For DataStreamWriter.trigger: all present data and then the end, or a batch an interval."""
        return (
            {"availableNow": True} if self.once else {"processingTime": f"{round(self.interval_s * 1000)} milliseconds"}
        )

    @property
    def client(self) -> dict[str, str]:
        """Properties of Kafka's clients, by Kafka's names."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap}


def job_command(
    name: str, *, example: str, streaming: bool = True, output: str | None = None, topic: str = "Topic to read."
) -> Callable[[Job], click.Command]:
    """Makes the command of the job `name` out of a function of `Options`.

    `streaming` jobs have a checkpoint, a trigger and a group; the others read a range, from --from to --until.
    `output` is the help text of --output, which a job without one does not have. `example` ends the help page.
    """

    def decorate(job: Job) -> click.Command:
        def call(**given: Any) -> int:
            options, own = _options(name, given)
            return job(options, **own)

        call.__doc__ = (
            inspect.cleandoc(job.__doc__ or "") + "\n\n\b\n" + example.strip("\n").replace("\n\n", "\n\n\b\n")
        )
        own_parameters = getattr(job, "__click_params__", [])
        command = click.command(name, context_settings={"help_option_names": ["-h", "--help"]})(call)
        command.params = [*_parameters(name, streaming, output, topic), *reversed(own_parameters)]
        return command

    return decorate


def run(command: click.Command, argv: Sequence[str] | None = None) -> int:
    """Runs a job's command with `argv`, by default the process's; returns its exit status."""
    program = f"python -m odradek.spark_jobs.{command.name}"
    with _Stopping():
        try:
            status = command.main(list(argv) if argv is not None else None, prog_name=program, standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):
            return DONE
        except Exception as error:
            if _surprising(error):
                traceback.print_exc()
            failure = error if isinstance(error, JobError) else explained(error)
            click.echo(f"{command.name}: {failure}", err=True)
            return failure.status
    return status if isinstance(status, int) else DONE


class _Stopping:
    """Makes SIGTERM act as Ctrl-C while a job runs in the main thread; other threads cannot set signal handlers."""

    def __enter__(self) -> None:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._before = signal.signal(signal.SIGTERM, _interrupt)

    def __exit__(self, *raised: object) -> None:
        if self._main:
            signal.signal(signal.SIGTERM, self._before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _surprising(error: Exception) -> bool:
    """Whether an error is a defect of the job itself, so that its traceback is printed."""
    return not (type(error).__module__.startswith(("pyspark", "py4j")) or isinstance(error, OSError | JobError))


def _options(name: str, given: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
    own = dict(given)
    taken = {key: own.pop(key) for key in list(own) if key in _OPTION_NAMES}
    taken["group"] = taken.get("group") or f"odradek-{name}"
    return Options(job=name, **taken), own


_OPTION_NAMES: Final = frozenset(Options.__slots__)


def _parameters(name: str, streaming: bool, output: str | None, topic: str) -> list[click.Parameter]:
    found: list[click.Parameter] = [
        click.Option(["--bootstrap"], required=True, metavar="HOST:PORT,…", help="Brokers to connect to first."),
        click.Option(["--topic", "topics"], required=True, multiple=True, help=f"{topic} Repeat it for several."),
        click.Option(
            ["--from", "start"],
            default="earliest",
            show_default=True,
            metavar="WHERE",
            callback=_position,
            help='earliest, latest, a time as 2026-01-31T12:00:00 (UTC), or offsets as {"topic": {"0": 5}}.'
            + (" Used where the checkpoint is new; later runs continue from the checkpoint." if streaming else ""),
        ),
    ]
    found += (
        _streaming_parameters(name)
        if streaming
        else [
            click.Option(
                ["--until"],
                default="latest",
                show_default=True,
                metavar="WHERE",
                callback=_position,
                help="Where to end, in the same format; this position itself is not read any more.",
            )
        ]
    )
    if output is not None:
        found.append(click.Option(["--output"], required=True, metavar="PATH", help=output))
    return [
        *found,
        click.Option(
            ["--isolation"],
            type=click.Choice([READ_COMMITTED, "read_uncommitted"]),
            default=READ_COMMITTED,
            show_default=True,
            help="Whether records of transactions that are open or aborted are left out.",
        ),
        click.Option(["--master"], help="Spark's master, as spark://host:7077; without it this machine's cores."),
        click.Option(
            ["--kafka"],
            multiple=True,
            metavar=METAVAR,
            callback=properties_of,
            help="A property of Kafka's clients, as client.rack=a, or a file of them, as @client.properties, in which "
            "passwords are safe from other users. Repeat it for several.",
        ),
    ]


def _streaming_parameters(name: str) -> list[click.Parameter]:
    return [
        click.Option(
            ["--checkpoint"],
            required=True,
            metavar="FOLDER",
            help="Folder of the job's progress and state: one for each job and topic.",
        ),
        click.Option(["--once"], is_flag=True, help="Read the present records, in batches, and end."),
        click.Option(
            ["--interval", "interval_s"],
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="SECONDS",
            help="Run for ever, a batch every so many seconds; by default one after the other.",
        ),
        click.Option(
            ["--batch-records"], type=click.IntRange(min=1), help="At most so many records a batch, of all partitions."
        ),
        click.Option(
            ["--group"],
            help=f"Consumer group to which done offsets are committed, for kafka-consumer-groups; odradek-{name}. "
            "Nothing is read from it: only the checkpoint stores where to continue.",
        ),
    ]


def _position(context: click.Context, parameter: click.Parameter, value: str) -> Position:
    try:
        return Position.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None
