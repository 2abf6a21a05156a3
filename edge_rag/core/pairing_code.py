"""The one-time code with which a new client gets its credentials; pure except for random numbers.

A code has 42 symbols of Crockford's base 32 (https://www.crockford.com/base32.html), 5 bits each, in groups of six:

    100 bits  the start of the SHA-256 of the daemon's TLS certificate
     20 bits  the key: which code it is
     60 bits  the secret
     30 bits  checksum

The first part is for the client only. It takes the certificate from the connection, compares it, and ends the
connection if it differs. Everything it sends afterwards goes over TLS with the holder of the certificate's key. A man
in the middle therefore learns neither key nor secret. k3s puts the hash of its authority into its secure tokens
(https://docs.k3s.io/cli/token) and kubeadm takes it beside the token
(https://kubernetes.io/docs/reference/setup-tools/kubeadm/kubeadm-join/), for the same reason. To deceive a client, an
attacker needs a certificate whose SHA-256 starts like that of the box, 2**100 hashes on average, and nothing in the
code can be tested without calling the box.

The box counts attempts at the secret: with five attempts at 60 bits a guess succeeds once in 2**57. The secret cannot
be found from its hash, which is all that the box stores, within the minutes that a code is valid.

The checksum is Bech32m's (BIP 350): up to four mistyped symbols are always detected before anything is sent, so typing
errors do not count as attempts.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Self

SYMBOLS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

_SERVER_SYMBOLS: Final = 20
_KEY_SYMBOLS: Final = 4
_SECRET_SYMBOLS: Final = 12
_CHECK_SYMBOLS: Final = 6
_GROUP: Final = 6
_LENGTH: Final = _SERVER_SYMBOLS + _KEY_SYMBOLS + _SECRET_SYMBOLS + _CHECK_SYMBOLS

_ALIASES: Final = str.maketrans("ILO", "110")
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32M: Final = 0x2BC830A3


@dataclass(frozen=True, slots=True)
class PairingCode:
    """A pairing code.

    Attributes:
        server: First 100 bits of the SHA-256 of the daemon's certificate, DER, as symbols.
        key: Which code it is, 4 symbols; not secret.
        secret: 12 symbols; not in the value's representation.
    """

    server: str
    key: str
    secret: str = field(repr=False)

    @classmethod
    def make(cls, certificate_sha256: bytes) -> Self:
        """Creates a code for the daemon whose certificate has this SHA-256, 32 bytes."""
        return cls(_server_part(certificate_sha256), _random(_KEY_SYMBOLS), _random(_SECRET_SYMBOLS))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a code as typed: upper or lower case, O for 0, I and L for 1, hyphens and spaces anywhere."""
        symbols = re.sub(r"[\s-]", "", text).upper().translate(_ALIASES)
        if any(symbol not in SYMBOLS for symbol in symbols):
            raise ValueError("it has characters that are not in any code")
        if len(symbols) != _LENGTH:
            raise ValueError(f"a code has {_LENGTH} letters and digits, this has {len(symbols)}")
        if _remainder(SYMBOLS.index(symbol) for symbol in symbols) != _BECH32M:
            raise ValueError("it is mistyped")
        key_at, secret_at = _SERVER_SYMBOLS, _SERVER_SYMBOLS + _KEY_SYMBOLS
        return cls(symbols[:key_at], symbols[key_at:secret_at], symbols[secret_at : secret_at + _SECRET_SYMBOLS])

    def text(self) -> str:
        """Returns the code as displayed."""
        symbols = self.server + self.key + self.secret
        values = [SYMBOLS.index(symbol) for symbol in symbols]
        check = _remainder([*values, *[0] * _CHECK_SYMBOLS]) ^ _BECH32M
        symbols += "".join(
            SYMBOLS[check >> 5 * (_CHECK_SYMBOLS - 1 - position) & 31] for position in range(_CHECK_SYMBOLS)
        )
        return "-".join(symbols[start : start + _GROUP] for start in range(0, _LENGTH, _GROUP))

    def is_for(self, certificate: bytes) -> bool:
        """Whether the code was created by the daemon with this certificate, DER."""
        return hmac.compare_digest(self.server, _server_part(hashlib.sha256(certificate).digest()))


def is_key(text: str) -> bool:
    """Whether a text has the form of a code's key."""
    return _has_form(text, _KEY_SYMBOLS)


def is_secret(text: str) -> bool:
    """Whether a text has the form of a code's secret."""
    return _has_form(text, _SECRET_SYMBOLS)


def _has_form(text: str, length: int) -> bool:
    return len(text) == length and all(symbol in SYMBOLS for symbol in text)


def _random(length: int) -> str:
    return "".join(secrets.choice(SYMBOLS) for _ in range(length))


def _server_part(sha256: bytes) -> str:
    number = int.from_bytes(sha256, "big") >> 8 * len(sha256) - 5 * _SERVER_SYMBOLS
    return "".join(SYMBOLS[number >> 5 * (_SERVER_SYMBOLS - 1 - position) & 31] for position in range(_SERVER_SYMBOLS))


def _remainder(values: Iterable[int]) -> int:
    """Returns the remainder of a polynomial over GF(32) modulo Bech32's generator, six symbols in 30 bits."""
    remainder = 1
    for value in values:
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ value
        for position, generator in enumerate(_GENERATOR):
            remainder ^= generator if top >> position & 1 else 0
    return remainder
