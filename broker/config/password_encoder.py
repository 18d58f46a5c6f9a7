"""Password encoder: encrypts the dynamic passwords in the metadata store (KIP-226; Kafka: EncryptingPasswordEncoder).

AlterConfigs sets passwords of key stores and of JAAS for one broker. The broker stores them under a key that PBKDF2
derives from `password.encoder.secret`, in Kafka's format: a broker of Kafka with the same secret reads them. The stored
text contains the algorithms, so it stays readable after a change of every property but the secret.
"""

from __future__ import annotations

import hashlib
import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.config.dynamic import secrets
from odradek.broker.config.types import ConfigError

if TYPE_CHECKING:
    from odradek.broker.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)

_HASHES: Final = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in (1, 224, 256, 384, 512)}
_DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
_CBC: Final = "AES/CBC/PKCS5Padding"
_GCM: Final = "AES/GCM/NoPadding"
_KEY_LENGTHS: Final = (128, 192, 256)
_SALT_SIZE: Final = 256
_FAILED: Final = "Password could not be decoded"


class PasswordEncoder(NamedTuple):
    """The secret, and the algorithms for passwords that are stored from now on."""

    secret: str
    key_factory: str
    cipher: str
    key_length: int
    iterations: int

    def __repr__(self) -> str:
        return f"PasswordEncoder(cipher={self.cipher})"

    def encode(self, password: str) -> str:
        """The text for the metadata store. Raises ConfigError for algorithms that are not supported."""
        from odradek.broker.config import password_ciphers

        salt = os.urandom(_SALT_SIZE)
        key = self._key(self.key_factory, self.cipher, self.key_length, salt, self.iterations)
        plain, parameters = password.encode(), dict[str, object]()
        if self.cipher == _GCM:
            vector, encrypted = password_ciphers.encrypt_gcm(key, plain)
            parameters["authenticationTagLength"] = password_ciphers.GCM_TAG_BITS
        else:
            vector, encrypted = password_ciphers.encrypt_cbc(key, plain)
        parameters |= {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": self.key_length,
            "salt": b64encode(salt).decode(),
            "iterations": self.iterations,
            "encryptedPassword": b64encode(encrypted).decode(),
            "passwordLength": _java_length(password),
            "initializationVector": b64encode(vector).decode(),
        }
        return ",".join(f"{name}:{value}" for name, value in parameters.items())

    def decode(self, text: str) -> str:
        """The password of a stored text. Raises ConfigError, also for one of another secret."""
        from odradek.broker.config import password_ciphers

        try:
            named = {name.strip(): value for name, _, value in (each.rpartition(":") for each in text.split(","))}
            salt, encrypted, vector = (
                b64decode(named[name].strip(), validate=True)
                for name in ("salt", "encryptedPassword", "initializationVector")
            )
            cipher = named["cipherAlgorithm"]
            key = self._key(
                named.get("keyFactoryAlgorithm", _DEFAULT_KEY_FACTORY),
                cipher,
                int(named["keyLength"]),
                salt,
                int(named["iterations"]),
            )
            if cipher == _GCM:
                plain = password_ciphers.decrypt_gcm(key, vector, encrypted, int(named["authenticationTagLength"]) // 8)
            else:
                plain = password_ciphers.decrypt_cbc(key, vector, encrypted)
            password = plain.decode()
            expected = int(named["passwordLength"])
        except (KeyError, ValueError, OverflowError):
            raise ConfigError(_FAILED) from None  # the cause could contain a part of the password
        if _java_length(password) != expected:
            raise ConfigError(f"{_FAILED}, sanity check of length failed")
        return password

    def _key(self, key_factory: str, cipher: str, key_length: int, salt: bytes, iterations: int) -> bytes:
        if key_factory not in _HASHES:
            raise ConfigError(f"password.encoder.keyfactory.algorithm {key_factory}: expected {', '.join(_HASHES)}")
        if cipher not in (_CBC, _GCM):
            raise ConfigError(f"password.encoder.cipher.algorithm {cipher}: expected {_CBC} or {_GCM}")
        if key_length not in _KEY_LENGTHS:
            raise ConfigError(f"password.encoder.key.length {key_length}: expected one of {_KEY_LENGTHS}")
        return hashlib.pbkdf2_hmac(_HASHES[key_factory], self.secret.encode(), salt, iterations, key_length // 8)


def password_encoder(config: BrokerConfig, secret: str = "password.encoder.secret") -> PasswordEncoder | None:
    """The encoder with the secret of a property; None if the property is not set."""
    if config[secret] is None:
        return None
    return PasswordEncoder(
        config[secret].value,
        config["password.encoder.keyfactory.algorithm"] or _DEFAULT_KEY_FACTORY,
        config["password.encoder.cipher.algorithm"],
        config["password.encoder.key.length"],
        config["password.encoder.iterations"],
    )


def to_stored(config: BrokerConfig, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with encrypted passwords (Kafka: toPersistentProps). Raises ConfigError without a secret."""
    names, encoder = secrets(properties), password_encoder(config)
    if names and encoder is None:
        raise ConfigError(f"Password encoder secret not configured: {', '.join(names)}")
    return {**properties, **{name: encoder.encode(properties[name]) for name in names if encoder is not None}}


def from_stored(config: BrokerConfig, stored: Mapping[str, str]) -> dict[str, str]:
    """The properties with passwords in the clear (Kafka: fromPersistentProps), for validation and for use.

    A password that cannot be decoded is logged and left out.
    """
    properties, names = dict(stored), secrets(stored)
    encoder = password_encoder(config) if names else None
    for name in names:
        try:
            if encoder is None:
                raise ConfigError("Password encoder secret not configured")
            properties[name] = encoder.decode(stored[name])
        except ConfigError as error:
            log.error("ignoring dynamic password config that cannot be decoded name=%s error=%s", name, error.message)
            del properties[name]
    return properties


def under_new_secret(config: BrokerConfig, stored: Mapping[str, str]) -> dict[str, str]:
    """The stored properties with passwords of `password.encoder.old.secret` encrypted under the secret of today.

    The old secret may stay configured after that: passwords that it does not decode are left as they are.
    """
    old, new = password_encoder(config, "password.encoder.old.secret"), password_encoder(config)
    changed = dict(stored)
    if old is not None and new is not None:
        for name in secrets(stored):
            try:
                changed[name] = new.encode(old.decode(stored[name]))
            except ConfigError:
                log.debug("the old secret does not decode a dynamic password config name=%s", name)
    return changed


def _java_length(password: str) -> int:
    """The length in UTF-16 units."""
    return len(password.encode("utf-16-le")) // 2
