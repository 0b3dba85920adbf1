"""The examples of docs/api.md, typed into a shell, on a server at work."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from server.door_kit import served
from untildone.cli.serving import PREFIX

API = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
USUAL = "http://127.0.0.1:8642"


def test_every_line_of_curl_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```(?:\n\n```json\n(.*?)```)?", API, re.DOTALL)
    assert len(blocks) >= 6
    with served(tmp_path) as server:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            f"{PREFIX}DATABASE": f"sqlite:///{tmp_path / 'server.db'}",
        }
        # A stream does not end by itself.
        before = (
            'curl() { command curl -sS --max-time "$(case "$*" in *stream*) echo 3;; *) echo 120;; esac)" "$@"; echo; }'
        )
        for number, (block, _) in enumerate(blocks):
            before += f"\necho '=== {number}'\n" + block.replace(USUAL, f"http://127.0.0.1:{server.port}")
        run = subprocess.run(
            ["bash", "-c", before],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    said = dict(enumerate(re.split(r"=== \d+\n", run.stdout)[1:]))
    assert '"error"' not in run.stdout, run.stdout
    assert set(re.findall(r"curl: \((\d+)\)", run.stderr)) == {"28"}, run.stderr
    for number, (_, told) in enumerate(blocks):
        assert [shape(line) for line in told.splitlines()] == [
            shape(line) for line in said[number].splitlines() if told
        ]
    streams = next(said[number] for number, (block, _) in enumerate(blocks) if "Last-Event-ID" in block)
    assert "id: 1\ndata: {" in streams
    assert streams.count(": here\n") == 3


def shape(line: str) -> object:
    """An answer without what is different every time."""
    answer = json.loads(line)
    return {**answer, **dict.fromkeys({"timestamp", "message_id"} & answer.keys(), "")} if answer else answer
