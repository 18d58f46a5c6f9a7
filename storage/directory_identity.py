"""The owner of a data directory: compares meta.properties with the broker that opens it (MetaPropertiesEnsemble)."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.checkpoints import META_PROPERTIES, CorruptFile, decode_properties, encode_properties
from odradek.storage.disk import Disk, Folder


def identify(folder: Folder, broker_id: int, cluster_id: str | None, now_ms: int) -> dict[str, str]:
    """The entries of meta.properties, which is written where it is missing; entries that Kafka added remain.

    `cluster_id` None takes the one of the file. Raises OSError, and KafkaError INCONSISTENT_CLUSTER_ID and
    INVALID_CONFIG where the directory belongs to another cluster or broker.
    """
    found = read_identity(folder.disk, folder.path)
    cluster_id = cluster_id or found.get("cluster.id")
    if cluster_id is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{folder.path} has no cluster id yet, and none was given")
    if found.get("cluster.id", cluster_id) != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{folder.path} belongs to cluster {found['cluster.id']}, and this broker to {cluster_id}: the directory "
            f"is another cluster's, or the registry is",
        )
    if found.get("version", "0") != "0":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{folder.path}/{META_PROPERTIES} has version {found['version']}, which KRaft writes; 0 is right",
        )
    if found.get("broker.id", str(broker_id)) != str(broker_id):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{folder.path} belongs to broker {found['broker.id']}, and broker.id is {broker_id}",
        )
    wanted = found | {"version": "0", "broker.id": str(broker_id), "cluster.id": cluster_id}
    if wanted != found:
        folder.replace(META_PROPERTIES, encode_properties(wanted, now_ms), sync=True)
    return wanted


def read_identity(disk: Disk, path: str) -> dict[str, str]:
    """meta.properties of a directory, empty where there is none; takes no lock. Raises KafkaError, OSError."""
    data = Folder(disk, path).read(META_PROPERTIES)
    try:
        return {} if data is None else decode_properties(data)
    except CorruptFile as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path}/{META_PROPERTIES} cannot be read: {error}") from error
