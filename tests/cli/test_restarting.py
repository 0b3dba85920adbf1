"""A worker that is started again, and `run` typed again: what becomes of what humans ordered meanwhile."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cli.cli_kit import FIRST, Runs, Say
from untildone import config, wiring
from untildone.cli.driving import Job, opened
from untildone.cli.restarting import worker_job
from untildone.core.events import (
    ContinuousSuspended,
    Event,
    LimitsChanged,
    PauseRequested,
    ResumeRequested,
    SettingsChanged,
    StopRequested,
)
from untildone.core.policy import Policy, RunSpec
from untildone.core.stopping import TAKEN_BY
from untildone.errors import RunElsewhere

POLICY = Policy(max_runs=5, max_cost_usd=2.0)
LOWERED = LimitsChanged(by="ann", changes={"max_cost_usd": 0.5})
SPENT = ContinuousSuspended(stop_reason="max_cost_reached")


def job(store: Path, folder: Path, policy: Policy = POLICY, **given: str) -> Job | None:
    resolved = config.resolve(given, env={"HOME": "/"}, here=folder)
    spec = RunSpec(goal="a goal", cwd=str(folder.resolve()), name="night")

    async def ask() -> Job | None:
        async with opened(store) as log:
            return await worker_job(log, resolved, spec, policy)

    return asyncio.run(ask())


def test_the_same_environment_again_keeps_pause_and_limits(runs: Runs, store: Path, project: Path) -> None:
    runs.begin(project.resolve(), *FIRST, LOWERED, PauseRequested(by="ann"), policy=POLICY, status="running")
    made = job(store, project)
    assert made is not None
    assert (made.run_id, made.before) == ("abc123def456", (PauseRequested(by="ann, before this start"),))
    assert "it is paused by ann" in made.greeting


def test_another_environment_is_a_wish_of_the_workers(runs: Runs, store: Path, project: Path) -> None:
    runs.begin(project.resolve(), *FIRST, LOWERED, policy=POLICY, status="running")
    made = job(store, project, replace(POLICY, max_runs=7))
    assert made is not None
    (changed,) = made.before
    assert isinstance(changed, SettingsChanged)
    assert (changed.by, changed.policy) == ("worker", replace(POLICY, max_runs=7, max_cost_usd=0.5))


@pytest.mark.parametrize("ordered", [True, False])
def test_the_same_words_for_a_deadline_do_not_undo_another_one(
    runs: Runs, store: Path, project: Path, ordered: bool
) -> None:
    now = wiring.system_clock().now()
    words = (datetime.fromtimestamp(now).astimezone() + timedelta(hours=2)).strftime("%H:%M")
    meant = config.deadline_at(words, now)
    order: list[Event] = [LimitsChanged(by="ann", changes={"deadline": meant + 60})] if ordered else []
    runs.begin(project.resolve(), *FIRST, *order, policy=replace(POLICY, deadline=meant), status="running")
    tomorrow = replace(POLICY, deadline=meant + 86400)
    made = job(store, project, tomorrow, deadline=words)
    assert made is not None
    assert bool(made.before) is not ordered


def test_nothing_begins_anew_over_a_limit_that_was_ordered(
    runs: Runs, store: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.begin(project.resolve(), *FIRST, LOWERED, SPENT, policy=POLICY)
    assert job(store, project) is None
    assert "a limit that was ordered (max_cost_usd)" in capsys.readouterr().err
    for policy in (replace(POLICY, max_cost_usd=3.0), replace(POLICY, max_cost_usd=0.1)):
        made = job(store, project, policy)
        assert made is not None
        assert made.begin is not None


def test_its_own_limit_ends_a_run_and_the_next_one_begins(runs: Runs, store: Path, project: Path) -> None:
    runs.begin(project.resolve(), *FIRST, SPENT, policy=POLICY)
    made = job(store, project)
    assert made is not None
    assert made.begin is not None


def test_a_run_that_another_machine_has_is_neither_taken_up_nor_begun_anew(
    runs: Runs, store: Path, project: Path
) -> None:
    runs.begin(project.resolve(), *FIRST, StopRequested(by=TAKEN_BY), policy=POLICY, status="running")
    with pytest.raises(RunElsewhere):
        job(store, project)


def test_run_typed_again_says_what_it_undoes(say: Say, runs: Runs, project: Path, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    runs.begin(project.resolve(), *FIRST, LOWERED, PauseRequested(by="ann"), policy=POLICY, status="running")
    agent = ("--agent", "claude_cli", "--claude", str(program), "--error-threshold", "1")
    said = say("run", "a goal", "--name", "night", "-m", "5", "--max-cost", "2", *agent)
    (line,) = [line for line in said.err.splitlines() if "undoes what was ordered" in line]
    assert "the pause by ann ends; max_cost_usd was 0.5 and is 2" in line
    assert [one.event.by for one in runs.read() if isinstance(one.event, ResumeRequested)] == ["cli"]
