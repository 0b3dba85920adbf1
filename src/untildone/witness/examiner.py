"""The witness: every check of a contract, in a fresh checkout of the commit or in the tree."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from untildone.core.contract import CheckSpec, Contract
from untildone.core.dataclass import dataclass
from untildone.core.figures import count
from untildone.core.findings import LentChange
from untildone.core.outcome import CheckResult
from untildone.core.output_signal import compared
from untildone.core.printable import one_line
from untildone.core.unprovable import SETUP
from untildone.errors import CommitUnfit
from untildone.ports.delivery import Bind, Checkout, Enclosure, Enter, Progress, Rooms, Subject
from untildone.witness.checks import UNGUARDED, CommandCheck, Keeping
from untildone.witness.leading_back import installed_into
from untildone.witness.lent import Lent, named_programs, watched
from untildone.witness.logs import CheckLog, LogFolder
from untildone.witness.sharing import link, shared

BELIEVED_AFTER = 3
"""Times in a row a flaky check must pass."""

_IN_TREE = "the checks ran in the agent's own tree"
_UNENCLOSED = "the checks were not enclosed"
_MEDDLED = "files of the checkout are changed by somebody while no check runs: {}"
_FEW = 5
_NAME_CHARS = 200


async def _nothing() -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Sealing:
    """What keeps everything that is not in the commit away from the checks."""

    enclosure: Enclosure | None = None
    """None: not to be had here."""
    weaker: str = _UNENCLOSED
    """Why it is not."""
    in_tree: Callable[[], AbstractAsyncContextManager[Enter]] | None = None
    """What is around checks in the tree itself, if anything is."""
    end_agents_leftovers: Callable[[], int] = lambda: 0
    """End what the agent left running; returns how many processes that were. It may block for a moment."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where checks run."""

    folder: Path
    inside: Path
    """The same folder as the commands see it."""
    enter: Enter | None = None
    notes: tuple[str, ...] = ()
    weaker: str = ""
    broken: CheckResult | None = None
    """The setup that failed: nothing can be checked here."""
    put_back: Callable[[], Awaitable[tuple[str, ...]]] = _nothing
    """Put files of the commit back that were changed; which those are."""


class Examiner:
    """ports.Witness."""

    def __init__(
        self,
        contract: Contract,
        rooms: Rooms,
        *,
        cwd: str,
        logs: Path,
        keeping: Keeping = UNGUARDED,
        sealing: Sealing = Sealing(),  # noqa: B008 - a frozen value
    ) -> None:
        """`logs` is the folder for what the checks of this run print; `keeping` sees that nothing outlives us."""
        self._contract = contract
        self._keeping = keeping
        self._rooms = rooms
        self._cwd = Path(cwd)
        self._logs = LogFolder(logs)
        self._sealing = sealing
        self._commands = [contract.setup or "", *(check.command for check in contract.checks)]
        # Of a hidden check not even the program is told.
        hidden = {check.command for check in contract.checks if check.hidden}
        told = [command for command in self._commands if command and command not in hidden]
        folders = list(dict.fromkeys((*contract.share, *watched(os.environ, self._cwd))))
        self._lent = Lent(self._cwd, folders, told, logs / "shared.json")

    async def examine(
        self,
        subject: Subject,
        checks: Sequence[CheckSpec],
        *,
        flaky: Collection[str] = (),
        progress: Progress = lambda _: None,
    ) -> list[CheckResult]:
        """Every check, in order."""
        if not checks:
            return []
        if ended := await asyncio.to_thread(self._sealing.end_agents_leftovers):
            progress(f"ended {count(ended, 'process', 'processes')} that the agent left running")
        with suppress(OSError):  # a full disk must not change a verdict
            await asyncio.to_thread(self._lent.remember)
        replaced = {change.path for change in await self.lent_changes()}
        examination = _Examination(self._contract, subject, self._logs, progress, self._keeping, replaced=replaced)
        try:
            async with self._place(subject, examination) as place:
                seen = await examination.all_once(checks, place)
            doubtful = {result.name for result in seen if result.flaky or (result.passed and result.name in flaky)}
            if not doubtful or subject.tries != "until sure":
                return seen
            # Anew: what passed at the second try may have passed only because of what the first one left behind.
            async with self._place(subject, examination) as place:
                return await examination.doubted(checks, seen, doubtful, place)
        except CommitUnfit as unfit:
            return [_unfit(check, subject, str(unfit)) for check in checks]

    async def lent_changes(self) -> list[LentChange]:
        """What of the shared folders, the active environment and the programs is not as it was at the first look."""
        return await asyncio.to_thread(self._lent.changed)

    async def sweep(self) -> int:
        """Remove the rooms that a dead driver left behind."""
        return await self._rooms.sweep()

    @asynccontextmanager
    async def _place(self, subject: Subject, examination: "_Examination") -> AsyncIterator[_Place]:
        if subject.room == "tree":
            around = self._sealing.in_tree or nullcontext
            async with around() as enter:
                yield _Place(self._cwd, self._cwd.resolve(), enter=enter, weaker=_IN_TREE)
            return
        if subject.commit is None:
            raise CommitUnfit("nothing is committed yet: there is nothing to check out")
        if subject.furnished:
            examination.progress("copying the tree, to see whether the checks pass there")
            async with self._rooms.furnished(subject.commit) as checkout:
                yield await self._in(checkout, [])
            return
        examination.progress(f"checking {subject.commit[:10]} out afresh")
        async with self._rooms.open(subject.commit) as checkout:
            shares = self._share(checkout)
            place = await self._in(checkout, shares)
            broken = await examination.failed_setup(place)
            made = _note("the setup changed files of the commit", await checkout.keep()) if self._contract.setup else ()
            if self._sealing.enclosure is not None:
                # Only now: what the setup made in the checkout itself takes precedence over what could be lent.
                place = await self._in(checkout, [*shares, *self._sealing.enclosure.borrowed(checkout)])
            yield replace(place, broken=broken, notes=(*place.notes, *made), put_back=checkout.put_back)

    def _share(self, checkout: Checkout) -> list[Bind]:
        """Lend the checkout what the user shares with it: here and now by links, if it is not enclosed."""
        folder = Path(checkout.folder)
        if self._sealing.enclosure is not None:
            return shared(self._contract.share, tree=self._cwd, room=folder)
        link(self._contract.share, tree=self._cwd, room=folder)
        return []

    async def _in(self, checkout: Checkout, lent: Sequence[Bind]) -> _Place:
        """Where to run commands that shall see this checkout and what is lent to it."""
        folder, tree, enclosure = Path(checkout.folder), self._cwd.resolve(), self._sealing.enclosure
        if enclosure is None:
            shares = ", ".join(self._contract.share)
            notes = (*([f"shared with the tree, writable: {shares}"] if shares else []), *checkout.notes)
            return _Place(folder, folder, notes=notes, weaker=self._weaker(checkout))
        named = [named_programs(command, os.environ).values() for command in self._commands]
        programs = [path for paths in named for path in paths if path]
        enter = await asyncio.to_thread(enclosure.enter, checkout, lent=lent, programs=programs)
        names = ", ".join(_below(bind.place, tree) for bind in lent)
        told = [f"shared with the tree, read-only: {names}"] if lent else []
        return _Place(folder, tree, enter=enter, notes=(*told, *checkout.notes))

    def _weaker(self, checkout: Checkout) -> str:
        """Why what passes in a checkout that is not enclosed proves less, with what can be seen of it."""
        installed = installed_into(self._cwd.resolve(), os.environ)
        said = [self._sealing.weaker, f"{installed} leads to the agent's tree" if installed else ""]
        said += [f"links of the commit lead out of it: {_named(checkout.leads_out)}" if checkout.leads_out else ""]
        return "; ".join(filter(None, said))


class _Examination:
    """One look at one subject."""

    def __init__(
        self,
        contract: Contract,
        subject: Subject,
        logs: LogFolder,
        progress: Progress,
        keeping: Keeping,
        *,
        replaced: AbstractSet[str],
    ) -> None:
        """`replaced`: programs that are not what they were when the run began."""
        self.progress = progress
        self._replaced = replaced
        self._keeping = keeping
        self._contract = contract
        self._subject = subject
        self._logs = logs
        self._begun: dict[str, CheckLog] = {}

    async def failed_setup(self, place: _Place) -> CheckResult | None:
        """Prepare a fresh checkout; how that failed, if it did."""
        command = self._contract.setup
        if not command:
            return None
        spec = CheckSpec(name=SETUP, command=command, timeout=self._contract.setup_timeout)
        result = await self._run(spec, place)
        return None if result.passed else result

    async def all_once(self, checks: Sequence[CheckSpec], place: _Place) -> list[CheckResult]:
        """Every check; one that fails twice is red, one that fails once is marked as flaky."""
        if place.broken is not None:
            return [place.broken, *(_not_run(check, place.broken) for check in checks)]
        return [await self._once_or_twice(check, place) for check in checks]

    async def doubted(
        self, checks: Sequence[CheckSpec], seen: Sequence[CheckResult], doubtful: Collection[str], place: _Place
    ) -> list[CheckResult]:
        """The doubtful ones again and again, after those that come before them: they may need what those leave."""
        if place.broken is not None:
            return [place.broken, *(_not_run(check, place.broken) for check in checks)]
        results = {result.name: result for result in seen}
        waiting = set(doubtful)
        for check in checks:
            if not waiting:
                break
            if check.name in waiting:
                waiting.discard(check.name)
                results[check.name] = await self._again_and_again(check, place)
            else:
                await self._run(check, place)
        return list(results.values())

    async def _once_or_twice(self, check: CheckSpec, place: _Place) -> CheckResult:
        first = await self._run(check, place)
        # One that did not end in time has cost enough of it.
        if first.passed or first.exit_code is None or self._subject.tries == "one":
            return first
        second = await self._run(check, place)
        return replace(second, flaky=True) if second.passed else compared(first, second)

    async def _again_and_again(self, check: CheckSpec, place: _Place) -> CheckResult:
        for _ in range(BELIEVED_AFTER):
            result = await self._run(check, place)
            if not result.passed:
                break
        return replace(result, flaky=True)

    async def _run(self, check: CheckSpec, place: _Place) -> CheckResult:
        subject = self._subject
        folder = place.folder / check.folder
        if not folder.resolve().is_relative_to(place.folder.resolve()) or not folder.is_dir():
            return _unfit(check, subject, f"there is no folder {check.folder} to run it in")
        where = "in a fresh checkout" if subject.room == "clean" else "in the tree"
        where = "in a copy of the tree" if subject.furnished else where
        what = f"the setup {check.command}" if check.name == SETUP else f"check {check.name}"
        if strange := await place.put_back():
            return _unfit(check, subject, _MEDDLED.format(_named(strange)))
        self.progress(f"running {what} {where}")
        keeping = self._keeping
        if place.enter is not None:
            way = place.enter(str(place.inside / check.folder))
            if isinstance(way, tuple):
                keeping = replace(keeping, behind=(*keeping.behind, *way))
            else:
                keeping = replace(keeping, start=way)
        result = await CommandCheck(
            check.command,
            cwd=folder,
            timeout=self._contract.timeout_of(check),
            name=check.name,
            log=self._log(check),
            keeping=keeping,
        ).run()
        # The next check judges the commit, not what this one, which runs the agent's code, made of it.
        changed = await place.put_back()
        if changed and (strange := await place.put_back()):
            return _unfit(check, subject, _MEDDLED.format(_named(strange)))
        notes = (*place.notes, *_note("it changed files of the commit, which were put back", changed))
        others = sorted(self._replaced & named_programs(check.command, os.environ).keys())
        notes += _note("a program is not what it was when the run began", others)
        return replace(result, room=subject.room, hidden=check.hidden, notes=notes, weaker=place.weaker)

    def _log(self, check: CheckSpec) -> CheckLog:
        if check.name not in self._begun:
            commit = self._subject.commit if self._subject.room == "clean" else None
            self._begun[check.name] = self._logs.begin(commit, check.name)
        return self._begun[check.name]


def _below(place: str, tree: Path) -> str:
    return str(Path(place).relative_to(tree)) if Path(place).is_relative_to(tree) else place


def _named(files: Sequence[str]) -> str:
    more = f" and {len(files) - _FEW} more" if len(files) > _FEW else ""
    return ", ".join(one_line(name, _NAME_CHARS) for name in files[:_FEW]) + more


def _note(what: str, files: Sequence[str]) -> tuple[str, ...]:
    return (f"{what}: {_named(files)}",) if files else ()


def _not_run(check: CheckSpec, broken: CheckResult) -> CheckResult:
    said = f"not run: the setup failed ({broken.command})"
    return CheckResult(
        name=check.name, command=check.command, passed=False, ran=False, output_tail=said, room=broken.room,
        hidden=check.hidden, log=broken.log,
    )  # fmt: skip


def _unfit(check: CheckSpec, subject: Subject, why: str) -> CheckResult:
    return CheckResult(
        name=check.name, command=check.command, passed=False, ran=False, output_tail=f"not run: {why}",
        room=subject.room, hidden=check.hidden,
    )  # fmt: skip
