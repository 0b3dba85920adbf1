"""A run that goes on on another machine: what it sends along while it works, and how it is taken up elsewhere."""

import asyncio
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from untildone.agents.session_files import install_session, pack_session, session_stamp
from untildone.core.changed import settings_changed
from untildone.core.events import Event, Record, ResetRequested, RunMoved
from untildone.core.fold import fold
from untildone.core.moving import brought_along, moved_spec, sessions_of, unknown_here
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.errors import UplinkDown, UplinkRefused, UsageError, WorkspaceError
from untildone.git.bundle import PackedTree
from untildone.git.unbundle import Received, lay_out, receive_tree
from untildone.ports import Clock, EventLog
from untildone.trees import FOLDERS
from untildone.uplink.fetching import FarRun, Listed, Reader
from untildone.uplink.known_secrets import KnownSecrets
from untildone.uplink.masking import Masking
from untildone.uplink.owed import Account, Accounts
from untildone.uplink.parcels import NOTES, TRANSCRIPT, TREE, Made, Packer, Source
from untildone.uplink.serving import Driver, Line

NOTES_CAP = 1 << 20
BY = "cli"


@runtime_checkable
class _Packs(Protocol):
    async def packed(self, run_id: str, known: str = "") -> PackedTree | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Baggage:
    """Where what a run sends along is found."""

    workspace: object
    config_dir: Path
    """Where Claude keeps its transcripts."""
    env: Mapping[str, str]
    now: Callable[[], float]


def carrying(line: Line | None, log: EventLog, driver: Driver, baggage: Baggage, *, cwd: str) -> Line | None:
    """The same line, on which also travels what another machine needs to go on, if that is wanted."""
    if line is None or not line.settings.portable:
        return line
    secrets = KnownSecrets(baggage.env, cwd, also=(line.settings.token,), now=baggage.now)
    masking = Masking(secrets, line.settings.mask)

    def sources(state: LoopState) -> dict[str, Source]:
        found: dict[str, Source] = {}
        for session in sessions_of(state):
            found[TRANSCRIPT + session] = _session(baggage.config_dir, state.spec.cwd, session, masking)
        found[NOTES] = _notes(Path(state.spec.cwd) / state.spec.notes_file, masking)
        if isinstance(baggage.workspace, _Packs):
            found[TREE] = _tree(baggage.workspace, driver.run_id)
        return found

    packer = Packer(log, driver.run_id, state=lambda: driver.state, sources=sources, tell=driver.tell)
    return replace(line, beside=(*line.beside, packer.beside))


def _tree(workspace: _Packs, run_id: str) -> Source:
    async def make(known: str) -> Made | None:
        packed = await workspace.packed(run_id, known)
        return None if packed is None else (packed.mark, packed.content)

    return make


def _session(config_dir: Path, cwd: str, session: str, masking: Masking) -> Source:
    def pack(known: str) -> Made | None:
        mark = repr(session_stamp(config_dir, cwd, session))
        content = None if mark == known else pack_session(config_dir, cwd, session, mask=masking.lines)
        return None if content is None else (mark, content)

    async def make(known: str) -> Made | None:
        return await asyncio.to_thread(pack, known)

    return make


def _notes(path: Path, masking: Masking) -> Source:
    def pack(known: str) -> Made | None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                content = file.read(NOTES_CAP)
        except OSError:
            return None  # there are none yet
        mark = hashlib.sha256(content).hexdigest()
        said = masking.text(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return None if mark == known else (mark, gzip.compress(said, 1, mtime=0))

    async def make(known: str) -> Made | None:
        return await asyncio.to_thread(pack, known)

    return make


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a run is to go on."""

    log: EventLog
    store: Path
    folder: Path
    """A clone of its repository, or an empty folder."""
    server: str
    sandbox_id: str
    config_dir: Path
    clock: Clock
    host: str
    take: bool = False
    """Also from a machine that is at work on it."""
    agree: Callable[[Sequence[str]], None] = lambda _: None
    """Asked before anything happens about what the run would do here; raises to refuse."""
    settle: Callable[[RunSpec, Policy], tuple[RunSpec, Policy]] = lambda spec, policy: (spec, policy)
    """What a human wants otherwise from now on."""


async def bring_here(reader: Reader, run_id: str, to: Destination) -> list[str]:
    """Take a run over from another machine: tree, conversation, notes and log; returns lines to tell.

    After it `resume` goes on with it here as with any other. Refused, nothing was changed but what git keeps aside.
    """
    if any(row.run_id == run_id for row in await to.log.runs()):
        raise UsageError(f"run {run_id} is here already: go on with `untildone resume {run_id}`")
    far = await reader.run(run_id)
    state = _checked(fold(await reader.control(run_id)), far, to)
    parcels = await _parcels(reader, run_id)
    received = None if parcels is None else await _received(reader, parcels, state, to)
    tenure = await reader.take(run_id, far.tenure)
    # From here on nothing of the old driver's is accepted any more: what there is now is all there will be.
    far = await reader.run(run_id)
    records = await reader.control(run_id)
    state = fold(records)
    newest = await reader.parcels(run_id)
    if received is None or parcels is None or newest.get(TREE) != parcels.get(TREE):
        received = await _received(reader, newest, state, to)
    lines = await lay_out(received)
    lost, told = await _unpack(reader, newest, state, received, to)
    moved = _moved(state, received, tenure, to, lost=lost)
    last = max(far.last_seq, state.last_seq)
    now = to.clock.now()
    records += [Record(seq=last + number, at=now, event=event) for number, event in enumerate(moved, 1)]
    folder = str(received.cwd)
    if not await to.log.adopt(run_id, records, name=state.spec.name, folder=folder, status=state.phase):
        raise UsageError(f"run {run_id} is here already: go on with `untildone resume {run_id}`")
    account = Account(
        run_id=run_id, server=to.server, sandbox_id=to.sandbox_id, acknowledged=far.last_seq, tenure=tenure
    )
    Accounts(to.store).write(account)
    return [*lines, *told]


def _checked(state: LoopState, far: FarRun, to: Destination) -> LoopState:
    """The run, if it can go on here at all."""
    name = one_line(state.spec.name, 60) or far.run_id
    if far.origin != "worker" or state.run_id != far.run_id or state.spec.in_session:
        raise UsageError(f"{far.run_id} is no run that can go on elsewhere: the server has only a copy for eyes of it")
    if state.phase == "completed":
        raise UsageError(f"{name} is done: there is nothing to go on with")
    if far.alive and not to.take:
        where = f" on {one_line(far.host, 60)}" if far.host else ""
        raise UsageError(f"{name} is at work{where}: stop it first, or take it away from there with --take")
    if hidden := unknown_here(to.settle(state.spec, state.policy)[0]):
        raise UsageError(
            f"{name} has hidden checks, whose commands no server is told ({one_line(', '.join(hidden), 100)}): "
            "give them again with --hidden-check"
        )
    to.agree(brought_along(state.spec))
    return state


async def _parcels(reader: Reader, run_id: str) -> Mapping[str, Listed] | None:
    """What there is; None when only the machine that drives the run may look."""
    try:
        return await reader.parcels(run_id)
    except UplinkRefused:
        return None


async def _received(reader: Reader, parcels: Mapping[str, Listed], state: LoopState, to: Destination) -> Received:
    if TREE not in parcels:
        raise UsageError(
            f"the server has no tree of {one_line(state.spec.name, 60)}: only a run with --portable sends it along"
        )
    parcel = await reader.parcel(state.run_id, parcels[TREE])
    return await receive_tree(
        parcel,
        run_id=state.run_id,
        folder=to.folder,
        private=to.store / FOLDERS,
        remote=state.spec.landing.remote,
    )


async def _unpack(
    reader: Reader, parcels: Mapping[str, Listed], state: LoopState, received: Received, to: Destination
) -> tuple[list[str], list[str]]:
    """Put conversation and notes in place; which conversations did not come along, and lines to tell."""
    lost = []
    cwd = str(received.cwd)
    for session in sessions_of(state):
        listed = parcels.get(TRANSCRIPT + session)
        if listed is None:
            lost.append(session)
        else:
            content = await reader.parcel(state.run_id, listed)
            await asyncio.to_thread(install_session, to.config_dir, cwd, session, content)
    if (listed := parcels.get(NOTES)) is not None:
        content = await reader.parcel(state.run_id, listed)
        await asyncio.to_thread(_write_notes, received.cwd, state.spec.notes_file, content)
    return lost, [f"{len(lost)} conversations did not come along: the next one begins anew"] if lost else []


def _write_notes(cwd: Path, name: str, content: bytes) -> None:
    unzip = zlib.decompressobj(wbits=31)
    try:
        notes = unzip.decompress(content, NOTES_CAP)
    except zlib.error as trouble:
        raise UplinkDown(f"the notes of the run are damaged: {trouble}") from trouble
    place = Path(os.path.normpath(cwd / name))
    # What is tracked came with the tree; what lies elsewhere is none of a server's business.
    if not place.is_relative_to(cwd) or not Path(os.path.realpath(place.parent)).is_relative_to(os.path.realpath(cwd)):
        raise WorkspaceError(
            f"the notes file {one_line(name, 100)} lies outside of the run's folder: it is not written"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(place, flags, 0o644), "wb") as file:
            file.write(notes)
    except OSError as trouble:
        raise WorkspaceError(f"the notes cannot be written to {place}: {trouble.strerror or trouble}") from trouble


def _moved(state: LoopState, received: Received, tenure: int, to: Destination, *, lost: Sequence[str]) -> list[Event]:
    """What is recorded first on the new machine."""
    spec = moved_spec(state.spec, cwd=str(received.cwd), server=to.server)
    spec, policy = to.settle(spec, state.policy)
    events: list[Event] = [
        RunMoved(by=BY, tenure=tenure, host=to.host),
        settings_changed(BY, (state.spec, state.policy), spec, policy),
    ]
    if lost:
        events.append(ResetRequested(by=BY, circuit=False, session=True))
    return events
