"""Stands between claude and the loop and mixes garbage into what claude prints: python garbler.py CLAUDE ARGUMENT..."""

import subprocess
import sys

EVERY = 3
"""Lines of claude's own between two pieces of garbage."""
GARBAGE = (
    b'{"type": "assistant", "message": {"content": [\n',
    b"\xff\xfe\x00\x01 no text at all \x80\n",
    b"null\n",
    b'["result", true]\n',
    b"x" * (1 << 20) + b"\n",
    b'{"type": "a-kind-from-the-future", "subtype": 7}\n',
)


def main(argv: list[str]) -> int:
    """Run claude and pass on all it prints, with garbage in between."""
    out = sys.stdout.buffer
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as claude:  # noqa: S603 what to run is what it is for
        assert claude.stdout is not None
        for number, line in enumerate(claude.stdout, start=1):
            out.write(line)
            if number % EVERY == 0:
                out.write(GARBAGE[number // EVERY % len(GARBAGE)])
            out.flush()
    return claude.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
