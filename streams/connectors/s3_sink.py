"""S3 sink: writes topics as JSON lines or Parquet into a bucket, exactly once (the objects: `rolling_sink.py`).

An object is created on the condition that none has its key (If-None-Match: *), which Amazon S3 and MinIO check. Its
metadata has the offset behind its last record.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError
from odradek.streams.connectors.file_formats import FileFormat
from odradek.streams.connectors.rolling_sink import RollingSink, checked_name, folder_of
from odradek.streams.extras import extra_module

NEXT_OFFSET: Final = "next-offset"
"""The user metadata of an object: the offset behind its last record."""
_EXISTS: Final = ("PreconditionFailed", "ConditionalRequestConflict")


class S3Sink(RollingSink):
    """Writes objects below a prefix of a bucket."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        format: str | FileFormat = "jsonl",
        roll_records: int = 100_000,
        client: Any = None,
        **session: Any,
    ) -> None:
        """`client` is a client of boto3 for S3; without one, `session` are the arguments of boto3.client, such as
        endpoint_url and region_name, and credentials come from where boto3 finds them. Raises ValueError,
        MissingExtraError.
        """
        super().__init__(format, roll_records)
        self._bucket = bucket
        self._prefix = prefix
        self._errors = extra_module("botocore.exceptions", "s3", "S3Sink")
        self._client = client if client is not None else extra_module("boto3", "s3", "S3Sink").client("s3", **session)

    def _next_offset(self, place: TopicPartition) -> int | None:
        folder = self._prefix + folder_of(place)
        last = checked_name(self._last_key(folder), self.format.suffix)
        if last is None:
            return None
        metadata = self._call("head_object", Key=last)["Metadata"]
        if NEXT_OFFSET not in metadata:
            raise ConnectError(f"the object {last} has no metadata {NEXT_OFFSET}: no connector has written it")
        return int(metadata[NEXT_OFFSET])

    def _last_key(self, folder: str) -> str | None:
        last: str | None = None
        options: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=folder, **options)
            if page.get("Contents"):
                last = page["Contents"][-1]["Key"]
            if not page.get("IsTruncated"):
                return last
            options = {"ContinuationToken": page["NextContinuationToken"]}

    def _publish(self, name: str, content: bytes, next_offset: int) -> None:
        self._call(
            "put_object",
            Key=self._prefix + name,
            Body=content,
            IfNoneMatch="*",
            Metadata={NEXT_OFFSET: str(next_offset)},
        )

    def _call(self, operation: str, **arguments: Any) -> Any:
        """Call the client. Raises FencedError, RetriableError, ConnectError."""
        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        except self._errors.ClientError as error:
            code = error.response["Error"]["Code"]
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if code in _EXISTS:
                raise FencedError(f"{arguments['Key']} exists: another process has taken over its partition") from error
            kind = RetriableError if status >= 500 or status == 429 else ConnectError
            raise kind(f"{operation} in bucket {self._bucket} failed: {error}") from error
        except self._errors.BotoCoreError as error:
            raise RetriableError(f"{operation} in bucket {self._bucket} failed: {error}") from error
