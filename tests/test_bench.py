"""The bench measures what it says, and the gates hold in the small: `./dev bench` does it in the large."""

import asyncio
import importlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from untildone.agents.stream import Line, StreamParser
from untildone.core.policy import Landing
from untildone.engine.journal import SNAPSHOT_EVERY, load_state
from untildone.store.sqlite import SqliteLog
from untildone.wiring import STORE_FILE, system_clock

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture(autouse=True)
def _bench_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def bench(name: str) -> Any:
    return importlib.import_module(name)


def run_bench(*argv: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCH / "run.py"), "--quick", "--json", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if report["passed"] else 1)
    return report


def figures(report: dict[str, Any], name: str) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in report["results"][name]["figures"]}


# --- how it is measured ----------------------------------------------------------------------------------


def test_pairs_measured_back_to_back_are_compared_with_each_other() -> None:
    assert bench("result").ratio([1.0, 10.0, 3.0], [2.0, 20.0, 3.0]) == 0.5


def test_a_figure_over_its_gate_fails_the_result() -> None:
    result = bench("result")
    over = result.Figure(name="slow", value=2.1, at_most=2.0)
    fine = result.Figure(name="quick", value=2.0, at_most=2.0)
    assert not result.Result(title="t", figures=(fine, over)).passed
    assert result.Result(title="t", figures=(fine,)).as_json()["passed"]


def test_a_picture_shows_every_point_and_more_is_higher() -> None:
    curve = bench("result").Curve(
        name="c", title="a < b", x_label="x", y_label="y", lines={"one": [(10.0, 0.002), (1e5, 0.3)], "two": [(10, 5)]}
    )
    picture = ET.fromstring(bench("plot").draw(curve))
    dots = [element for element in picture.iter() if element.tag.endswith("circle")]
    assert len(dots) == 3
    (left, low), (right, high), (_, highest) = [(float(dot.get("cx", 0)), float(dot.get("cy", 0))) for dot in dots]
    assert left < right
    assert low > high > highest


@pytest.mark.parametrize("control", [1, 49, 100, *(pytest.param(n, marks=pytest.mark.soak) for n in (10, 1000, 1234))])
def test_a_long_run_is_left_with_its_last_snapshot_as_old_as_can_be(control: int, tmp_path: Path) -> None:
    async def look() -> tuple[int, int]:
        await bench("long_run").write_run(tmp_path, control=control, trace=30)
        log = SqliteLog(tmp_path / STORE_FILE, system_clock())
        try:
            state = await load_state(log, bench("long_run").RUN)
            snapshot = await log.load_snapshot(bench("long_run").RUN)
        finally:
            await log.close()
        return state.last_seq, snapshot[0] if snapshot else 0

    last, snapshot = asyncio.run(look())
    assert last == control
    assert last - snapshot == min(control, SNAPSHOT_EVERY - 1)


def test_the_stream_is_of_the_kind_claude_code_prints(tmp_path: Path) -> None:
    path: Path = bench("stream").write_stream(tmp_path / "stream", 36)
    parser = StreamParser()
    lines = parser.feed(path.read_bytes()) + parser.finish()
    assert parser.malformed == 0
    assert {line.type for line in lines if isinstance(line, Line)} == {"system", "assistant", "user"}
    assert max(map(len, path.read_bytes().split(b"\n"))) > 9 << 20
    answers = [line.message["content"][0] for line in lines if isinstance(line, Line) and line.type == "user"]
    assert all(answer["tool_use_id"] == "toolu_01" and answer["content"] for answer in answers)


def test_an_old_run_and_a_new_one_take_turns_at_saving_the_tree(tmp_path: Path) -> None:
    grown, old, new = asyncio.run(bench("snapshots")._take_turns(tmp_path, Landing(land="none"), 4, 3))
    assert (len(grown), len(old), len(new)) == (4, 3, 3)
    refs = subprocess.check_output(["git", "for-each-ref", "--format=%(refname)"], cwd=tmp_path / "aged", text=True)
    assert [ref for ref in refs.split() if ref.endswith("/7")] == ["refs/untildone/bench/7"]
    assert bench("snapshots")._smoothed([3.0] * 5 + [1.0] * 15) == [(10, 2.0), (20, 1.0)]


# --- the gates, in the small -----------------------------------------------------------------------------


@pytest.mark.soak
def test_the_quick_bench_prints_one_object_and_draws(tmp_path: Path) -> None:
    report = run_bench("--only", "stream", "--only", "startup", "--out", str(tmp_path))
    assert set(report["results"]) == {"stream", "startup"}
    assert figures(report, "stream")["peak memory"] < 100
    assert figures(report, "startup")["heavy modules imported by any of them"] == 0
    assert json.loads((tmp_path / "figures.json").read_text()) == report
    assert ET.parse(tmp_path / "stream-memory.svg").getroot().tag.endswith("svg")


@pytest.mark.soak
def test_a_clean_room_costs_little_more_than_its_checkout(tmp_path: Path) -> None:
    report = run_bench("--only", "clean_room", "--out", str(tmp_path))
    opened, enclosed, _ = figures(report, "clean_room").values()
    assert max(opened, enclosed) < bench("clean_room").GATE


@pytest.mark.soak
def test_a_claim_costs_the_checks_once_or_where_a_test_was_changed_twice(tmp_path: Path) -> None:
    changed, unchanged = figures(run_bench("--only", "base_judges", "--out", str(tmp_path)), "base_judges").values()
    assert changed < 3
    assert unchanged < 2


@pytest.mark.soak
def test_a_hook_takes_as_long_for_a_long_transcript_as_for_a_short_one(tmp_path: Path) -> None:
    found = figures(run_bench("--only", "hook", "--out", str(tmp_path)), "hook")
    assert found["Stop, it goes on, transcript of 50 MB"] < 2 * found["Stop, it goes on"]
    assert found["Stop, last words from one of 50 MB"] < 2 * found["Stop, last words from the transcript"]
    assert found["Stop, no loop in the folder"] < found["Stop, it goes on"]


@pytest.mark.soak
@pytest.mark.claude
def test_the_loop_is_cheaper_than_a_bare_one_and_starts_nothing_but_git() -> None:
    stage, wall = bench("stage"), bench("loop_wall")
    with stage.open_stage() as scene:
        bare = wall._bare(scene, 2)
        notes = stage.our_loop(scene, 7)
    warm = [later - earlier for earlier, later in zip(notes["ended"], notes["ended"][1:], strict=False)]
    cpu = [later - earlier for earlier, later in zip(notes["cpu"], notes["cpu"][1:], strict=False)]
    assert sorted(warm)[len(warm) // 2] <= 0.5 * bare
    assert min(cpu) < 0.030
    # Once a run: what keeps the machine awake, and the guard before Claude. After that nothing but git.
    helpers = [name for name in notes["spawned"] if name not in {"git", "systemd-inhibit"}]
    assert len(helpers) == 1, helpers
    assert notes["spawned"][notes["spawned"].index(helpers[0]) :].count("git") <= 4 * 7
