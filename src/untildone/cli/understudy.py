"""Plays the loop in one act of a rehearsed night, as a process that can be killed.

python -m untildone.cli.understudy FILE
"""

import asyncio
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from untildone import wiring
from untildone.core import codec
from untildone.core.state import LoopState
from untildone.errors import UntildoneError
from untildone.rehearsal.model import ScriptedModel
from untildone.rehearsal.night import Part


def main(file: str) -> int:
    """Drive the run that the file describes to its stop."""
    part = codec.decode_value(Path(file).read_bytes(), Part)
    env = dict(os.environ)
    with ExitStack() as stage:
        if part.scenario is not None:
            model = stage.enter_context(ScriptedModel(part.scenario, ledger_path=Path(part.ledger)))
            env["ANTHROPIC_BASE_URL"] = model.url
        try:
            asyncio.run(_drive(part, env))
        except UntildoneError as trouble:
            sys.stderr.write(f"{trouble}\n")
            return trouble.exit_code
    return 0


async def _drive(part: Part, env: dict[str, str]) -> LoopState:
    clock, store = wiring.system_clock(), Path(part.store)
    log = wiring.open_log(store, clock)
    around = wiring.Surroundings(log=log, state_dir=store, env=env, clock=clock)
    try:
        if part.resume:
            return await wiring.resume_run(part.run_id, around)
        return await wiring.start_run(part.spec, part.policy, around, run_id=part.run_id)
    finally:
        await log.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
