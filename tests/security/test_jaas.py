"""JAAS configurations beside Kafka's JaasConfig and JaasContext."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.broker.security.state.jaas import JaasError, LoginModule, parse_module, parse_modules
from tests.security.kafka_classes import KafkaClasses, Outcome, attempt, java_map

PIECES = ["a.B", "org.apache.Kafka$Module", "required", "OPTIONAL", "sufficient", "wrong", " ", " ", "\n", "\r\n", "\t"]
PIECES += [
    "=",
    "=",
    ";",
    ";",
    ' u="x"',
    " p='y z'",
    ' q="a\\"b"',
    ' n="\\101\\n\\q\\8\\47\\400\\0"',
    " m=word-1.2_3",
    " d=5",
]
PIECES += [
    "/",
    "// c",
    "/* c */",
    "/* \n* */",
    "/*",
    '"',
    "'",
    "\\",
    "-",
    "-1",
    ".5",
    "#",
    "ü",
    "中",
    "\u0090",
    "\U0001f600",
    "0x=1",
]
VALID = ["a.B required", ' u="x"', " p='y';", " q=z", ";", " /* c */ ", "\n", " b OPTIONAL;", " c requisite e='';"]


def _kafka(classes: KafkaClasses, text: str) -> Outcome:
    return attempt(classes.common("security.JaasConfig"), "KafkaServer", text)


@pytest.mark.jvm
@settings(max_examples=800)
@given(
    st.lists(st.sampled_from(VALID), max_size=7).map("".join)
    | st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
)
@example("a.B required u=\"x\" p='y';")
@example('a required u="a\nb";')
@example('a required u="unterminated;')
@example('a required u="unterminated\\')
@example('a required u="unterminated\\";')
@example("a required u=x/y;\n;")
@example("a required u=\"it's\" v='\\'';b optional;")
@example("a required 5=x;")
@example("a required u=;=;")
def test_configurations_are_read_as_kafka_reads_them(classes: KafkaClasses, text: str) -> None:
    theirs = _kafka(classes, text)
    if theirs.error is not None:
        with pytest.raises(JaasError):
            parse_modules(text)
        return
    entries = list(theirs.value.getAppConfigurationEntry("KafkaServer"))
    if any(key is None for each in entries for key in each.getOptions().keySet()):
        with pytest.raises(JaasError, match="Value not specified"):  # Kafka takes a number for an option without name
            parse_modules(text)
        return
    assert parse_modules(text) == [
        LoginModule(
            str(each.getLoginModuleName()),
            str(each.getControlFlag()).rpartition(" ")[2],
            {str(key): str(value) for key, value in each.getOptions().items()},
        )
        for each in entries
    ]


@pytest.mark.jvm
@pytest.mark.parametrize("text", ["a required u=v;", "a required u=v; b required;", "", "a required"])
def test_a_property_has_one_module(classes: KafkaClasses, text: str) -> None:
    context = classes.common("security.JaasContext")
    password = classes.common("config.types.Password")
    theirs = attempt(context.loadClientContext, java_map({"sasl.jaas.config": password(text)}))
    if theirs.error is None:
        assert parse_module(text) == ("a", "required", {"u": "v"})
    else:
        with pytest.raises(JaasError) as caught:
            parse_module(text)
        assert str(caught.value) == theirs.message


@given(st.text('secret="=; \n/', max_size=30))
def test_no_error_has_an_option(junk: str) -> None:
    for text in (f'a required password="secret" {junk}', f"a secret {junk}", f'a required password="secret\n" {junk}'):
        try:
            parse_modules(text)
        except JaasError as error:
            message = str(error)
            assert "secret" not in message


def test_class_names_are_data() -> None:
    module = parse_module('com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";')
    assert module.name == "com.sun.security.auth.module.JndiLoginModule"
    assert module.options == {"user.provider.url": "ldap://x"}
