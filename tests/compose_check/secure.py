"""The profile `secure`, from the host: an administrator, alice and clients that the brokers must refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Resource
from confluent_kafka.cimpl import NewTopic

from tests.compose_check.verdict import CheckError, require
from tests.support.eventually import eventually

BROKERS: Final = ("secure-1", "secure-2", "secure-3")
SERVICES: Final = ("secure-files", "secure-zookeeper", "secure-users", *BROKERS)
PORTS: Final = (9192, 9193, 9194)
BOOTSTRAP: Final = ",".join(f"localhost:{port}" for port in PORTS)
ADMIN: Final = ("admin", "admin-secret")
ALICE: Final = ("alice", "alice-secret")
"""The defaults of docker-compose.yml."""
TOPIC: Final = "secure-check"
GROUP: Final = "secure-readers"
RECORDS: Final = 300
TIMEOUT_S: Final = 30.0
REFUSAL_S: Final = 2.0


def require_secure(bootstrap: str, ca: Path) -> int:
    """Alice writes and reads after the administrator has allowed it, and not before; logins that are wrong fail.

    Returns the number of records. Raises CheckError.
    """
    require_refused("a wrong password", login(bootstrap, ca, ALICE[0], "wrong"), KafkaError._AUTHENTICATION)
    require_refused("an unknown user", login(bootstrap, ca, "mallory", "x"), KafkaError._AUTHENTICATION)
    require_refused("no TLS", {**login(bootstrap, ca, *ALICE), "security.protocol": "SASL_PLAINTEXT"})
    require_refused("no login", {**login(bootstrap, ca, *ALICE), "security.protocol": "SSL"})
    admin = AdminClient(login(bootstrap, ca, *ADMIN))
    admin.create_topics([NewTopic(TOPIC, 3, len(BROKERS))])[TOPIC].result(TIMEOUT_S)
    alice = login(bootstrap, ca, *ALICE)
    first = write(alice, 1)
    require(first == [KafkaError.TOPIC_AUTHORIZATION_FAILED], f"without ACLs alice's record has the results {first}")
    bindings = [acl(Resource.TOPIC, TOPIC, operation) for operation in (AclOperation.WRITE, AclOperation.READ)]
    for created in admin.create_acls([*bindings, acl(Resource.GROUP, GROUP, AclOperation.READ)]).values():
        created.result(TIMEOUT_S)
    eventually(lambda: write(alice, RECORDS) == [None] * RECORDS, describe="alice writes", timeout_s=TIMEOUT_S)
    count = read(alice)
    require(count >= RECORDS, f"alice wrote {RECORDS} records and read {count}")
    return count


def login(bootstrap: str, ca: Path, user: str, password: str) -> dict[str, Any]:
    """The properties of a librdkafka client of this user."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def require_refused(why: str, properties: Mapping[str, Any], code: int | None = None) -> None:
    """A client of these properties gets no metadata, and the error `code` if there is one."""
    errors: list[int] = []
    config: dict[str, Any] = {**properties, "error_cb": lambda error: errors.append(error.code())}
    client = AdminClient(config)
    try:
        client.list_topics(timeout=REFUSAL_S)
    except KafkaException:
        client.poll(0)
        require(code is None or code in errors, f"a client with {why} gets the errors {errors}")
    else:
        raise CheckError(f"a client with {why} is served")


def acl(resource: Resource, name: str, operation: AclOperation) -> AclBinding:
    """An ACL that allows alice an operation from every host."""
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(resource, name, literal, f"User:{ALICE[0]}", "*", operation, allow)


def write(properties: Mapping[str, Any], count: int) -> list[int | None]:
    """Writes records with acks=all; returns the error code of each, None for success."""
    results: list[int | None] = []
    producer = Producer({**properties, "acks": "all"})
    for number in range(count):
        producer.produce(
            TOPIC, str(number), on_delivery=lambda error, _: results.append(None if error is None else error.code())
        )
    producer.flush(TIMEOUT_S)
    return results


def read(properties: Mapping[str, Any]) -> int:
    """How many records the group reads before all partitions end."""
    options = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({**properties, **options})
    consumer.subscribe([TOPIC])
    count, ended = 0, set()
    try:
        while len(ended) < 3:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise CheckError(f"alice read {count} records and then none in {TIMEOUT_S:g} s")
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise CheckError(f"alice reads {error}")
    finally:
        consumer.close()
    return count


def passwords_in(files: str) -> list[str]:
    """The passwords of these files of the profile, and those of the users."""
    made = re.findall(r'(?:password|user_kafka)="([^"]+)"', files)
    require(len(set(made)) >= 2, "the profile made no passwords for ZooKeeper and the brokers")
    return [*made, ADMIN[1], ALICE[1]]


def require_no_secret(secrets: Sequence[str], texts: Mapping[str, str]) -> None:
    """No secret is in a text; the message names the text and not the secret."""
    for name, text in texts.items():
        require(not any(secret in text for secret in secrets), f"{name} contains a password")
