"""Keys of one run: a CURVE pair for each process, made at its start and gone with its folder.

Guarantees: a secret is in one file, readable by its user only (0600), and in the memory of the
process it belongs to; nothing is derived from a seed, a name or a clock.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from flowgraph.ir.errors import ConfigurationError

ORCHESTRATOR = "orchestrator"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair, each 40 characters of Z85. The secret is in no representation."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def new(cls) -> "KeyPair":
        public, secret = zmq.curve_keypair()
        return cls(public, secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """What one process knows: its own pair, and everybody's public key by name."""

    name: str
    own: KeyPair
    peers: Mapping[str, bytes]

    def write(self, folder: Path) -> Path:
        """`<folder>/<name>.key`, mode 0600 from its first moment. Raises FileExistsError."""
        path = folder / f"{self.name}.key"
        text = json.dumps(
            {
                "name": self.name,
                "public": self.own.public.decode(),
                "secret": self.own.secret.decode(),
                "peers": {name: key.decode() for name, key in self.peers.items()},
            }
        )
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        return path

    @classmethod
    def read(cls, path: Path) -> "Keyring":
        """Raises ConfigurationError when others could read it, or it is no key file."""
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise ConfigurationError(
                f"{path} may be read by others (mode {mode:o})", hint=f"chmod 600 {path}"
            )
        try:
            plain = json.loads(path.read_text())
            return cls(
                name=plain["name"],
                own=KeyPair(plain["public"].encode(), plain["secret"].encode()),
                peers={name: key.encode() for name, key in plain["peers"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(f"{path} is not a key file: {error!r}") from error


def new_keyrings(names: Iterable[str]) -> dict[str, Keyring]:
    """A fresh keyring for each name, all knowing each other."""
    pairs = {name: KeyPair.new() for name in names}
    peers = {name: pair.public for name, pair in pairs.items()}
    return {name: Keyring(name=name, own=pair, peers=peers) for name, pair in pairs.items()}
