"""The name of a certificate's subject, as Java writes it (Java: X500Principal.getName, RFC 2253).

    CN=alice,OU=Orders+UID=42,O=Example\\, Inc.,1.2.840.113549.1.9.1=#1605616c696365

The last relative name of the certificate comes first. Attributes without a keyword in RFC 2253 have the number of their
type, and their value in hexadecimal. Users write rules and ACLs for exactly this text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java reads each as UTF-8."""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = {ord(each): f"\\{each}" for each in ',=+<>#;"\\'} | {0: "\\00"}
_SPACES: Final = " \r"


class SubjectError(ValueError):
    """A certificate whose subject cannot be read."""


class _Element(NamedTuple):
    """One element of DER: its tag, its contents, and all its bytes."""

    tag: int
    contents: bytes
    whole: bytes


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate (X.509, DER) as text; empty for an empty name. Raises SubjectError."""
    try:
        (whole,) = _elements(certificate)
        to_be_signed = next(_elements(whole.contents))
        fields = [each for each in _elements(to_be_signed.contents) if each.tag != _VERSION]
        subject = fields[4]  # behind the serial number, the algorithm, the issuer and the validity
        if subject.tag != _SEQUENCE:
            raise SubjectError("the certificate has no subject")
        return name_text(subject.contents)
    except (IndexError, ValueError, StopIteration) as error:
        raise SubjectError(f"the subject of the certificate cannot be read: {error}") from error


def name_text(contents: bytes) -> str:
    """The text of a name: the relative names in a sequence of DER. Raises SubjectError, IndexError."""
    names = [_relative_name(each) for each in _elements(contents)]
    return ",".join(reversed(names))


def _relative_name(element: _Element) -> str:
    if element.tag != _SET:
        raise SubjectError("a relative name is not a set")
    return "+".join(_attribute(each) for each in _elements(element.contents))


def _attribute(element: _Element) -> str:
    kind, value = _elements(element.contents)
    if kind.tag != _OID:
        raise SubjectError("an attribute has no type")
    number = _object_identifier(kind.contents)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escape(value.contents.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    escaped = text.translate(_ESCAPED)
    middle = escaped.strip(_SPACES)
    if not middle:
        return "".join(f"\\{each}" for each in escaped)
    begin = len(escaped) - len(escaped.lstrip(_SPACES))
    end = begin + len(middle)
    leading, trailing = ("".join(f"\\{each}" for each in part) for part in (escaped[:begin], escaped[end:]))
    return f"{leading}{middle}{trailing}"


def _elements(data: bytes) -> Iterator[_Element]:
    """The elements of DER, one behind the other. Raises SubjectError, IndexError."""
    at = 0
    while at < len(data):
        begin, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise SubjectError("an element is longer than what contains it")
        yield _Element(tag, data[at : at + length], data[begin : at + length])
        at += length


def _object_identifier(contents: bytes) -> str:
    numbers, number = [], 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
