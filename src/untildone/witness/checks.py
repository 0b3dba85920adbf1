"""The checks of a contract: commands whose exit status the loop sees with its own eyes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from untildone.core.outcome import CheckResult
from untildone.ports import Clock
from untildone.witness.command import run_command


class CommandCheck:
    """ports.Check: passes when a shell command exits with 0 in time."""

    def __init__(
        self,
        command: str,
        *,
        cwd: Path | str,
        timeout: float,
        name: str | None = None,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        behind: Sequence[str] = (),
    ) -> None:
        """`env` adds to the environment; `behind` is the program that ends the command should we die."""
        self._command = command
        self._cwd = cwd
        self._timeout = timeout
        self._name = name or command
        self._clock = clock
        self._env = env
        self._behind = behind

    @property
    def name(self) -> str:
        """What people call it: its name, else the command."""
        return self._name

    async def run(self) -> CheckResult:
        """Run the command once."""
        started = self._clock.now() if self._clock else None
        result = await run_command(
            self._command, cwd=self._cwd, timeout=self._timeout, env=self._env, behind=self._behind
        )
        seconds = result.seconds if self._clock is None or started is None else self._clock.now() - started
        return CheckResult(
            name=self._name,
            command=self._command,
            passed=result.exit_code == 0,
            exit_code=result.exit_code,
            seconds=seconds,
            output_tail=result.output_tail,
            output_sha256=result.sha256,
        )
