"""A run that goes on on another machine: what it sends along while it works, and how it is taken up elsewhere."""

import asyncio
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from untildone.agents.session_files import check_session, install_session, pack_session, session_stamp
from untildone.core.changed import settings_changed
from untildone.core.dataclass import dataclass
from untildone.core.events import Event, LandingCommitted, Record, ResetRequested, Rewound, RunMoved
from untildone.core.fold import fold
from untildone.core.moving import (
    brought_along,
    may_be_notes,
    moved_spec,
    outside,
    sessions_of,
    stays_behind,
    unknown_here,
)
from untildone.core.policy import Policy, RunSpec
from untildone.core.printable import one_line
from untildone.core.state import LoopState
from untildone.errors import UplinkDown, UplinkRefused, UsageError, WorkspaceError
from untildone.git.bundle import PackedTree, TreeFacts, parcel_ref
from untildone.git.newest import Known
from untildone.git.unbundle import Received, lay_out, receive_tree, tracks
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
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@runtime_checkable
class _Packs(Protocol):
    async def packed(self, run_id: str, known: str = "", *, tells: Callable[[bytes], bool]) -> PackedTree | None: ...


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
            found[TREE] = _tree(baggage.workspace, driver.run_id, masking)
        return found

    packer = Packer(log, driver.run_id, state=lambda: driver.state, sources=sources, tell=driver.tell)
    return replace(line, beside=(*line.beside, packer.beside))


def _tree(workspace: _Packs, run_id: str, masking: Masking) -> Source:
    async def make(known: str) -> Made | None:
        packed = await workspace.packed(run_id, known, tells=masking.tells)
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
    key: str = field(repr=False)
    """What the server knows its driver by from then on: the line to it shows the same one."""
    config_dir: Path
    clock: Clock
    host: str
    take: bool = False
    """Also from a machine that is at work on it."""
    agree: Callable[[Sequence[str]], None] = lambda _: None
    """Asked before anything happens about what the run would do here; raises to refuse."""
    settle: Callable[[RunSpec, Policy], tuple[RunSpec, Policy]] = lambda spec, policy: (spec, policy)
    """What a human wants otherwise from now on."""


class _Asking:
    """Has a human agree to everything once; asked again is only about what is new or other than it was."""

    def __init__(self, agree: Callable[[Sequence[str]], None]) -> None:
        self._agree = agree
        self._agreed: dict[str, str] = {}

    def ask(self, lines: Mapping[str, str]) -> None:
        """`lines`: what is shown, and what it stands for to the letter."""
        new = {line: meant for line, meant in lines.items() if self._agreed.get(line) != meant}
        if new:
            self._agree(list(new))
            self._agreed |= new

    def about_run(self, state: LoopState) -> None:
        """What the run would do here by its settings."""
        self.ask({line: line for line in brought_along(state.spec, state.policy, state.waived)})

    def about_tree(self, received: Received) -> None:
        """What Claude Code, git or a shell would run because it lies there."""
        self.ask({f"can run commands by itself: {path}": found for path, found in received.acts.items()})


class _Parcels:
    """The parcels of a run; what is listed as before is not fetched again."""

    def __init__(self, reader: Reader, run_id: str) -> None:
        self._reader, self._run_id = reader, run_id
        self._fetched: dict[Listed, bytes] = {}

    async def get(self, listed: Listed) -> bytes:
        """Its content."""
        if listed not in self._fetched:
            self._fetched[listed] = await self._reader.parcel(self._run_id, listed)
        return self._fetched[listed]


async def bring_here(reader: Reader, run_id: str, to: Destination) -> list[str]:
    """Take a run over from another machine: tree, conversation, notes and log; returns lines to tell.

    After it `resume` goes on with it here as with any other. Refused, nothing was changed but what git keeps aside.
    """
    asking, parcels = _Asking(to.agree), _Parcels(reader, run_id)
    far = await reader.run(run_id)
    comes_back = await _comes_back(to.log, far)
    state = fold(await reader.control(run_id))
    _refuse_unmovable(state, far, to)
    _refuse_busy(state, far, to)
    asking.about_run(state)
    listed = await _listed(reader, run_id)
    received = None if listed is None else await _received(parcels, listed, state, to)
    if listed is not None and received is not None:
        asking.about_tree(received)
        await _look_into(parcels, listed, state)
    tenure = await reader.take(run_id, far.tenure)
    # From here on nothing of the old driver's is accepted any more: what there is now is all there will be. It may be
    # more than what was agreed to.
    far = await reader.run(run_id)
    records = await reader.control(run_id)
    state = fold(records)
    _refuse_unmovable(state, far, to)
    asking.about_run(state)
    newest = await reader.parcels(run_id)
    if received is None or listed is None or newest.get(TREE) != listed.get(TREE):
        received = await _received(parcels, newest, state, to)
        asking.about_tree(received)
    lines = await lay_out(received)
    lost, told = await _unpack(parcels, newest, state, received, to)
    moved = _moved(state, received, tenure, to, lost=lost)
    if received.missing is not None:
        moved.append(_rewound(records, received.facts))
    last = max(far.last_seq, state.last_seq)
    now = to.clock.now()
    records += [Record(seq=last + number, at=now, event=event) for number, event in enumerate(moved, 1)]
    folder = str(received.cwd)
    account = Account(
        run_id=run_id,
        server=to.server,
        sandbox_id=to.sandbox_id,
        acknowledged=far.last_seq,
        tenure=tenure,
        key=to.key,
    )
    # Before the run is here, so that it never is without its key; and after, since accounts without a run are swept.
    Accounts(to.store).write(account)
    named = {"name": state.spec.name, "folder": folder, "status": state.phase}
    if not await to.log.adopt(run_id, records, **named, replacing=comes_back):
        raise UsageError(f"run {run_id} is here already: resume it with `untildone resume {run_id}`")
    Accounts(to.store).write(account)
    return [*lines, *told, *stays_behind(state, received.missing)]


async def _comes_back(log: EventLog, far: FarRun) -> bool:
    """Whether the run was here before another machine took it over. UsageError: it never left."""
    row = next((row for row in await log.runs() if row.run_id == far.run_id), None)
    if row is None:
        return False
    if row.alive or far.tenure <= fold(await log.read(far.run_id)).tenure:
        raise UsageError(f"run {far.run_id} is here already: resume it with `untildone resume {far.run_id}`")
    return True


def _refuse_unmovable(state: LoopState, far: FarRun, to: Destination) -> None:
    """UsageError for a run that cannot go on here at all."""
    name = one_line(state.spec.name, 60) or far.run_id
    if far.origin != "worker" or state.run_id != far.run_id or state.spec.in_session:
        raise UsageError(
            f"{name} can go on only where it is: the server has a copy for eyes of it, and no more. "
            "A run can move that was started with --server and --portable, or as a worker"
        )
    if state.phase == "completed":
        raise UsageError(f"{name} is done: there is nothing to resume")
    if beyond := outside(state.spec):
        raise UsageError(
            f"{name} reads {one_line(beyond[0], 200)}, which lies outside of its folder: on another machine that would "
            "be another file"
        )
    if hidden := unknown_here(to.settle(state.spec, state.policy)[0]):
        raise UsageError(
            f"{name} has hidden checks, whose commands no server is told ({one_line(', '.join(hidden), 100)}): "
            "give them again with --hidden-check"
        )


def _refuse_busy(state: LoopState, far: FarRun, to: Destination) -> None:
    """UsageError for a run that somebody is at work on, unless it is to be taken away."""
    # One that has stopped lets go of its run, however short ago that was.
    if far.alive and state.phase == "running" and not to.take:
        name = one_line(state.spec.name, 60) or far.run_id
        where = f" on {one_line(far.host, 60)}" if far.host else ""
        raise UsageError(f"{name} is at work{where}: stop it first, or take it away from there with --take")


async def _listed(reader: Reader, run_id: str) -> Mapping[str, Listed] | None:
    """What there is; None when only the machine that drives the run may look."""
    try:
        return await reader.parcels(run_id)
    except UplinkRefused:
        return None


async def _received(parcels: _Parcels, listed: Mapping[str, Listed], state: LoopState, to: Destination) -> Received:
    if TREE not in listed:
        raise UsageError(
            f"the server has no tree of {one_line(state.spec.name, 60)}: only a run with --portable sends it, from "
            "a moment after it began"
        )
    return await receive_tree(
        await parcels.get(listed[TREE]),
        run_id=state.run_id,
        folder=to.folder,
        private=to.store / FOLDERS,
        remote=state.spec.landing.remote,
        known=Known(newest=state.last_commit, pushed=state.arrival.pushed, pushes=state.spec.landing.land == "pr"),
    )


async def _look_into(parcels: _Parcels, listed: Mapping[str, Listed], state: LoopState) -> None:
    """Refuse what cannot be unpacked while the run is still where it was."""
    for session in sessions_of(state):
        if (parcel := listed.get(TRANSCRIPT + session)) is not None:
            await asyncio.to_thread(check_session, session, await parcels.get(parcel))
    if (parcel := listed.get(NOTES)) is not None:
        _unzipped(await parcels.get(parcel))


async def _unpack(
    parcels: _Parcels, listed: Mapping[str, Listed], state: LoopState, received: Received, to: Destination
) -> tuple[list[str], list[str]]:
    """Put conversation and notes in place; which conversations did not come along, and lines to tell."""
    lost, told = [], []
    cwd = str(received.cwd)
    for session in sessions_of(state):
        if (parcel := listed.get(TRANSCRIPT + session)) is None:
            lost.append(session)
        else:
            await asyncio.to_thread(install_session, to.config_dir, cwd, session, await parcels.get(parcel))
    if lost:
        told.append(f"{len(lost)} conversations did not come along: the next one begins anew")
    if (parcel := listed.get(NOTES)) is not None:
        notes = _unzipped(await parcels.get(parcel))
        name = moved_spec(state.spec, cwd=cwd, server=to.server).notes_file
        is_tracked = await tracks(received.repository, received.cwd / name)
        why = "git tracks it" if is_tracked else await asyncio.to_thread(_write_notes, received.cwd, name, notes)
        if why:
            told.append(f"the notes did not come along: {one_line(name, 100)} is left as it is, because {why}")
    return lost, told


def _unzipped(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(content, NOTES_CAP)
    except zlib.error as trouble:
        raise UplinkDown(f"the notes of the run are damaged: {trouble}") from trouble


def _write_notes(cwd: Path, name: str, notes: bytes) -> str:
    """Put the notes where no file is; why not, if so.

    The other machine chose name and content. A file that configures something would be as good as a command.
    """
    if not may_be_notes(name):
        return "that is no name for notes"
    place = cwd / os.path.normpath(name)
    real = Path(os.path.realpath(cwd))
    try:
        if Path(os.path.realpath(place.parent)) != (real / os.path.normpath(name)).parent:
            return "a link leads there"
        place.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(place, _NEW, 0o644), "wb") as file:
            file.write(notes)
    except FileExistsError:
        return "" if _holds(place, notes) else "a file of that name is here already"
    except OSError as trouble:
        raise WorkspaceError(f"the notes cannot be written to {place}: {trouble.strerror or trouble}") from trouble
    return ""


def _holds(place: Path, content: bytes) -> bool:
    """Whether an earlier try has written it."""
    try:
        with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            return file.read(NOTES_CAP + 1) == content
    except OSError:
        return False


def _moved(state: LoopState, received: Received, tenure: int, to: Destination, *, lost: Sequence[str]) -> list[Event]:
    """What is recorded first on the new machine."""
    spec = moved_spec(state.spec, cwd=str(received.cwd), server=to.server)
    spec, policy = to.settle(spec, state.policy)
    events: list[Event] = [
        RunMoved(by=BY, tenure=tenure, host=to.host, start=received.facts.replaced.get(state.arrival.start or "")),
        settings_changed(BY, (state.spec, state.policy), spec, policy),
    ]
    if lost:
        events.append(ResetRequested(by=BY, circuit=False, session=True))
    return events


def _rewound(records: Sequence[Record], facts: TreeFacts) -> Rewound:
    """The newest work did not come along: what was said about it does not hold for the tree that is here."""
    commits = (record.event for record in records if isinstance(record.event, LandingCommitted))
    numbers = [event.iteration_num for event in commits if event.commit == facts.head]
    numbers += [int(name.partition("-")[0]) for name in facts.refs if name[:1].isdigit()]
    return Rewound(
        by=BY,
        iteration_num=max(numbers, default=0),
        commit=facts.head or facts.packed,
        saved=parcel_ref(facts.run_id),
        head=facts.head,
    )
