"""Mapping rules beside Kafka's SslPrincipalMapper and KerberosShortNamer, patterns beside java.util.regex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jpype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.broker.security.state.java_regex import JavaRegexError, compile_java, parse_replacement, replace
from odradek.broker.security.state.principal_mapping import (
    KerberosName,
    KerberosShortNamer,
    NoMatchingRuleError,
    RuleError,
    SslPrincipalMapper,
)
from odradek.broker.security.state.principals import KafkaPrincipal, PrincipalError, parse_principal, parse_super_users
from tests.security.kafka_classes import KafkaClasses, Outcome, attempt, java_list

NAMES = (
    "CN=Duke, OU=ServiceUsers, O=Org, C=US",
    "CN=kafka-1,OU=x/y,O=ß",
    "cn=DUKE",
    "",
    "a",
    "a\nb",
    "CN=a\\,b,O=c",
)
ATOMS: tuple[str, ...] = (
    "a",
    "b",
    "CN",
    "=",
    ",",
    ".",
    "[^,]",
    "[a-z]",
    "[A-Z0-9_]",
    r"\w",
    r"\d",
    r"\s",
    r"\.",
    r"\,",
    r"\-",
    "(a|b)",
)
ATOMS += (
    "(.*?)",
    "(CN|OU)=",
    "(?:x|y)",
    "(?<n>a)",
    "[.*]",
    r"[\w-]",
    r"\x41",
    r"\Q.*\E",
    " ",
    "/",
    "(?=a)",
    "(?!a)",
    r"\1",
)
ATOMS += (
    "[a&&b]",
    "[a[b]]",
    r"\p{L}",
    r"\h",
    "[]a]",
    "[^-]",
    r"[\]]",
    "{",
    "}",
    "]",
    "(?i:cn)",
    "(?s:.)",
    "(?>a*)",
    "-",
    "#",
)
QUANTIFIERS = ("", "", "", "", "*", "+", "?", "*?", "+?", "{1,2}", "{2}", "{1,}", "{,2}", "*+")


@st.composite
def _patterns(draw: st.DrawFn) -> str:
    """Patterns without a quantifier on a quantifier: Java and Python alike need exponential time for those."""
    body = ""
    for atom in draw(st.lists(st.sampled_from(ATOMS), max_size=4)):
        body += atom if "*" in atom else atom + draw(st.sampled_from(QUANTIFIERS))
    prefix = draw(st.sampled_from(("", "", "^", "(?i)", "^.*")))
    return prefix + body + draw(st.sampled_from(("", "", "$", ".*$", ".*")))


replacements = st.lists(
    st.sampled_from(("$1", "$2", "$0", "$12", "${n}", "x", "Y", "@", "\\$", "\\\\", "$9", "$")), max_size=3
).map("".join)
texts = st.sampled_from(NAMES) | st.text("aBbCN=,. -[]{}ü\n\r\u2028/\\", max_size=8)


def _replaced(pattern: str, replacement: str, text: str) -> tuple[bool, str]:
    compiled = compile_java(pattern)
    found = compiled.fullmatch(text) is not None
    return found, replace(compiled, parse_replacement(replacement, compiled), text)


@pytest.mark.jvm
@settings(max_examples=400)
@given(_patterns(), replacements, texts)
@example("^CN=(.*?), OU=(.*?), O=(.*?), C=(.*?)$", "$1@$2", NAMES[0])
@example(".*", "x", "abc")
@example("a$", "x", "a\r\n")
@example("(?i)cn=(\\w+)", "$1", "cn=DUKE")
def test_patterns_mean_what_they_mean_in_java(classes: KafkaClasses, pattern: str, replacement: str, text: str) -> None:
    """What is accepted gives Java's result; what is rejected is a construct without a translation, or wrong in Java."""
    theirs = attempt(jpype.JClass("java.util.regex.Pattern").compile, pattern)
    try:
        found, replaced = _replaced(pattern, replacement, text)
    except JavaRegexError:
        return
    assert theirs.error is None, theirs
    matcher = theirs.value.matcher(text)
    assert found == matcher.matches()
    outcome = attempt(matcher.replaceAll, replacement)
    # Java notices a wrong reference when it replaces something.
    assert outcome.error is None
    assert replaced == str(outcome.value)


@pytest.mark.parametrize(
    "pattern",
    [
        *("^CN=(.*?),.*$", "^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$", "(?i)^cn=([^,]+),.*$", r"\QCN=\E(\w+)", r"a\.b\-c\/d"),
        *("^CN=(?<user>[^,]+).*$", "(a|b)+?c{2,3}", r"[\d\-_.@]+", "x*+", r"\Aa\z", "^(?:CN|OU)=(.+)$", "([^@]*)@.*"),
    ],
)
def test_what_users_write_is_translated(pattern: str) -> None:
    compile_java(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"\p{L}",
            "[a&&b]",
            "[a[b]]",
            r"\h",
            r"\R",
            "(?x)a",
            "(?m)^a",
            "a{",
            "{1}",
            "[",
            "(",
            ")",
            "*",
            r"\1",
            "(?P<n>a)",
        )
    ],
)
def test_other_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(JavaRegexError):
        compile_java(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a*)*",
        "(.*,)+",
        "((a|ab)c?)*",
        "(a|a)*x",
        "(a|A){2,}",
        "([ab]|a)+",
        "(a?){30}",
        "(?:(x+)y)*?",
        "(a{1,9}){9}",
    ],
)
def test_patterns_that_take_exponential_time_are_rejected(pattern: str) -> None:
    with pytest.raises(JavaRegexError, match="exponential time"):
        compile_java(pattern)


@pytest.mark.parametrize(
    "pattern", ["(CN|OU)=.*", "(a|b)*", "(?:ab|cd)+", "(a+)?", "(a+){1}", "a*+b", "(ab){2,3}", "(a{2})+", "(.*?),(.*?)"]
)
def test_other_repetitions_are_allowed(pattern: str) -> None:
    compile_java(pattern)


def test_a_rule_that_takes_exponential_time_is_named() -> None:
    with pytest.raises(RuleError, match=r"Invalid rule: RULE:\(a\+\)\+/x/: the repetition"):
        SslPrincipalMapper("RULE:(a+)+/x/")


def _ours(call: Callable[..., str], *arguments: Any) -> str | None:
    try:
        return call(*arguments)
    except NoMatchingRuleError:
        return None


def _compare(ours: str | None, theirs: Outcome) -> None:
    if theirs.error is None:
        assert ours == str(theirs.value)
    else:
        assert ours is None
        assert theirs.error == "NoMatchingRule"


PATTERNS = ("^CN=(.*?), OU=(.*?), .*$", "^CN=(.*?),.*$", "(.*)", "^([A-Za-z]+)=(.*)$", "a", "CN=x\\/y", "^cn=.*$", "")
REPLACEMENTS = ("$1", "$1@$2", "$2$1", "$1$4", "x", "", "$12", "\\/", "$0", "$1,$2", "$")
SEPARATORS = (",", " , ", ", ", ",,", "")
ssl_rules = st.one_of(
    st.just("DEFAULT"),
    st.builds(
        "RULE:{}/{}/{}".format,
        st.sampled_from(PATTERNS),
        st.sampled_from(REPLACEMENTS),
        st.sampled_from(["", "L", "U"]),
    ),
    st.sampled_from(("", "RULE:", "default", "RULE:a/b", "RULE:a/b/X", "DEFAULTx", "RULE:a/b/L x")),
)


@pytest.mark.jvm
@settings(max_examples=400)
@given(st.lists(st.tuples(ssl_rules, st.sampled_from(SEPARATORS)), max_size=3), texts)
@example([("RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/", ","), ("RULE:^.*$/anonymous/U", ","), ("DEFAULT", "")], NAMES[0])
@example([("RULE:(a)/$8$9/", "")], "a")
def test_distinguished_names_are_mapped_as_kafka_maps_them(
    classes: KafkaClasses, drawn: list[tuple[str, str]], name: str
) -> None:
    rules = "".join(rule + separator for rule, separator in drawn)
    theirs = attempt(classes.common("security.ssl.SslPrincipalMapper").fromRules, rules)
    try:
        mapper = SslPrincipalMapper(rules)
    except RuleError:
        if theirs.error is None:  # the replacement is wrong, which Kafka notices when the rule applies
            assert any(part in rules for part in ("$1", "$2", "$/", "$9"))
        return
    assert theirs.error is None
    _compare(_ours(mapper.name, name), attempt(theirs.value.getName, name))


kerberos_rules = st.one_of(
    st.just("DEFAULT"),
    st.builds(
        "RULE:[{}:{}]{}{}{}".format,
        st.sampled_from(("1", "2", "2", "0", "")),
        st.sampled_from(("$1", "$1@$0", "$1/$2", "$2-$1", "x", "", "$1$0", "$3", "$")),
        st.sampled_from(("", "", "(.*@REALM)", "(a.*)", "([^/]*)")),
        st.sampled_from(("", "s/@.*//", "s/a/b/", "s/a/b/g", "s/(.)a/$1/", "s/$1/x/", "s/x/$1/")),
        st.sampled_from(("", "/L", "/U", "L", "/")),
    ),
    st.sampled_from(("", "RULE:", "default", "DEFAULT/L", "RULE:[1:$1]x")),
)
kerberos_names = st.sampled_from(
    (
        "alice@REALM",
        "kafka/host@REALM",
        "alice@OTHER",
        "Aa/ba@REALM",
        "alice",
        "a/b",
        "a@b@c",
        "a/b/c@R",
        "@",
        "/@",
        "a@",
    )
)


@pytest.mark.jvm
@settings(max_examples=400)
@given(st.lists(kerberos_rules, max_size=3), kerberos_names)
@example(["RULE:[2:$1@$0](.*@REALM)s/@.*///L", "DEFAULT"], "Aa/ba@REALM")
def test_kerberos_names_are_mapped_as_kafka_maps_them(classes: KafkaClasses, rules: list[str], name: str) -> None:
    namer = classes.common("security.kerberos.KerberosShortNamer")
    theirs = attempt(namer.fromUnparsedRules, "REALM", java_list(map(jpype.JString, rules)))
    parsed = attempt(classes.common("security.kerberos.KerberosName").parse, name)
    if parsed.error is not None:
        with pytest.raises(RuleError, match="Malformed Kerberos name"):
            KerberosName.parse(name)
        return
    try:
        ours = KerberosShortNamer("REALM", rules)
    except RuleError:
        if theirs.error is None:  # Kafka notices a wrong parameter or replacement when the rule applies
            assert any(part in rule for rule in rules for part in ("$", "[0:", "s/"))
        return
    assert theirs.error is None
    _compare(_ours(ours.short_name, KerberosName.parse(name)), attempt(theirs.value.shortName, parsed.value))


@pytest.mark.jvm
@given(st.text("User:alice* ;", max_size=10))
def test_principals_are_read_as_kafka_reads_them(classes: KafkaClasses, text: str) -> None:
    theirs = attempt(classes.common("utils.SecurityUtils").parseKafkaPrincipal, text)
    if theirs.error is not None:
        with pytest.raises(PrincipalError) as caught:
            parse_principal(text)
        assert str(caught.value) == theirs.message
    else:
        ours = parse_principal(text)
        assert ours == (str(theirs.value.getPrincipalType()), str(theirs.value.getName()))
        assert str(ours) == str(theirs.value)


def test_super_users_are_separated_by_semicolons() -> None:
    found = parse_super_users("User:CN=a,O=b; User:c;;")
    assert found == {KafkaPrincipal("User", "CN=a,O=b"), KafkaPrincipal("User", "c")}
    assert parse_super_users("") == frozenset()
    with pytest.raises(PrincipalError):
        parse_super_users("User:a;;User:b")
