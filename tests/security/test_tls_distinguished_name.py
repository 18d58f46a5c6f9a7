"""Names of certificate subjects beside Java's X500Principal, and the users that rules make of them."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import jpype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.security.state.distinguished_name import SubjectError, name_text, subject_name
from odradek.certificates import CertificateAuthority
from tests.security.kafka_classes import KafkaClasses, attempt, java_bytes

AUTHORITY = CertificateAuthority.create()
KNOWN = (
    "2.5.4.3",
    "2.5.4.4",
    "2.5.4.5",
    "2.5.4.6",
    "2.5.4.7",
    "2.5.4.8",
    "2.5.4.9",
    "2.5.4.10",
    "2.5.4.11",
    "2.5.4.12",
    "2.5.4.42",
    "2.5.4.46",
    "0.9.2342.19200300.100.1.1",
    "0.9.2342.19200300.100.1.25",
    "1.2.840.113549.1.9.1",
    "1.3.6.1.4.1.99999.7",
    "2.999.3",
)
STRING_TAGS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E)
OTHER_TAGS = (0x02, 0x04)


def der(tag: int, contents: bytes) -> bytes:
    size = len(contents)
    if size < 0x80:
        return bytes([tag, size]) + contents
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + contents


def object_identifier(dotted: str) -> bytes:
    first, second, *others = map(int, dotted.split("."))
    encoded = b""
    for number in (40 * first + second, *others):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        encoded += bytes(reversed(digits))
    return der(0x06, encoded)


def attribute(kind: str, tag: int, value: bytes) -> bytes:
    return der(0x30, object_identifier(kind) + der(tag, value))


def name(*relative: list[bytes]) -> bytes:
    """A name of relative names, each a list of attributes; DER orders a set by its bytes."""
    return der(0x30, b"".join(der(0x31, b"".join(sorted(each))) for each in relative))


def as_java(data: bytes) -> Any:
    principal = attempt(jpype.JClass("javax.security.auth.x500.X500Principal"), java_bytes(data))
    return principal if principal.error is not None else str(principal.value.getName())


def as_here(data: bytes) -> str:
    header = 2 if data[1] < 0x80 else 2 + (data[1] & 0x7F)
    return name_text(data[header:])


texts = st.text(st.sampled_from([*" \r,=+<>#;\"\\\0a1Zü漢😀\n\t'/:?*\u00a0", "ß"]), min_size=1, max_size=8)
bytes_of_texts = st.one_of(texts.map(str.encode), st.binary(min_size=1, max_size=6))
strings = st.builds(attribute, st.sampled_from(KNOWN), st.sampled_from(STRING_TAGS), bytes_of_texts)
others = st.builds(attribute, st.sampled_from(KNOWN), st.sampled_from(OTHER_TAGS), st.binary(min_size=1, max_size=4))
names = st.lists(st.lists(st.one_of(strings, others), min_size=1, max_size=3), max_size=4).map(lambda each: name(*each))


@pytest.mark.jvm
@settings(max_examples=400, deadline=None)
@given(data=names)
def test_names_are_those_of_java(classes: KafkaClasses, data: bytes) -> None:
    expected = as_java(data)
    if isinstance(expected, str):
        assert as_here(data) == expected


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (name(), ""),
        (name([attribute("2.5.4.10", 0x13, b"Example, Inc.")], [attribute("2.5.4.3", 0x0C, b"alice")]), None),
        (name([attribute("2.5.4.3", 0x0C, b"  two  ")]), "CN=\\ \\ two\\ \\ "),
        (name([attribute("2.5.4.3", 0x0C, b"   ")]), "CN=\\ \\ \\ "),
        (name([attribute("2.5.4.3", 0x0C, "ünï".encode())]), "CN=ünï"),
        (name([attribute("2.5.4.3", 0x0C, b"\xff\xfe")]), "CN=\ufffd\ufffd"),
        (name([attribute("2.5.4.3", 0x1E, "ab".encode("utf-16-be"))]), "CN=\\00a\\00b"),
        (name([attribute("1.2.840.113549.1.9.1", 0x16, b"a@b")]), "1.2.840.113549.1.9.1=#1603614062"),
        (name([attribute("2.5.4.3", 0x0C, b"a"), attribute("2.5.4.11", 0x0C, b"b")]), "CN=a+OU=b"),
        (name([attribute("2.5.4.3", 0x0C, b"x" * 200)]), "CN=" + "x" * 200),
    ],
)
def test_examples(classes: KafkaClasses, data: bytes, text: str | None) -> None:
    expected = "CN=alice,O=Example\\, Inc." if text is None else text
    assert as_here(data) == expected == as_java(data)


def test_the_subject_of_a_certificate() -> None:
    certificate = AUTHORITY.issue("alice, of sales")
    assert subject_name(_der(certificate.certificate_pem)) == "CN=alice\\, of sales"


@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(SubjectError):
        subject_name(data)


@given(cut=st.integers(0, 100), changed=st.integers(0, 255))
def test_damaged_certificates_raise_no_other_error(cut: int, changed: int) -> None:
    data = bytearray(_der(AUTHORITY.issue("alice").certificate_pem) if cut == 0 else CERTIFICATE)
    data[cut] = changed
    with contextlib.suppress(SubjectError):
        subject_name(bytes(data))


def _der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


CERTIFICATE = _der(AUTHORITY.issue("alice").certificate_pem)
