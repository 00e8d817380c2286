"""The authority's private key in a file, encrypted with a passphrase.

The file is an encrypted PKCS#8 PEM. What encrypts it is not the passphrase itself, because PKCS#8 as our library writes it
makes a guess cheap (2048 rounds of PBKDF2): it is the passphrase stretched by scrypt, which takes 128 MiB and some tenths of
a second per guess. The salt is the digest of the authority's certificate, which lies beside the key and in every kit.
"""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from secfc.errors import ConfigError

LEAST_CHARACTERS = 12
_COST = {"length": 32, "n": 1 << 17, "r": 8, "p": 1}
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


def check_new(passphrase: str) -> str:
    """A passphrase that is to protect a new key; refused if it is short enough to be guessed."""
    if len(passphrase) < LEAST_CHARACTERS:
        raise ConfigError(
            f"the passphrase is too short; choose at least {LEAST_CHARACTERS} characters, for example four words"
        )
    return passphrase


def dump(key: ec.EllipticCurvePrivateKey, passphrase: str | None, salt: bytes) -> bytes:
    """The key as PKCS#8 PEM; None leaves it unencrypted, so that only permissions protect it."""
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        protection = serialization.BestAvailableEncryption(_stretched(check_new(passphrase), salt))
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


def is_encrypted(pem: bytes) -> bool:
    """Whether a passphrase is needed to read this key."""
    return pem.lstrip().startswith(_ENCRYPTED)


def open_encrypted(pem: bytes, passphrase: str, salt: bytes, where: str) -> bytes:
    """The same key unencrypted; a ConfigError that names no secret if the passphrase is another."""
    try:
        key = serialization.load_pem_private_key(pem, _stretched(passphrase, salt))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: the passphrase does not open this key; type it again") from error
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _stretched(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, **_COST).derive(passphrase.encode()).hex().encode()
