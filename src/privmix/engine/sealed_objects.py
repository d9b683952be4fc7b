"""Objects encrypted for a cluster's object store: Ray spills it to disks when it is full."""
# The key is in memory alone. Ray sends small arguments, such as the key, from process to process, never through its
# store: spilled files are useless once the processes have ended.

import pickle
import secrets
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.engine.cluster import ClusterLost

_KEY_BYTES: Final = 32
_NONCE: Final = 12
_TAG: Final = 16


@dataclass(frozen=True, eq=False)
class Sealed:
    """An object that only a key holder can open: encrypted uint8 pieces, and a nonce and a tag for each."""

    pieces: tuple[NDArray[np.uint8], ...]
    seals: tuple[bytes, ...]

    def __repr__(self) -> str:
        return "<Sealed>"


class ObjectKey:
    """Encrypts objects by AES-256-GCM, under a 32-byte key that no other process has and that no disk holds.

    Formal guarantees:
        * Secret: without the key nothing of an object shows but how large its arrays are.
        * Whole: an object that was changed does not open, nor does one that was sealed as another.
        * Not in the store: it is small enough that Ray never puts it there, where it is an argument by itself.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key

    def __repr__(self) -> str:
        return "<ObjectKey>"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectKey, (self._key,)

    def seal(self, what: Any, name: str, *, spent: bool = False) -> Sealed:
        """Return ``what`` encrypted under a ``name`` of its own; ``spent`` arrays are encrypted in place."""
        from ray import cloudpickle

        buffers: list[pickle.PickleBuffer] = []
        picklers: Any = cloudpickle
        head = picklers.dumps(what, protocol=5, buffer_callback=buffers.append)
        pieces, seals = list[NDArray[np.uint8]](), list[bytes]()
        for number, content in enumerate([memoryview(head), *(buffer.raw() for buffer in buffers)]):
            piece = np.frombuffer(content, np.uint8)
            own = piece if spent and not content.readonly else np.empty_like(piece)
            seals.append(self._encrypt(_of(name, number), piece, own))
            pieces.append(own)
        return Sealed(tuple(pieces), tuple(seals))

    def opened(self, sealed: Sealed, name: str) -> Any:
        """Return what was sealed under this name, with writable arrays; raise where key, name or content differ."""
        parts = zip(sealed.pieces, sealed.seals, strict=True)
        contents = [self._decrypt(_of(name, number), *part) for number, part in enumerate(parts)]
        # Every piece was authenticated above: none but a key holder can have made this pickle.
        return pickle.loads(contents[0].tobytes(), buffers=contents[1:])

    def _encrypt(self, about: bytes, piece: NDArray[np.uint8], into: NDArray[np.uint8]) -> bytes:
        # A nonce that is used twice under one key breaks GCM.
        nonce = secrets.token_bytes(_NONCE)
        working: Any = self._cipher(nonce, None).encryptor()
        working.authenticate_additional_data(about)
        working.update_into(piece, into)
        working.finalize()
        tag: bytes = working.tag
        return nonce + tag

    def _decrypt(self, about: bytes, piece: NDArray[np.uint8], seal: bytes) -> NDArray[np.uint8]:
        from cryptography.exceptions import InvalidTag

        found = np.empty_like(piece)
        working: Any = self._cipher(seal[:_NONCE], seal[_NONCE:]).decryptor()
        working.authenticate_additional_data(about)
        working.update_into(piece, found)
        try:
            working.finalize()
        except InvalidTag:
            raise ClusterLost("ray: an object in its store was changed") from None
        return found

    def _cipher(self, nonce: bytes, tag: bytes | None) -> Any:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(self._key), modes.GCM(nonce, tag))


def _of(name: str, number: int) -> bytes:
    return f"privmix object {number}: {name}".encode()
