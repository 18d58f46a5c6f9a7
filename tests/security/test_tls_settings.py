"""Properties of key stores and trust stores beside Kafka's DefaultSslEngineFactory: the same ones are accepted, and the
others are rejected with the same messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jpype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.config.definitions import BROKER_PROPERTIES
from odradek.broker.config.types import Type, read_value
from odradek.broker.security.tls import TlsError, server_context
from odradek.broker.security.tls_settings import tls_settings
from tests.security.kafka_classes import KafkaClasses, Outcome, attempt
from tests.security.tls_broker import Files

PASSWORD = "store-secret"
OF_THE_CONTENTS = ("Failed to load", "Invalid PEM")
"""How messages begin that are about the contents of a store."""
STORE = "ssl.keystore."
TRUST = "ssl.truststore."


class Stores(NamedTuple):
    """The values that properties are drawn from."""

    values: dict[str, tuple[str | None, ...]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder = tmp_path_factory.mktemp("stores")
    files = Files(folder)
    pem = str(files.issue("broker"))
    certificate = files.certificates["broker"]
    pkcs12 = folder / "broker.p12"
    pkcs12.write_bytes(certificate.pkcs12("broker", PASSWORD))
    return Stores(
        {
            f"{STORE}type": ("PEM", "PKCS12", "JKS"),
            f"{STORE}location": (None, pem, str(pkcs12), str(folder / "missing")),
            f"{STORE}password": (None, PASSWORD, "wrong"),
            f"{STORE}key": (None, certificate.key_pem.decode()),
            f"{STORE}certificate.chain": (None, (certificate.certificate_pem + certificate.authority_pem).decode()),
            "ssl.key.password": (None, PASSWORD, "wrong"),
            f"{TRUST}type": ("PEM", "PKCS12"),
            f"{TRUST}location": (None, str(files.trusted), str(folder / "missing")),
            f"{TRUST}password": (None, PASSWORD),
            f"{TRUST}certificates": (None, files.authority.pem.decode()),
        }
    )


def _ours(properties: dict[str, str]) -> str | None:
    """The message of the error, None where the settings are accepted."""

    def value(name: str) -> Any:
        row, text = BROKER_PROPERTIES[name], properties.get(name)
        return row.default if text is None else read_value(row, text)

    try:
        made = tls_settings(value)
        if made.key_pem is not None:
            server_context(made)
    except TlsError as error:
        return str(error)
    return None


def _theirs(classes: KafkaClasses, properties: dict[str, str]) -> Outcome:
    configs = jpype.JClass("java.util.HashMap")()
    password = classes.common("config.types.Password")
    for name, text in {f"{STORE}type": "JKS", f"{TRUST}type": "JKS", "ssl.protocol": "TLSv1.3", **properties}.items():
        secret = name in BROKER_PROPERTIES and BROKER_PROPERTIES[name].type is Type.PASSWORD
        configs.put(jpype.JString(name), password(text) if secret else jpype.JString(text))
    protocols = jpype.JClass("java.util.ArrayList")()
    protocols.add(jpype.JString("TLSv1.3"))
    configs.put(jpype.JString("ssl.enabled.protocols"), protocols)
    factory = classes.common("security.ssl.DefaultSslEngineFactory")()
    return attempt(factory.configure, configs)


@pytest.mark.jvm
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_same_properties_are_accepted(classes: KafkaClasses, stores: Stores, data: st.DataObject) -> None:
    drawn = {name: data.draw(st.sampled_from(values), name) for name, values in stores.values.items()}
    properties = {name: value for name, value in drawn.items() if value is not None}
    theirs, ours = _theirs(classes, properties), _ours(properties)
    assert (ours is None) == (theirs.error is None), (ours, theirs)
    # Java uses the password of a key last, after it has checked all other properties.
    specified = theirs.error == "InvalidConfigurationException" and not theirs.message.startswith(OF_THE_CONTENTS)
    if ours is not None and specified and drawn["ssl.key.password"] is None:
        assert ours.endswith(theirs.message)
    if ours is not None:
        assert PASSWORD not in ours
