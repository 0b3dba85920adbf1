"""An agent whose work depends only on what stands in the folder, with books of its own that outlive the loop."""

import json
import os
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from untildone.agents.prices import cost
from untildone.agents.transcripts import transcript_path
from untildone.core.claims import Report
from untildone.core.outcome import Order, Outcome, Usage
from untildone.core.trace import AgentMessage, AgentReply, AgentReplyStarted, AgentSession, AgentStarted
from untildone.engine.journal import TRACE_BATCH
from untildone.ports import Process, Spawner, Tell

WORK = ("one.txt", "two.txt", "three.txt")
MODEL = "claude-sonnet-4-5"
USAGE = Usage(1000, 100, 0, 0)
PRICE = cost(MODEL, USAGE) or 0.0
STARTED_PRICE = cost(MODEL, Usage(1000, 1, 0, 0)) or 0.0


@dataclass
class Laborer:
    """Writes the next file that is missing, with a child process beside it; claims when the last is there."""

    cwd: Path
    books: Path
    """One line per reply served: the far side's ledger."""
    config_dir: Path
    """Where the transcript goes, in Claude's own form."""
    spawner: Spawner
    env: Mapping[str, str]
    misdeed: str = ""
    """A shell command for the second iteration."""
    work: tuple[str, ...] = WORK
    child: Process | None = None

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        number, session = order.iteration_num, uuid.uuid4().hex
        self.child = await self.spawner.spawn(["sleep", "1000"], cwd=str(self.cwd), env=self.env)
        await tell(AgentStarted(iteration_num=number, pid=self.child.pid))
        await tell(AgentSession(iteration_num=number, session_id=session))
        await self._reply(number, session, tell)
        todo = [name for name in self.work if not (self.cwd / name).exists()][:1]
        for name in todo:
            (self.cwd / name).write_text(f"{name}\n")
        if self.misdeed and number == 2:
            subprocess.run(self.misdeed, shell=True, check=True, cwd=self.cwd)
        for _ in range(TRACE_BATCH if number == 1 else 1):
            await tell(AgentMessage(iteration_num=number, text="working"))
        await self._reply(number, session, tell)
        await self.close()
        done = (self.cwd / self.work[-1]).exists()
        said = f"Write {todo[0]}" if todo else "Look at it all again"
        return Outcome(
            session_id=session,
            final_text=said,
            report=Report(status="COMPLETE" if done else "IN_PROGRESS", exit_signal=done, summary=said),
            cost_usd=2 * PRICE,
            usage=USAGE + USAGE,
            num_turns=2,
            activity=(said,),
            output_chars=len(said),
        )

    async def interrupt(self, *, discard: bool = False) -> None:
        """It is done in a moment anyway."""

    def pulse(self) -> None:
        """Nothing is expected of it."""

    async def close(self) -> None:
        if self.child is not None:
            await self.child.end(grace=1.0)
            self.child = None

    async def _reply(self, number: int, session: str, tell: Tell) -> None:
        known = {"iteration_num": number, "message_id": f"msg_{uuid.uuid4().hex}", "model": MODEL}
        await tell(AgentReplyStarted(**known, usage=Usage(1000, 1, 0, 0), cost_usd=STARTED_PRICE))
        _append(self.books, {"id": known["message_id"]})
        usage = {"input_tokens": USAGE.input_tokens, "output_tokens": USAGE.output_tokens}
        message = {"id": known["message_id"], "model": MODEL, "usage": usage}
        transcript = transcript_path(self.config_dir, str(self.cwd), session)
        transcript.parent.mkdir(parents=True, exist_ok=True)
        _append(transcript, {"type": "assistant", "message": message})
        await tell(AgentReply(**known, usage=USAGE, cost_usd=PRICE))


@dataclass
class Critic(Laborer):
    """Reviews what the laborer did: never content before the last file is there."""

    async def iterate(self, order: Order, tell: Tell) -> Outcome:
        number, session = order.iteration_num, uuid.uuid4().hex
        self.child = await self.spawner.spawn(["sleep", "1000"], cwd=str(self.cwd), env=self.env)
        await tell(AgentStarted(iteration_num=number, pid=self.child.pid))
        await tell(AgentSession(iteration_num=number, session_id=session))
        await self._reply(number, session, tell)
        await self.close()
        verdict = "APPROVE" if (self.cwd / self.work[-1]).exists() else "CHANGES"
        said = f"There are {len(list(self.cwd.glob('*.txt')))} files.\n\nREVIEW: {verdict}"
        return Outcome(session_id=session, final_text=said, cost_usd=PRICE, usage=USAGE, num_turns=1)


def _append(path: Path, line: object) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{json.dumps(line)}\n".encode())
    os.close(file)
