"""JAAS configurations in properties, as `sasl.jaas.config`, and in files (Kafka: JaasConfig, JaasContext; Java:
StreamTokenizer, ConfigFile).

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";

The class names are data: no class is loaded. The syntax is that of Java's tokenizer with Kafka's settings: a value that
begins with a digit has to be in quotes, and a slash begins a comment that ends with the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_ALPHA: Final = r"A-Za-z_$\u00a0-\U0010ffff"
_TOKEN: Final = rf"""
      (?P<skip>  [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\n\r]*  )
    | (?P<number> -?(?=[.0-9])[0-9]*(?:\.[0-9]*)? )
    | (?P<word>  [{_ALPHA}] [{_ALPHA}0-9.\-]* )
    | (?P<text>  (?P<quote>["']) (?P<inner>(?:(?!(?P=quote))[^\\\n\r]|\\.|\\\Z)*) (?P=quote)? )
    | (?P<other> . )
    """
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.|\Z)", re.DOTALL)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "": "\uffff"}


class JaasError(ValueError):
    """A text that is no JAAS configuration. Messages contain no part of the options: those may be passwords."""


class LoginModule(NamedTuple):
    """One entry of a configuration (Java: AppConfigurationEntry)."""

    name: str
    control_flag: str
    options: Mapping[str, str]


class _Token(NamedTuple):
    """A word or a text in quotes has a value; of other tokens only the operators `;`, `=` and braces have a meaning."""

    operator: str
    value: str | None


_END: Final = _Token("end", None)


def parse_modules(text: str) -> list[LoginModule]:
    """The login modules of a configuration, in their order. Raises JaasError."""
    tokens = _tokens(text)
    modules = []
    while (token := next(tokens, _END)) is not _END:
        modules.append(_parse_module(token, tokens))
    if not modules:
        raise JaasError("Login module not specified in JAAS config")
    return modules


def parse_sections(text: str) -> dict[str, list[LoginModule]]:
    """The sections of a JAAS file (Java: ConfigFile): `Name { modules };`. Raises JaasError."""
    tokens = _tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    while (name := next(tokens, _END)) is not _END:
        if name.value is None or name.value in sections or next(tokens, _END).operator != "{":
            raise JaasError(f"Section {len(sections) + 1} of the JAAS file has no name of its own, or no opening brace")
        modules = []
        while (token := next(tokens, _END)).operator != "}":
            modules.append(_parse_module(token, tokens))
        if next(tokens, _END).operator != ";":
            raise JaasError(f"Section {len(sections) + 1} of the JAAS file is not terminated by semi-colon")
        sections[name.value] = modules
    return sections


def parse_module(text: str) -> LoginModule:
    """The only login module of a property. Raises JaasError."""
    modules = parse_modules(text)
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def _parse_module(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, _END)
    if flag is _END:
        raise JaasError("Login module control flag not specified in JAAS config")
    if flag.value is None:
        raise JaasError("Login module control flag is not available in the JAAS config")
    if flag.value.lower() not in CONTROL_FLAGS:
        raise JaasError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    while (key := next(tokens, _END)) is not _END and key.operator != ";":
        equals, value = next(tokens, _END), next(tokens, _END)
        if equals.operator != "=" or key.value is None or value.value is None:
            raise JaasError(f"Value not specified for option {len(options) + 1} in JAAS config")
        options[key.value] = value.value
    if key is _END:
        raise JaasError("JAAS config entry not terminated by semi-colon")
    if first.value is None:
        raise JaasError("The name of a login module in the JAAS config is not a word")
    return LoginModule(first.value, flag.value.lower(), options)


def _tokens(text: str) -> Iterator[_Token]:
    for found in re.finditer(_TOKEN, text, re.VERBOSE | re.DOTALL):
        token = found[0]
        match found.lastgroup:
            case "word":
                yield _Token("", token)
            case "text":
                yield _Token("", _ESCAPE.sub(_unescape, found["inner"]))
            case "number":
                yield _Token("", None)
            case "other":
                yield _Token(token, None)


def _unescape(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped != "" and escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _CONTROLS.get(escaped, escaped)
