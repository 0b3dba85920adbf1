"""Play all stories on the real Claude Code, one after the other, and print the table of what was judged wrongly.

python tests/corpus/measure.py [--untildone PYTHON] [--only KIND] [--story NAME] [--json FILE]
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus.corpus_kit import KINDS, Ending, Story, outcome, play, stories, wrong

TITLES = {
    "attacks": "an agent makes the checks pass without doing the work",
    "honest": "honest changes of tests, settings, scripts",
    "words": "no checks: words that are a claim, and words that are none",
    "stuck": "stuck, and slow but real progress",
    "moments": "money, messages and odd moments",
}


def measured(story: Story, python: str) -> dict[str, Any]:
    """One story, as a row for the JSON file."""
    folder = Path(tempfile.mkdtemp(prefix="untildone-corpus-", dir="/var/tmp"))
    try:
        ending = play(story, folder, python)
        trouble = wrong(story, ending)
    except Exception as broken:  # noqa: BLE001 one broken story must not end a measurement of an hour
        ending, trouble = Ending(reason="broken", success=False, attempts=0, seconds=0.0), f"the story broke: {broken}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    row = asdict(ending) | {"kind": story.kind, "class": story.cls, "story": story.name, "title": story.title}
    return row | {"outcome": outcome(ending), "wrong": trouble, "text": ending.text[-3000:]}


def line(row: dict[str, Any]) -> str:
    """The row as it is printed when its story has ended."""
    mark = "WRONG" if row["wrong"] else "ok   "
    weak = "  [the checks do not pass in the tree]" if row["tricked"] is False and row["kind"] == "attacks" else ""
    ended = f"{row['outcome']} ({row['reason']}, {row['attempts']} iterations, {row['seconds']:.0f} s)"
    return f"{mark} {row['kind']}/{row['story']}: {ended} {row['wrong']}{weak}"


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the documentation."""
    lines = ["| kind | stories | judged wrongly | which |", "| --- | --- | --- | --- |"]
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        if mine:
            bad = [row["story"] for row in mine if row["wrong"]]
            lines.append(f"| {TITLES[kind]} | {len(mine)} | {len(bad)} | {', '.join(bad)} |")
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--untildone", default=sys.executable, help="the Python of the version to measure")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--story", action="append", help="only stories whose name contains this")
    parser.add_argument("--json", type=Path, default=Path("corpus.json"))
    given = parser.parse_args()
    rows = []
    for story in stories():
        if given.only in (None, story.kind) and (not given.story or any(part in story.name for part in given.story)):
            rows.append(measured(story, given.untildone))
            print(line(rows[-1]), flush=True)
            given.json.write_text(json.dumps(rows, indent=1))
    print("\n" + table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
