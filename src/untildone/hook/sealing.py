"""How what hooks wrote down is told from what anybody else wrote there: a keyed hash, with a key of this machine.

The key lies in the state folder, readable by its user alone. An agent runs as that user: one that goes as far as to
read the key can forge. The seal keeps out those who only write.
"""

import os

from untildone.hook.files import read_bytes

KEY_FILE = "notes.key"
KEY_SIZE = 32
SEAL_SIZE = 16


def seal_of(home: str, what: str, content: bytes) -> str:
    """The seal of something, made with the key of this state folder; the key is made where there is none."""
    return _seal(_made_key(home), what, content)


def is_sealed(home: str, what: str, content: bytes, seal: str) -> bool:
    """Whether who has the key wrote this; without a key nobody did."""
    key = _key(home)
    return key is not None and _seal(key, what, content) == seal


def digest(text: str, size: int = SEAL_SIZE) -> str:
    """What tells one text from another; no secret."""
    return _hash(text.encode("utf-8", "surrogateescape"), size, b"")


def _seal(key: bytes, what: str, content: bytes) -> str:
    return _hash(os.fsencode(what) + b"\0" + content, SEAL_SIZE, key)


def _hash(content: bytes, size: int, key: bytes) -> str:
    try:  # without OpenSSL, which `hashlib` loads
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    return blake2b(content, digest_size=size, key=key).hexdigest()


def _key(home: str) -> bytes | None:
    key = read_bytes(os.path.join(home, KEY_FILE), cap=KEY_SIZE)
    return key if key is not None and len(key) == KEY_SIZE else None


def _made_key(home: str) -> bytes:
    """The key; two who make one at once get the same, and one that is spoilt is replaced."""
    key = _key(home)
    if key is not None:
        return key
    os.makedirs(home, mode=0o700, exist_ok=True)
    path = os.path.join(home, KEY_FILE)
    beside = f"{path}.{os.urandom(6).hex()}.new"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(os.urandom(KEY_SIZE))
        try:
            os.link(beside, path)
        except FileExistsError:
            if _key(home) is None:
                os.replace(beside, path)
                beside = ""
    finally:
        if beside:
            os.unlink(beside)
    key = _key(home)
    if key is None:
        raise OSError(f"{path} cannot be read")
    return key
