"""Profiles, environment variables, and properties of clients: which connection a command makes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.admin.properties import SECRETS, security_of_properties, shown_properties
from odradek.cli import main
from odradek.commands import profiles
from odradek.commands.failures import CommandFailure
from odradek.commands.profiles import ProfileError, config_path, read_profiles, resolve
from odradek.commands.session import parse_bootstrap
from odradek.protocol.client.errors import SecurityConfigError
from odradek.protocol.client.login import Login

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice-secret";'
CONFIG = """\
# my clusters
color = "blue"  # of another program
default_profile = "local"

[profiles.local]
bootstrap_servers = "localhost:9092"  # the laptop

[profiles.prod]
bootstrap_servers = "kafka-1:9093,kafka-2:9093"
[profiles.prod.properties]
"security.protocol" = "SSL"
ssl.endpoint.identification.algorithm = ""
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv(profiles.VARIABLE, str(path))
    return path


def odradek(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_place_of_the_file() -> None:
    assert config_path({"ODRADEK_CONFIG": "/a/b.toml", "HOME": "/h"}) == Path("/a/b.toml")
    assert config_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/odradek/config.toml")
    assert config_path({"HOME": "/h"}) == Path("/h/.config/odradek/config.toml")


def test_what_a_connection_is_made_of(file: Path, tmp_path: Path) -> None:
    assert resolve(None, None, None) == (None, {})
    file.write_text(CONFIG)
    prod = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert resolve(None, None, None) == ("localhost:9092", {})
    assert resolve("other:1", None, None) == ("other:1", {})
    assert resolve(None, "prod", None) == ("kafka-1:9093,kafka-2:9093", prod)
    assert resolve("other:1", "prod", None) == ("other:1", prod)
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=third:1\nsecurity.protocol=SASL_SSL\n")
    given = {"bootstrap.servers": "third:1", "security.protocol": "SASL_SSL"}
    assert resolve(None, None, properties) == ("third:1", given)
    assert resolve(None, "prod", properties) == ("kafka-1:9093,kafka-2:9093", prod | given)
    with pytest.raises(ProfileError, match=r"there is no profile none in .*; it has local, prod"):
        resolve(None, "none", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles = 1", "profiles is not a table"),
        ("[profiles]\na = 1", r"profiles\.a is not a table"),
        ("[profiles.a]\nbootstrap = 1", r"profiles\.a has bootstrap; allowed: bootstrap_servers, command_config"),
        ("[profiles.a", "is not TOML"),
    ],
)
def test_a_file_with_mistakes(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ProfileError, match=message):
        read_profiles(file)
    assert odradek("topic", "list", "--profile", "a").exit_code == 2


def test_a_profile_by_option_is_used_before_an_address_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(CONFIG.replace("localhost:9092", "127.0.0.1:1"))
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:2")
    assert "answers at 127.0.0.1:1:" in odradek("topic", "list", "--profile", "local").stderr
    assert "answers at 127.0.0.1:2:" in odradek("topic", "list").stderr
    assert "answers at 127.0.0.1:3:" in odradek("topic", "list", "-b", "127.0.0.1:3").stderr
    monkeypatch.delenv("ODRADEK_BOOTSTRAP_SERVER")
    monkeypatch.setenv("ODRADEK_PROFILE", "local")
    ended = odradek("topic", "list")
    assert (ended.exit_code, "answers at 127.0.0.1:1:" in ended.stderr) == (5, True)


def test_profiles_are_imported_shown_and_removed(file: Path, tmp_path: Path) -> None:
    file.write_text(CONFIG)
    properties = tmp_path / "stage.properties"
    properties.write_text(
        f"bootstrap.servers=stage:9093\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={PLAIN}\nacks=all\n"
    )
    assert odradek("profile", "import", str(properties)).exit_code == 0
    bootstrap, found = resolve(None, "stage", None)
    assert bootstrap == "stage:9093"
    assert found == {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    assert "blue" in file.read_text()
    assert "# my clusters" in file.read_text()
    assert "# the laptop" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = odradek("profile", "show", "stage")
    assert "sasl.jaas.config   (hidden)" in shown.stdout
    assert "alice-secret" not in shown.stdout + odradek("profile", "show", "stage", "-o", "json").stdout
    assert odradek("profile", "import", str(properties)).exit_code == 1
    assert odradek("profile", "import", str(properties), "--replace", "--default").exit_code == 0
    assert read_profiles(file).default == "stage"
    assert odradek("profile", "use", "prod").exit_code == 0
    assert odradek("profile", "add", "test", "-b", "t:1").exit_code == 0
    listed = odradek("profile", "list").stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [
        ["local", "localhost:9092", "PLAINTEXT", "no"],
        ["prod", "kafka-1:9093,kafka-2:9093", "SSL", "yes"],
        ["stage", "stage:9093", "SASL_PLAINTEXT", "no"],
        ["test", "t:1", "PLAINTEXT", "no"],
    ]
    assert odradek("profile", "remove", "prod", "--yes").exit_code == 0
    assert read_profiles(file).default is None
    for command in (("show", "prod"), ("use", "prod"), ("remove", "prod", "--yes")):
        assert odradek("profile", *command).exit_code == 3
    properties.write_text("security.protocol=TLS\n")
    assert odradek("profile", "import", str(properties), "--name", "wrong").exit_code == 2


def test_a_first_profile_is_the_default(file: Path) -> None:
    assert (
        odradek("profile", "add", "local", "-b", "localhost:9092").stdout == f"profile local (default) is in {file}\n"
    )
    assert resolve(None, None, None) == ("localhost:9092", {})


def test_addresses() -> None:
    assert parse_bootstrap("a:1, b,[::1]:3,[::2],SSL://c:4") == [
        ("a", 1),
        ("b", 9092),
        ("::1", 3),
        ("::2", 9092),
        ("c", 4),
    ]
    for wrong in ("", "a:x", "a:0", ":1"):
        with pytest.raises(CommandFailure, match="is not host:port"):
            parse_bootstrap(wrong)


# Properties of clients


def messages_of(login: Login | None) -> list[bytes]:
    """What a login sends before the broker answers."""
    assert login is not None
    sent: list[bytes] = []

    def send(message: bytes) -> bytes:
        sent.append(message)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        login.exchange(send)
    return sent


def test_the_same_login_by_both_kinds_of_names() -> None:
    java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    rdkafka = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "alice"}
    for properties in (java, {**rdkafka, "sasl.password": "alice-secret"}):
        assert messages_of(security_of_properties(properties).login) == [b"\0alice\0alice-secret"]
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    token = {
        **java,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{scram} required username="id" password="hmac" tokenauth="true";',
    }
    assert messages_of(security_of_properties(token).login)[0].endswith(b",tokenauth=true")
    security = security_of_properties(java | {"security.protocol": "PLAINTEXT"})
    assert (security.login, security.context) == (None, None)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"sasl.mechanism": "PLAIN"}, "requires sasl.username and sasl.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "nothing"}, "sasl.jaas.config: Login module control flag"),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            "Krb5LoginModule is not supported; allowed: PlainLoginModule",
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": 'a.OAuthBearerLoginModule required clientId="i" clientSecret="s";',
            },
            r"oidc requires sasl\.oauthbearer\.token\.endpoint\.url$",
        ),
    ],
)
def test_properties_without_a_login(properties: dict[str, str], message: str) -> None:
    with pytest.raises(SecurityConfigError, match=message):
        security_of_properties({"security.protocol": "SASL_PLAINTEXT", **properties})


def test_secrets_are_hidden() -> None:
    assert set(shown_properties(dict.fromkeys(SECRETS, "secret")).values()) == {"(hidden)"}
    assert shown_properties({"ssl.ca.location": "/ca.pem"}) == {"ssl.ca.location": "/ca.pem"}
