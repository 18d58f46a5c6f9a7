"""Rules that map names in certificates and in Kerberos to users (Kafka: SslPrincipalMapper, KerberosShortNamer).

    ssl.principal.mapping.rules               RULE:^CN=(.*?),.*$/$1/L, DEFAULT
    sasl.kerberos.principal.to.local.rules    RULE:[1:$1@$0](.*@REALM)s/@.*///L, DEFAULT

The first rule that applies counts. Rules are parsed at the start, where a rule that cannot be applied is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.broker.security.state.java_regex import (
    JavaRegexError,
    Replacement,
    compile_java,
    find_all,
    parse_replacement,
    replace,
)

_SSL_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_SSL_SPLITTER: Final = re.compile(rf"\s*({_SSL_RULE})\s*(,\s*|$)", re.ASCII)
_SSL_PARSER: Final = re.compile(_SSL_RULE)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")
_MOST_GROUPS: Final = (1 << 31) - 1

_KERBEROS_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_KERBEROS_RULE: Final = re.compile(
    r"(DEFAULT)|RULE:\[([0-9]*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?"
)
_KERBEROS_PARAMETER: Final = re.compile(r"\$([0-9]*)")


class RuleError(ValueError):
    """A mapping rule that cannot be used."""


class NoMatchingRuleError(Exception):
    """No rule applies to a name: the client is not authenticated."""


class _SslRule(NamedTuple):
    """One rule: a pattern for the whole name, a replacement, and a change of case."""

    pattern: re.Pattern[str]
    replacement: Replacement
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return _change_case(replace(self.pattern, self.replacement, name), self.case)


class SslPrincipalMapper:
    """Maps the distinguished names of certificates."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Raises RuleError."""
        split = [found[1] for found in find_all(_SSL_SPLITTER, rules.strip(_JAVA_WHITESPACE))]
        self._rules = [rule for rule in map(_parse_ssl_rule, split) if rule is not None]

    def name(self, distinguished_name: str) -> str:
        """The user of a certificate. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"No rules apply to {distinguished_name}")


_JAVA_WHITESPACE: Final = "".join(map(chr, range(33)))
_Rule = Callable[[str], str | None]


def _parse_ssl_rule(text: str) -> _Rule | None:
    """A rule; None for an empty one, which Kafka ignores."""
    found = _SSL_PARSER.match(text)
    if found is None:
        raise RuleError(f"Invalid rule: {text}")
    if found.end() != len(text):
        raise RuleError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    default, pattern, replacement, case = found.groups()
    if default is not None:
        return lambda name: name
    if pattern is None:
        return None
    compiled = _compile(pattern, text)
    escaped = _escape_invalid_references(replacement, compiled.groups)
    return _SslRule(compiled, _replacement(escaped, compiled, text), case).apply


def _escape_invalid_references(replacement: str, groups: int) -> str:
    """A reference to a group that does not exist is literal text, where there are groups at all.

    Kafka inserts the backslashes at places of the original text, so that only the first one is at the right place.
    """
    if groups == 0:
        return replacement
    result = replacement
    for found in _REFERENCE.finditer(replacement):
        number = int(found[1])
        if found[1].startswith("0"):
            continue
        if number > _MOST_GROUPS:
            raise RuleError(f"Invalid replacement: {replacement}")
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            result = f"{result[: found.start()]}\\{result[found.start() :]}"
    return result


class KerberosName(NamedTuple):
    """The name of a Kerberos principal: service/host@REALM, host and realm optional."""

    service: str
    host: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """Raises RuleError."""
        found = _KERBEROS_NAME.fullmatch(text)
        if found is not None:
            return cls(*found.groups())
        if "@" in text:
            raise RuleError(f"Malformed Kerberos name: {text}")
        return cls(text, None, None)


class _KerberosRule(NamedTuple):
    """One rule: a form of the name, a condition on the formed text, a substitution, and a change of case."""

    components: int
    form: Sequence[str | int]
    condition: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: Replacement | None
    every: bool
    case: str

    def apply(self, parameters: Sequence[str]) -> str | None:
        """The name; None where the rule does not apply. `parameters` are the realm and the components."""
        if len(parameters) - 1 != self.components:
            return None
        base = "".join(part if isinstance(part, str) else parameters[part] for part in self.form)
        if self.condition is not None and self.condition.fullmatch(base) is None:
            return None
        if self.pattern is not None and self.replacement is not None:
            base = replace(self.pattern, self.replacement, base, every=self.every)
        if "/" in base or "@" in base:
            raise NoMatchingRuleError(f"Non-simple name {base} after auth_to_local rule")
        return _change_case(base, self.case)


class KerberosShortNamer:
    """Maps the names of Kerberos principals."""

    def __init__(self, default_realm: str, rules: Sequence[str] = ("DEFAULT",)) -> None:
        """Raises RuleError."""
        self._default_realm = default_realm
        self._rules = [_parse_kerberos_rule(rule) for rule in rules]

    def short_name(self, name: KerberosName) -> str:
        """The user of a principal; a name without a realm is one already. Raises NoMatchingRuleError."""
        if name.realm is None:
            return name.service
        parameters = [name.realm, name.service, *([name.host] if name.host is not None else [])]
        for rule in self._rules:
            if rule is not None:
                result = rule.apply(parameters)
                if result is not None:
                    return result
            elif name.realm == self._default_realm:
                return name.service
        raise NoMatchingRuleError(f"No rules apply to {name}")


def _parse_kerberos_rule(text: str) -> _KerberosRule | None:
    """A rule; None for DEFAULT."""
    found = _KERBEROS_RULE.match(text)
    if found is None:
        raise RuleError(f"Invalid rule: {text}")
    if found.end() != len(text):
        raise RuleError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    default, components, form, condition, pattern, replacement, every, case = found.groups()
    if default is not None:
        return None
    if not 0 < len(components) < 10:
        raise RuleError(f"Invalid rule: {text}: it has no number of components")
    compiled = _compile(pattern, text) if pattern is not None else None
    return _KerberosRule(
        int(components),
        _parse_form(form, int(components), text),
        _compile(condition, text) if condition is not None else None,
        compiled,
        _replacement(replacement, compiled, text) if compiled is not None else None,
        every is not None,
        case or "",
    )


def _parse_form(form: str, components: int, rule: str) -> list[str | int]:
    """The texts of a form, and the parameters between them: $0 is the realm, $1 the service."""
    parts: list[str | int] = []
    for number, part in enumerate(_KERBEROS_PARAMETER.split(form)):
        if number % 2 == 0:
            parts.append(part)
        elif part and len(part) < 10 and int(part) <= components:
            parts.append(int(part))
        else:
            raise RuleError(f"Invalid rule: {rule}: ${part} is not one of $0 to ${components}")
    return parts


def _compile(pattern: str, rule: str) -> re.Pattern[str]:
    try:
        return compile_java(pattern)
    except JavaRegexError as error:
        raise RuleError(f"Invalid rule: {rule}: {error}") from error


def _replacement(text: str, pattern: re.Pattern[str], rule: str) -> Replacement:
    try:
        return parse_replacement(text, pattern)
    except JavaRegexError as error:
        raise RuleError(f"Invalid rule: {rule}: {error}") from error


def _change_case(name: str, case: str) -> str:
    return {"L": name.lower, "U": name.upper}.get(case, lambda: name)()
