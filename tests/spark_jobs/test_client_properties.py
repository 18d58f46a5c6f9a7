"""Properties of Kafka's clients from arguments and files; files are read as Java reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.errors import IllegalArgumentException

from odradek.spark_jobs.client_properties import parse_properties, properties_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION = click.Option(["--kafka"], multiple=True)
CONTEXT = click.Context(click.Command("sample"))


def test_later_values_replace_those_of_files(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# of alice\nsasl.mechanism=PLAIN\nkafka.client.rack = a\n")
    found = properties_of(CONTEXT, OPTION, (f"@{file}", "client.rack=b=c"))
    assert found == {"sasl.mechanism": "PLAIN", "client.rack": "b=c"}


def test_no_error_has_a_value(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"sasl.password=\xffsecret\n")
    with pytest.raises(click.BadParameter, match=r"client\.properties cannot be read") as raised:
        properties_of(CONTEXT, OPTION, (f"@{file}",))
    assert "secret" not in str(raised.value)


PIECES = ("key", "a.b", "=", ":", " ", "\t", "\\", "\\\\", "\n", "\r\n", "#", "!", "\\u00e9", "\\n", 'user="alice";')


@pytest.mark.jvm
@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example('sasl.jaas.config=a.Module required \\\n    username="alice" \\\n    password="se=cret";\n')
@example("key\\ with\\=signs : value\\\\\n  ! comment\nlast")
def test_java_reads_the_same_properties(spark: SparkSession, text: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    properties = jvm.java.util.Properties()
    try:
        properties.load(jvm.java.io.StringReader(text))
    except IllegalArgumentException:
        with pytest.raises(ValueError, match="hexadecimal"):
            parse_properties(text)
        return
    # Java has a property without name and value where a file ends in a continued line.
    ours, theirs = (
        {name: value for name, value in found.items() if name or value}
        for found in (parse_properties(text), dict(properties))
    )
    assert ours == theirs
