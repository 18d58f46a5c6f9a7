"""The ciphers of stored passwords: AES in CBC or GCM mode (Kafka: CbcParamsEncoder, GcmParamsEncoder).

A module of its own, because it imports `cryptography`, which a broker without dynamic passwords and TLS does not need.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.padding import PKCS7

GCM_TAG_BITS: Final = 128
_BLOCK: Final = algorithms.AES.block_size
_NONCE_SIZE: Final = 12


def encrypt_cbc(key: bytes, plain: bytes) -> tuple[bytes, bytes]:
    """The initialization vector and the encrypted bytes."""
    vector = os.urandom(_BLOCK // 8)
    padder, encryptor = PKCS7(_BLOCK).padder(), Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return vector, encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()


def encrypt_gcm(key: bytes, plain: bytes) -> tuple[bytes, bytes]:
    """The nonce, and the encrypted bytes with a tag of GCM_TAG_BITS."""
    vector = os.urandom(_NONCE_SIZE)
    return vector, AESGCM(key).encrypt(vector, plain, None)


def decrypt_cbc(key: bytes, vector: bytes, encrypted: bytes) -> bytes:
    """Raises ValueError."""
    decryptor, unpadder = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor(), PKCS7(_BLOCK).unpadder()
    return unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()


def decrypt_gcm(key: bytes, vector: bytes, encrypted: bytes, tag_size: int) -> bytes:
    """`tag_size` is in bytes. Raises ValueError, also for bytes of another key."""
    text, tag = encrypted[:-tag_size], encrypted[-tag_size:]
    decryptor = Cipher(algorithms.AES(key), modes.GCM(vector, tag, min_tag_length=tag_size)).decryptor()
    try:
        return decryptor.update(text) + decryptor.finalize()
    except InvalidTag as error:
        raise ValueError("the tag does not match the encrypted bytes") from error
