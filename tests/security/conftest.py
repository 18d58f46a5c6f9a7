"""Fixtures of the security tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.kafka_classes import KafkaClasses, kafka_classes
from tests.security.kdc import Kdc, missing_programs
from tests.security.secret_scan import SecretScan, scanning


@pytest.fixture(scope="package", autouse=True)
def secret_scan() -> Iterator[SecretScan]:
    """All tests of this folder show no secret that one of them uses."""
    with scanning(SecretScan()) as scan:
        yield scan
    assert scan.findings() == []


@pytest.fixture(scope="session")
def classes() -> KafkaClasses:
    """The classes of Apache Kafka 3.9.2 in the JVM of this process."""
    return kafka_classes()


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """MIT Kerberos; the test is skipped where it is not installed."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"MIT Kerberos is not installed (krb5-kdc, krb5-admin-server), missing: {', '.join(missing)}")
    pytest.importorskip("gssapi", reason="the extra odradek[kerberos] is not installed", exc_type=ImportError)
    made = Kdc(tmp_path_factory.mktemp("kdc"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        try:
            made.start()
            yield made
        finally:
            made.stop()
