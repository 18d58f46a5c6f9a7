"""Definition of a configuration property: type, default, validator, and how its text is parsed (Kafka: ConfigDef).

The rules are those of Kafka's `ConfigDef`: the nine types, the conversion of a text to a value, and the error messages.
`definitions` and `topic_definitions` list the properties; `broker_config` and `topic_config` have their values.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode, KafkaError


class ConfigError(KafkaError):
    """An invalid configuration; `message` contains property, value and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class Type(IntEnum):
    """The type of a property, numbered as DescribeConfigs sends it (`DescribeConfigsResponse.ConfigType`)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """Whether a property can change at run time, with the terms of Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Source(IntEnum):
    """The source of a value, numbered as DescribeConfigs sends it (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class Password:
    """A secret that only `value` returns, so that no log and no error contains it."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


HIDDEN: Final = "[hidden]"
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

Value = bool | int | float | str | tuple[str, ...] | Password | None
"""A parsed value. INT, SHORT and LONG are `int`; LIST is a tuple; CLASS is the name of the class."""


class Validator(Protocol):
    """A limit on a value in addition to its type (Kafka: ConfigDef.Validator)."""

    def complaint(self, value: Value) -> str | None:
        """The error of an invalid value, with Kafka's message, or None."""

    def __str__(self) -> str:
        """The allowed values, in the format of Kafka's documentation."""


class ConfigKey(NamedTuple):
    """One row of a table of properties."""

    name: str
    type: Type
    default: Value
    allowed: Validator | None
    update: Update
    effect: bool  # whether the property has an effect in Odradek
    doc: str
    internal: bool = False  # parsed like any other, but DescribeConfigs does not return it

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret that no response and no log may contain."""
        return self.type is Type.PASSWORD


class Synonym(NamedTuple):
    """One source that gives a property its value, or would without a source of higher priority."""

    name: str
    value: str | None
    source: Source


class ConfigEntry(NamedTuple):
    """One property as DescribeConfigs returns it, independent of any protocol version."""

    name: str
    value: str | None
    source: Source
    sensitive: bool
    read_only: bool
    type: Type
    documentation: str | None
    synonyms: tuple[Synonym, ...]


class Range:
    """A number between two bounds, or one special number outside of them."""

    __slots__ = ("also", "high", "low")

    def __init__(self, low: float, high: float | None = None, also: int | None = None) -> None:
        self.low = low
        self.high = high
        self.also = also

    def complaint(self, value: Value) -> str | None:
        if not isinstance(value, int | float) or value == self.also:
            return None
        if self.also is not None and (value < self.low or (self.high is not None and value > self.high)):
            return f"Value must be in {self}"
        if value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        upper = "" if self.high is None else f",{self.high}"
        special = "" if self.also is None else f" or {self.also}"
        return f"[{self.low},...{upper}]{special}"


class OneOf:
    """A string, or a list of strings, of a set of choices."""

    __slots__ = ("any_case", "choices")

    def __init__(self, *choices: str, any_case: bool = False) -> None:
        self.choices = choices
        self.any_case = any_case

    def complaint(self, value: Value) -> str | None:
        items = value if isinstance(value, tuple) else (value,)
        known = {choice.upper() for choice in self.choices} if self.any_case else self.choices
        if all((str(item).upper() if self.any_case else item) in known for item in items):
            return None
        case = " (case insensitive)" if self.any_case else ""
        return f"String must be one of{case}: {', '.join(self.choices)}"

    def __str__(self) -> str:
        return f"{'(case insensitive) ' if self.any_case else ''}[{', '.join(self.choices)}]"


class NonEmpty:
    """A string of at least one character; a property without a value passes."""

    __slots__ = ()

    def complaint(self, value: Value) -> str | None:
        return "String must be non-empty" if value == "" else None

    def __str__(self) -> str:
        return "non-empty string"


class ThrottledReplicas:
    """`*`, or a list of partition:broker pairs (Kafka's `ThrottledReplicaListValidator`)."""

    __slots__ = ()

    def complaint(self, value: Value) -> str | None:
        if not isinstance(value, tuple) or all(item == "*" for item in value):
            return None
        for item in value:
            partition, colon, broker = item.partition(":")
            if item and not (colon and is_digits(partition) and is_digits(broker)):
                return f"it must be the literal '*' or a list of replicas in the following format: {self}"
        return None

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class KafkaVersion:
    """A version of Kafka such as 2.8, 3.9-IV0 or 3.9.2 (Kafka's `MetadataVersionValidator`)."""

    __slots__ = ()

    def complaint(self, value: Value) -> str | None:
        text = str(value)
        # Text after the release is ignored, as in Kafka: 3.0.1 is 3.0.
        release = ".".join(text.split(".")[: 3 if text.startswith("0.") else 2])
        if release in KAFKA_VERSIONS or any(release == version.partition("-")[0] for version in KAFKA_VERSIONS):
            return None
        return f"Version {text} is not a valid version. Allowed: {self}"

    def __str__(self) -> str:
        return f"[{', '.join(KAFKA_VERSIONS)}]"


_RELEASES: Final = """
    0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1
    0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1
    2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2
    3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0
    3.9-IV0 4.0-IV0 4.0-IV1
"""
KAFKA_VERSIONS: Final = tuple(_RELEASES.split())

_NUMBER_RANGES: Final = {
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.INT: (-(2**31), INT_MAX),
    Type.LONG: (-(2**63), LONG_MAX),
}
_BLANKS: Final = "".join(map(chr, range(33)))  # the characters that Java's String.trim removes
_LONGEST_NUMBER: Final = 40  # characters; prevents a slow conversion of a malicious text


def read_value(row: ConfigKey, text: str) -> Value:
    """The value of `text`, as parsed by `ConfigDef.parseType` and validated by the row's validator.

    Raises ConfigError, which contains the property, the text (unless secret) and what is allowed.
    """
    trimmed = text.strip(_BLANKS)
    value: Value = trimmed
    complaint = None
    if row.type is Type.BOOLEAN:
        value = trimmed.lower() == "true"
        if trimmed.lower() not in ("true", "false"):
            complaint = "Expected value to be either true or false"
    elif row.type in _NUMBER_RANGES:
        whole = whole_number(row.type, trimmed)
        if whole is None:
            complaint = f"Not a number of type {row.type.name}; allowed: {_numbers_allowed(row)}"
        value = whole
    elif row.type is Type.DOUBLE:
        fraction = _double(trimmed)
        if fraction is None:
            complaint = f"Not a number of type DOUBLE{f'; allowed: {row.allowed}' if row.allowed else ''}"
        value = fraction
    elif row.type is Type.LIST:
        value = tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
    elif row.type is Type.PASSWORD:
        value = Password(trimmed)
    elif row.type is Type.CLASS and not trimmed:
        complaint = "a class needs a name"
    if complaint is None and row.allowed is not None:
        complaint = row.allowed.complaint(value)
    if complaint is not None:
        shown = HIDDEN if row.sensitive else text
        raise ConfigError(f"Invalid value {shown} for configuration {row.name}: {complaint}")
    return value


def show_value(value: Value) -> str | None:
    """The text of a value, as `ConfigDef.convertToString` writes it; a secret stays hidden."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _java_double(value)
        case _:
            return str(value)


def is_digits(text: str) -> bool:
    """Whether `text` consists of the digits 0 to 9 only, and has at least one."""
    return text.isascii() and text.isdigit()


def whole_number(kind: Type, text: str) -> int | None:
    """The number of a SHORT, INT or LONG in `text` as Java parses it, without blanks; None if it is invalid."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > _LONGEST_NUMBER:
        return None
    number = int(text)
    low, high = _NUMBER_RANGES[kind]
    return number if low <= number <= high else None


def _numbers_allowed(row: ConfigKey) -> str:
    low, high = _NUMBER_RANGES[row.type]
    return f"{row.allowed or f'[{low},...,{high}]'}"


def _double(text: str) -> float | None:
    if not text.isascii() or "_" in text or text.lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _java_double(number: float) -> str:
    """`number` as Java's Double.toString writes it: 0.5, 1.0E7, 1.7976931348623157E308."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    from decimal import Decimal  # rarely needed, and a slow import

    sign, digits, shift = Decimal(repr(number)).normalize().as_tuple()
    shown = "".join(map(str, digits))
    exponent = len(digits) - 1 + int(shift)
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent}"
