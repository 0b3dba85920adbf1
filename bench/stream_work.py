"""One way through a file of stream-json, in a process of its own, which tells what it took.

python bench/stream_work.py read|parse FILE
"""

import json
import sys
import time
from pathlib import Path

from untildone.agents.claude_pipe import CHUNK
from untildone.agents.stream import Malformed, StreamParser


def read(path: Path) -> int:
    """Merely read the lines."""
    with path.open("rb") as file:
        return sum(1 for _ in file)


def parse(path: Path) -> int:
    """Read as the loop does, chunk by chunk; the values are dropped as they come."""
    parser = StreamParser()
    lines = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            for line in parser.feed(chunk):
                lines += 1
                assert not isinstance(line, Malformed), line
    return lines + len(parser.finish())


def main(way: str, path: str) -> None:
    """Go through the file and print what it took."""
    work = {"read": read, "parse": parse}[way]
    # CPU, not wall: the file is in memory, nothing is waited for, and neighbours are not counted.
    began = time.process_time()
    lines = work(Path(path))
    seconds = time.process_time() - began
    json.dump({"seconds": seconds, "lines": lines, "peak_mb": peak_memory()}, sys.stdout)


def peak_memory() -> float:
    """The most memory this process ever held, in MB."""
    # Not ru_maxrss: a program inherits the peak of the process that started it.
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
