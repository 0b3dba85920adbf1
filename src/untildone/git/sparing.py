"""What must not leave a machine, taken out of every state of a run before it travels.

Files are known by their names, or by what stands in them. Those that the user has committed are in the history anyway;
those that only a saved state holds are replaced in it by what was committed, or left out. The states here stay as they
are: others take their place on the way.
"""

import asyncio
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.git.repository import NO_HOOKS, Repository

KEYS = re.compile(
    rb"(?i)(?:.*/)?(?:(?![^/]*(?:example|sample|template|dist))(?:\.env(?:\.[^/]+)?|[^/]+\.env)|\.envrc|[._]netrc|\.npmrc"
    rb"|\.pypirc|\.git-credentials|\.pgpass|\.my\.cnf|\.htpasswd|\.dockercfg|id_(?:rsa|dsa|ecdsa|ed25519)[^/]*"
    rb"|[^/]*\.(?:pem|key|p12|pfx|ppk|jks|keystore|kdbx|ovpn|tfvars|tfstate)(?:\.(?:bak|backup|old|orig|save|\d+))?~?"
    rb"|credentials(?:\.(?:json|ya?ml|toml|ini|txt|csv|xml))?|[^/]*kubeconfig[^/]*|(?:\.aws|\.ssh|\.kube|\.gnupg)/.*"
    rb"|[^/]*secrets?\.(?:json|ya?ml|toml|ini|txt|properties))",
    re.DOTALL,
)
"""Files that are known for what must not leave a machine."""
AT_ONCE = 32 << 20
READ_IN_ALL = 512 << 20
"""Bytes that are looked through; what is beyond stays behind unread: its parcel would be too large anyway."""

Tells = Callable[[bytes], bool]
"""Whether a content holds a secret."""
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY")
_GZIP = b"\x1f\x8b"
_UNNAMED = b"(a file whose name is a secret)"
_GONE = b"000000"
_SUBMODULE = b"160000"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file as a state has it, and as it was before."""

    path: bytes
    content: str
    mode: bytes
    had: str
    had_mode: bytes


@dataclass(frozen=True, slots=True)
class Spared:
    """What travels in place of what."""

    commits: Mapping[str, str] = field(default_factory=dict)
    """By the commits they stand for; those that are sent as they are are not among them."""
    paths: tuple[bytes, ...] = ()
    """Files that stay behind."""


async def spare(repository: Repository, states: Sequence[tuple[str, str | None]], tells: Tells) -> Spared:
    """Make states without what must not leave: commits, parents first, each with the one that it is compared with."""
    changed = await _changed(repository, states)
    secret = await _secret(repository, {entry for entries in changed.values() for entry in entries}, tells)
    if not secret:
        return Spared()
    commits: dict[str, str] = {}
    for commit, base in states:
        kept_out = [entry for entry in changed.get(commit, ()) if (entry.path, entry.content) in secret]
        raw = (await repository.git("cat-file", "commit", commit)).out
        if kept_out or any(parent in commits for parent in _parents(raw)):
            # A base that was itself made without them has none to fall back to; one that is published has.
            tree = await _tree_without(repository, commits.get(base or "", ""), commit, kept_out, secret)
            commits[commit] = await _rewritten(repository, raw, tree, commits)
    # Their names travel, to be told.
    return Spared(commits, tuple(sorted({_UNNAMED if tells(path) else path for path, _ in secret})))


async def _changed(repository: Repository, states: Sequence[tuple[str, str | None]]) -> dict[str, list[_Entry]]:
    """What each state has that the commit before it has not."""
    asked = "".join(f"{commit} {base}\n" if base else f"{commit}\n" for commit, base in states).encode()
    how = ("-r", "-z", "--root", "--no-renames", "--no-ext-diff", "--diff-filter=AMT", "--ignore-submodules=all")
    out = (await repository.git("diff-tree", "--stdin", *how, stdin=asked)).out
    found: dict[str, list[_Entry]] = {}
    commit = ""
    words = iter(out.split(b"\0"))
    for word in words:
        if word.startswith(b":"):
            had_mode, mode, had, content, _ = word[1:].split(b" ")
            path = next(words)
            if mode != _SUBMODULE:
                found[commit].append(_Entry(path, content.decode(), mode, had.decode(), had_mode))
        elif word:
            commit = word.decode().split()[0]
            found[commit] = []
    return found


async def _secret(repository: Repository, entries: Iterable[_Entry], tells: Tells) -> set[tuple[bytes, str]]:
    """Which contents, under which names, must not leave."""
    entries = sorted(entries, key=lambda entry: (entry.path, entry.content))
    found = {(entry.path, entry.content) for entry in entries if KEYS.fullmatch(entry.path) or tells(entry.path)}
    contents = {entry.content for entry in entries if (entry.path, entry.content) not in found}
    telling = await _telling(repository, sorted(contents), tells)
    return found | {(entry.path, entry.content) for entry in entries if entry.content in telling}


async def _telling(repository: Repository, contents: Sequence[str], tells: Tells) -> set[str]:
    found: set[str] = set()
    group: list[str] = []
    size = read = 0
    for content, length in (await _sizes(repository, contents)).items():
        read += length
        if length > AT_ONCE or read > READ_IN_ALL:
            found.add(content)
            continue
        if size + length > AT_ONCE:
            found |= await _telling_of(repository, group, tells)
            group, size = [], 0
        group.append(content)
        size += length
    return found | await _telling_of(repository, group, tells)


async def _telling_of(repository: Repository, contents: Sequence[str], tells: Tells) -> set[str]:
    if not contents:
        return set()
    out = (await repository.git("cat-file", "--batch", stdin="".join(f"{name}\n" for name in contents).encode())).out
    return await asyncio.to_thread(_those_that_tell, out, contents, tells)


def _those_that_tell(out: bytes, contents: Sequence[str], tells: Tells) -> set[str]:
    found, at = set(), 0
    for name in contents:
        start = out.index(b"\n", at) + 1
        at = start + int(out[at : start - 1].rpartition(b" ")[2])
        content = out[start:at]
        at += 1
        if any(_PRIVATE_KEY.search(reading) or tells(reading) for reading in _readings(content)):
            found.add(name)
    return found


def _readings(content: bytes) -> Iterator[bytes]:
    """A content as it is, as it reads where letters take two bytes each, and what is packed in it."""
    yield content
    if b"\0" in content:
        yield content.replace(b"\0", b"")
    if content.startswith(_GZIP):
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
        with suppress(zlib.error):
            yield unpacking.decompress(content, AT_ONCE)


async def _sizes(repository: Repository, contents: Sequence[str]) -> dict[str, int]:
    if not contents:
        return {}
    asked = "".join(f"{name}\n" for name in contents).encode()
    answer = await repository.git("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked)
    return {name: int(size) for name, size in (line.split(" ") for line in answer.text.split("\n"))}


async def _tree_without(
    repository: Repository, base: str, commit: str, kept_out: Sequence[_Entry], secret: set[tuple[bytes, str]]
) -> str:
    """The tree of a state with what was there before in place of what stays behind."""
    if base:
        # Its base was made anew: what was secret there is secret here, changed or not.
        lines = [_line(_GONE, "0" * len(commit), path) for path in await _held(repository, commit, secret)]
    else:
        lines = [_line(entry.had_mode, entry.had, entry.path) for entry in kept_out]
    with tempfile.TemporaryDirectory(prefix="untildone-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        await repository.git(*NO_HOOKS, "read-tree", commit, env=env)
        await repository.git(*NO_HOOKS, "update-index", "-z", "--index-info", stdin=b"".join(lines), env=env)
        return (await repository.git(*NO_HOOKS, "write-tree", env=env)).text


async def _held(repository: Repository, commit: str, secret: set[tuple[bytes, str]]) -> list[bytes]:
    listed = (await repository.git("ls-tree", "-r", "-z", "--full-tree", commit)).out.split(b"\0")[:-1]
    rows = ((said.split(b" ")[-1].decode(), path) for said, _, path in (row.partition(b"\t") for row in listed))
    return [path for content, path in rows if (path, content) in secret]


def _line(mode: bytes, content: str, path: bytes) -> bytes:
    return mode.lstrip(b"0").rjust(1, b"0") + b" " + content.encode() + b"\t" + path + b"\0"


def _parents(raw: bytes) -> list[str]:
    lines = raw.partition(b"\n\n")[0].split(b"\n")
    return [line[7:].decode() for line in lines if line.startswith(b"parent ")]


async def _rewritten(repository: Repository, raw: bytes, tree: str, commits: Mapping[str, str]) -> str:
    """The same commit with another tree: whoever packs it again gets the same one again."""
    head, _, said = raw.partition(b"\n\n")
    lines = [b"tree " + tree.encode(), *head.split(b"\n")[1:]]
    head = b"\n".join(lines)
    for old, new in commits.items():
        head = head.replace(b"parent " + old.encode(), b"parent " + new.encode())
        said = said.replace(old.encode(), new.encode())  # it names the commit that was checked out
    done = await repository.git(*NO_HOOKS, "hash-object", "-t", "commit", "-w", "--stdin", stdin=head + b"\n\n" + said)
    return done.text
