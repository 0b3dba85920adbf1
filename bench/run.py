"""`./dev bench`: every claim about speed, measured side by side in one run.

python bench/run.py [--quick] [--json] [--only NAME ...] [--out DIR]
"""

import argparse
import importlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plot import draw
from result import Result

BENCHES = (
    "loop_wall",
    "loop_cost",
    "stream",
    "growth",
    "startup",
    "append",
    "snapshots",
    "clean_room",
    "base_judges",
    "boxed",
    "hook",
    "ingest",
    "viewers",
)
OUT = Path(__file__).parent / "out"


def measure(name: str, *, quick: bool) -> Result:
    """Run one bench."""
    result: Result = importlib.import_module(name).measure(quick=quick)
    return result


def main(argv: list[str] | None = None) -> int:
    """Measure, show, keep; 1 when a gate does not hold."""
    given = _arguments(argv)
    results = {}
    for name in given.only or BENCHES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        results[name] = measure(name, quick=given.quick)
    report = {"machine": machine(), "quick": given.quick, **_as_json(results)}
    _keep(results, report, given.out)
    if given.json:
        print(json.dumps(report, indent=2))
    else:
        _show(list(results.values()), given.out)
    return 0 if all(result.passed for result in results.values()) else 1


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measure speed, as ratios.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds: about a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only", action="append", choices=BENCHES, help="this bench alone; repeatable")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="where pictures and figures go")
    return parser.parse_args(argv)


def _as_json(results: dict[str, Result]) -> dict[str, Any]:
    return {
        "passed": all(result.passed for result in results.values()),
        "results": {name: result.as_json() for name, result in results.items()},
    }


def _keep(results: dict[str, Result], report: dict[str, Any], out: Path) -> None:
    out.mkdir(exist_ok=True)
    (out / "figures.json").write_text(json.dumps(report, indent=2) + "\n")
    for result in results.values():
        for curve in result.curves:
            (out / f"{curve.name}.svg").write_text(draw(curve))


def _show(results: list[Result], out: Path) -> None:
    from rich.console import Console

    from table import show

    # Wide enough for the notes also where there is no terminal.
    show(results, Console() if sys.stdout.isatty() else Console(width=150))
    print(f"pictures and figures: {out}")


if __name__ == "__main__":
    sys.exit(main())
