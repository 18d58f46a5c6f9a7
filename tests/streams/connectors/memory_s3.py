"""An object store in memory with the operations of boto3's client that S3Sink uses; the tests hold it to the contract
that a server has to pass, too. Parameters have the names of the service.
"""
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class MemoryS3:
    """One bucket."""

    def __init__(self, page: int = 2) -> None:
        """`page` is how many keys one response lists."""
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self._page = page

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, Metadata: dict[str, str], IfNoneMatch: str) -> Any:
        assert IfNoneMatch == "*"
        if Key in self.objects:
            raise _error("PreconditionFailed", 412)
        self.objects[Key] = Body, Metadata
        return {}

    def head_object(self, *, Bucket: str, Key: str) -> Any:
        return {"Metadata": self.objects[Key][1]}

    def list_objects_v2(self, *, Bucket: str, Prefix: str, ContinuationToken: str = "") -> Any:
        keys = sorted(key for key in self.objects if key.startswith(Prefix) and key > ContinuationToken)
        shown = keys[: self._page]
        listed: dict[str, Any] = {"IsTruncated": len(keys) > len(shown)}
        if shown:
            listed |= {"Contents": [{"Key": key} for key in shown], "NextContinuationToken": shown[-1]}
        return listed


def _error(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")
