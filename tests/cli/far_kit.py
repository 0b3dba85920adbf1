"""Another machine, from which runs are sent to a server."""

import asyncio
import gzip
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from cli.cli_kit import DRIVER, FIRST
from e2e.worker_kit import Server
from untildone.agents.session_files import pack_session
from untildone.agents.transcripts import transcript_path
from untildone.core.beginning import beginning
from untildone.core.codec import encode_value
from untildone.core.events import ContinuousSuspended, Event, Record
from untildone.core.policy import Policy, RunSpec
from untildone.core.trace import AgentSession
from untildone.git.bundle import unwrapped
from untildone.git.workspace import open_workspace
from untildone.ports import Parcel
from untildone.uplink.client import HttpUplink
from untildone.uplink.dressing import Dressing
from untildone.uplink.masking import Masking

SESSION = "8878e775-3ddb-47cc-a0c4-c2074fd7b5c3"
LINE = b'{"type":"user","message":{"content":"hello"}}\n'
STOPPED = ContinuousSuspended(stop_reason="max_runs_reached")


class Elsewhere:
    """Another machine with a folder, from which runs are sent to the server."""

    def __init__(self, tmp: Path, server: Server) -> None:
        self.tmp, self.server, self.folder = tmp, server, tmp / "elsewhere"
        self.folder.mkdir()
        (self.folder / "work.txt").write_text("done there\n")
        (self.folder / "NOTES.md").write_text("think of it\n")
        main = transcript_path(tmp / "claude", str(self.folder), SESSION)
        main.parent.mkdir(parents=True)
        main.write_bytes(LINE)

    def committed(self) -> None:
        """All that is there becomes a commit of a branch."""
        me = ("-c", "user.name=A", "-c", "user.email=a@b")
        (self.folder / ".gitignore").write_text("NOTES.md\n")
        for words in (("init", "-q", "-b", "work"), ("add", "-A"), (*me, "commit", "-qm", "1")):
            subprocess.run(["git", *words], cwd=self.folder, check=True, timeout=240)

    def send(
        self, run_id: str, *last: Event, parcels: bool = True, notes: bytes = b"", below: str = ".", **spec: Any
    ) -> str:
        """A run with one iteration, and what else happened to it; returns its id."""
        self.notes, self.below = notes or (self.folder / "NOTES.md").read_bytes(), below
        told = {"goal": "a goal", "name": f"name-{run_id}", "cwd": str(self.folder), "notes_file": "NOTES.md", **spec}
        asyncio.run(self._send(run_id, RunSpec(**told), last or (STOPPED,), parcels=parcels))
        return run_id

    async def _send(self, run_id: str, spec: RunSpec, last: tuple[Event, ...], *, parcels: bool) -> None:
        begun = beginning(run_id, spec, Policy(max_runs=1))
        session = AgentSession(iteration_num=1, session_id=SESSION)
        events = [begun, DRIVER, FIRST[0], session, replace(FIRST[1], session_id=SESSION), *last]
        records = [Record(seq=1 + number * 5, at=10.0 + number, event=one) for number, one in enumerate(events)]
        uplink = HttpUplink(self.server.url, "far", self.server.operator, dress=Dressing(Masking()))
        await uplink.send(run_id, records)
        if parcels:
            # What is sent need not be what is there.
            honest = replace(spec, notes_file="NOTES.md")
            workspace = await open_workspace(honest, run_id=run_id, private=self.tmp / "folders")
            await workspace.prepare()
            tree = await workspace.packed(run_id)
            transcript = pack_session(self.tmp / "claude", str(self.folder), SESSION)
            assert tree is not None
            assert transcript is not None
            facts, bundle = unwrapped(tree.content)
            told = gzip.compress(encode_value(replace(facts, below=self.below)) + b"\n" + bundle)
            notes = gzip.compress(self.notes)
            for name, content in (("tree", told), ("notes", notes), (f"transcript/{SESSION}", transcript)):
                await uplink.put(run_id, Parcel(name=name, content=content, seq=records[-1].seq))
        await uplink.close()
