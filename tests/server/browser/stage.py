"""A real server for a real browser: started, killed and started again, and fed with events as a worker sends them."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from archives import new_archive
from patience import PATIENCE, eventually
from ports import own_port
from untildone.core.events import Event, Record
from untildone.core.wire import batch


class Stage:
    """A server on SQLite, on a port of its own that it keeps when it is started again.

    It is in a zone that no reader is in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = new_archive(folder)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"),
            "UNTILDONE_SERVE_DATABASE": self.database, "UNTILDONE_SERVE_PORT": str(self.port),
            "UNTILDONE_SERVE_LOCAL": "0", "TZ": "Asia/Tokyo",
        }  # fmt: skip
        self.process: subprocess.Popen[str] | None = None
        self._seqs: dict[str, int] = {}

    def start(self) -> "Stage":
        log = (self.folder / "server.log").open("a")
        argv = [sys.executable, "-m", "untildone", "serve"]
        self.process = subprocess.Popen(argv, env=self.env, stdout=log, stderr=log, text=True)
        log.close()
        eventually(self._answers, "the start of the server")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.log").read_text()
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/healthz", timeout=PATIENCE):
            return True
        return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()

    def untildone(self, *words: str) -> str:
        argv = [sys.executable, "-m", "untildone", *words]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout + done.stderr

    def login_link(self) -> str:
        """A link that opens once, for an operator."""
        found = re.search(r"https?://\S+/login/\S+", self.untildone("token", "login"))
        assert found is not None
        return self.url + found[0][found[0].index("/login/") :]

    def tell(self, run_id: str, events: Iterable[Event], *, sandbox: str = "box", at: float | None = None,
             every: float = 0.0) -> int:  # fmt: skip
        """Send events of a run, numbered on from those sent before; returns the number of the last.

        A new run is there to be looked at afterwards. What is told later reaches a page as it happens.
        """
        told = [*events]
        first = self._seqs.get(run_id, 0) + 1
        start = time.time() if at is None else at
        for begin in range(0, len(told), 500):
            records = [
                Record(seq=first + begin + n, at=start + (begin + n) * every, event=event)
                for n, event in enumerate(told[begin : begin + 500])
            ]
            self.post(f"/api/v1/sandboxes/{sandbox}/events", batch(run_id, records))
        self._seqs[run_id] = first + len(told) - 1
        if first == 1:
            self.settle(run_id)
        return self._seqs[run_id]

    def knows(self, run_id: str) -> bool:
        return run_id in self._seqs

    def settle(self, run_id: str) -> None:
        """Wait until the pages of a run show all that was told of it: the server derives them a moment later."""

        def is_folded() -> bool:
            run = json.loads(self.get(f"/api/v1/runs/{run_id}"))
            return bool(run["folded_seq"] >= run["control_seq"])

        eventually(is_folded)

    def sign_of_life(self, run_id: str, sandbox: str) -> None:
        """What a driver sends now and then: a run that is silent for long counts as interrupted."""
        self.post(f"/api/v1/sandboxes/{sandbox}/events", batch(run_id, []))

    def post(self, path: str, body: bytes) -> Any:
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"null")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def orders(self, run_id: str, sandbox: str = "box") -> list[dict[str, Any]]:
        """What was asked of a run, as its worker would fetch it."""
        found: list[dict[str, Any]] = json.loads(self.get(f"/api/v1/sandboxes/{sandbox}/runs/{run_id}/orders?after=0"))
        return found
