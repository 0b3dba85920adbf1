"""The checks of a contract: commands whose exit status the loop sees with its own eyes."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from untildone.core.dataclass import dataclass
from untildone.core.outcome import CheckResult
from untildone.core.secrets import LINE, redact
from untildone.core.tally import tally
from untildone.ports import Clock
from untildone.ports.delivery import Start
from untildone.witness.command import OUTPUT_CAP, run_command
from untildone.witness.logs import LOG_CAP, CheckLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How commands are kept from outliving us."""

    env: Mapping[str, str] = field(default_factory=dict)
    """Added to their environment: by it they are found again after a crash."""
    behind: tuple[str, ...] = ()
    """The program that ends a command should we die."""
    start: Start | None = None
    """Starts commands in a sandbox, which sees to that by itself."""
    withheld: frozenset[str] = frozenset()
    """Variables they do not get, such as the login for a forge."""
    masked: tuple[str, ...] = ()
    """Words that are told to nobody, wherever a command found them."""


UNGUARDED = Keeping()
_LOGIN = "[secret: login]"


class CommandCheck:
    """Passes when a shell command exits with 0 in time."""

    def __init__(
        self,
        command: str,
        *,
        cwd: Path | str,
        timeout: float,
        name: str | None = None,
        clock: Clock | None = None,
        log: CheckLog | None = None,
        keeping: Keeping = UNGUARDED,
    ) -> None:
        """`log` is given all that the command prints, each time it is run."""
        self._command = command
        self._cwd = cwd
        self._timeout = timeout
        self._name = name or command
        self._clock = clock
        self._log = log
        self._keeping = keeping

    @property
    def name(self) -> str:
        """What people call it: its name, else the command."""
        return self._name

    async def run(self) -> CheckResult:
        """Run the command once."""
        started = self._clock.monotonic() if self._clock else None
        result = await run_command(
            self._command,
            cwd=self._cwd,
            timeout=self._timeout,
            output_cap=OUTPUT_CAP if self._log is None else LOG_CAP,
            env=self._keeping.env,
            withheld=self._keeping.withheld,
            behind=self._keeping.behind,
            start=self._keeping.start,
        )
        seconds = result.seconds if self._clock is None or started is None else self._clock.monotonic() - started
        if self._log is not None:
            self._log.add(self._command, result.output_tail, result.exit_code, seconds)
        counted = tally(result.output_tail)
        return CheckResult(
            name=self._name,
            command=self._command,
            passed=result.exit_code == 0,
            exit_code=result.exit_code,
            seconds=seconds,
            # Before it is cut: half a key is not recognised any more.
            output_tail=redact(self._masked(result.output_tail[-OUTPUT_CAP - LINE :]))[-OUTPUT_CAP:],
            output_sha256=result.sha256,
            log="" if self._log is None else self._log.path,
            tests_run=counted.run if counted else None,
            tests_skipped=counted.skipped if counted else None,
        )

    def _masked(self, text: str) -> str:
        for word in self._keeping.masked:
            text = text.replace(word, _LOGIN)
        return text
