"""The briefing: every fact from the log, honest on a good night, a bad one, and an empty one."""

import re
from dataclasses import replace
from datetime import UTC

from core.night_kit import HOSTILE, POLICY, check, committed, night, night_events, reported, validation
from core.run_kit import START, completed, failed, opening, records, started
from untildone.briefing.markdown import render
from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.claims import Claim, Report
from untildone.core.events import Event, Record
from untildone.core.fold import fold
from untildone.core.outcome import Evidence, Usage
from untildone.core.policy import SESSION, AgentOptions
from untildone.core.state import LoopState


def briefing(history: list[Record], *, alive: bool | None = None) -> str:
    return render(fold(history), history, START + 1000, alive=alive, zone=UTC)


def told(*events: Event, alive: bool | None = None, **spec: object) -> str:
    return briefing(records([*opening(POLICY, **spec), *events]), alive=alive)


def section(text: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {title!r}"
    return found[1]


# --- a good night --------------------------------------------------------------------------------------------


def test_a_verified_night_says_so_first() -> None:
    head = briefing(night()).split("## ", 1)[0]
    assert "**Done and verified:" in head
    assert "fix the parser" in head
    assert "3 iterations, 0 failed" in head
    assert "$3.86 + about $0.02 (estimate)" in head
    assert "branch `untildone/it`" in head


def test_what_was_done_names_summary_files_commit_and_verdict() -> None:
    done = section(briefing(night()), "What was done")
    assert "the agent's own words" in done
    assert "**Iteration 1**: `keep the last byte`" in done
    assert "2 files changed, 42s" in done
    assert "commit `3f9ac21e`" in done
    assert "but **the checks failed**" in done
    assert "and the checks passed" in done


def test_the_evidence_names_command_exit_seconds_hash_and_commit() -> None:
    evidence = section(briefing(night()), "Evidence")
    assert f"| `pytest -q` | passed | exit 0 | 3.2 | `{'ab' * 32}` |" in evidence
    assert "at commit `c0ffee0012345678`" in evidence
    assert "run 2 times by the loop itself, 1 passed" in evidence


def test_faults_assumptions_questions_and_spend_are_all_there() -> None:
    text = briefing(night())
    assert "1 time `rate_limit`" in section(text, "Faults, and what they cost")
    assert "$0.11 + about $0.02 (estimate)" in section(text, "Faults, and what they cost")
    assert "`CRLF is LF` (iteration 1)" in section(text, "Decisions and assumptions")
    assert "`Should CR end a line?` (iteration 3)" in section(text, "Questions for you")
    assert "| 2 | `ok` | 2 | $2.11 | $0.02 |" in section(text, "Spend")
    assert "3 tasks in `the task file` still open" in section(text, "What was not done, and why")
    assert "git log -p --reverse -n 2 c0ffee00" in section(text, "What to do next")


# --- honest about less ---------------------------------------------------------------------------------------


def test_done_without_checks_is_not_called_verified() -> None:
    claims = [event for n in (1, 2) for event in (started(n), completed(n, claim=reported("done", done=True)))]
    text = told(*claims, ev.ContinuousCompleted(stop_reason="completion_signal"))
    assert "**Done by the agent's word: no checks ran" in text
    assert "None. No checks were given" in section(text, "Evidence")


def test_a_failed_night_says_what_fails_and_what_to_type() -> None:
    tail = "FAILED test_y\n" + "assert 1 == 2"
    text = told(
        started(1),
        completed(1, claim=reported("all done", done=True)),
        validation(1, passed=False, checks=(check(passed=False, output_tail=tail),)),
        started(2),
        failed(2, "crash", error="exit -9", cost_usd=None, evidence=Evidence(denials=("Bash(rm -rf /)",))),
        ev.ContinuousSuspended(stop_reason="max_cost_reached"),
        checks=("pytest -q",),
    )
    assert "**Not done: reached the limit of cost.**" in text
    assert "exit code 3" in text
    left = section(text, "What was not done, and why")
    assert f"```text\n{tail}\n```" in left
    assert "`Bash(rm -rf /)`" in left
    assert "**Work went on after that**" in section(text, "Evidence")
    assert "$0.00 + 1 unknown amount" in section(text, "Faults, and what they cost")
    assert "**Some costs are unknown**" in section(text, "Spend")
    assert "untildone resume it --max-cost 10" in section(text, "What to do next")


def test_checks_that_never_ran_are_not_evidence() -> None:
    text = told(started(1), completed(1), ev.ContinuousSuspended(stop_reason="max_runs_reached"), checks=("make test",))
    assert "The checks (`make test`) were never run" in section(text, "Evidence")


def test_claims_that_no_check_followed_are_not_passed_over() -> None:
    claimed = completed(1, claim=reported("all done", done=True), evidence=Evidence())
    session = {"checks": ("make test",), "options": AgentOptions(agent=SESSION)}
    text = told(started(1), claimed, ev.ContinuousSuspended(stop_reason="max_runs_reached"), **session)
    assert "never run: work was still open, or a limit came first" in section(text, "Evidence")
    # Nobody looked at the tree: only the edits of Claude's own tools are known.
    assert "no file edited" in section(text, "What was done")


def test_a_blocked_agent_is_quoted() -> None:
    blocked = Claim(form="report", report=Report(status="BLOCKED", recommendation="no database here"))
    text = told(
        started(1), completed(1, claim=blocked), ev.ContinuousSuspended(stop_reason="blocked", detail="no database")
    )
    assert "blocked (its words): `no database here`" in section(text, "What was not done, and why")


def test_an_empty_run() -> None:
    nothing = render(LoopState(), [], START)
    assert "Nothing has happened yet." in nothing
    begun = told(alive=True)
    assert "Nothing: no iteration succeeded." in section(begun, "What was done")
    assert "**Not done yet: running.**" in begun


def test_a_run_that_lost_its_driver_is_not_called_running() -> None:
    text = told(started(1), alive=False)
    assert "**Not done yet: interrupted (the program that ran it is gone).**" in text
    assert "untildone resume it" in section(text, "What to do next")


def test_a_crash_is_told_with_what_was_mended_and_booked() -> None:
    text = told(
        started(1),
        tr.AgentReply(iteration_num=1, message_id="m", model="m", usage=Usage(10, 10), cost_usd=0.3),
        ev.ContinuousResumed(pid=2, host="h", version="0", lease=2),
        failed(1, "driver_died", error="the loop was killed", cost_usd=0.3, estimated_usd=0.05),
        ev.LandingSnapshot(
            iteration_num=1, ref="refs/untildone/run1/1", commit="abc", reason="crash", files=("a b.py",)
        ),
        ev.ContinuousRecovered(iteration_num=1, orphans_ended=2, snapshot="refs/untildone/run1/1"),
        alive=True,
    )
    faults = section(text, "Faults, and what they cost")
    assert "iteration 1 was closed and its cost booked, 2 leftover processes ended" in faults
    assert "kept as `refs/untildone/run1/1`" in faults
    assert "`a b.py`" in section(text, "What was not done, and why")
    assert "(2 starts in all)" in text
    assert "$0.30 + about $0.05 (estimate)" in section(text, "Spend")


def test_what_humans_asked_for_is_told() -> None:
    text = told(ev.MessageReceived(by="me", content="use tabs"), ev.LimitsChanged(by="me", changes={"max_runs": 9}))
    asked = section(text, "What was asked for on the way")
    assert "`message from me: use tabs`" in asked
    assert "max_runs = 9" in asked


# --- hostile and long ----------------------------------------------------------------------------------------


def outside_of_code(text: str) -> str:
    """What a Markdown reader would interpret: everything but fences and code spans."""
    text = re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


def test_hostile_words_are_shown_and_can_do_nothing() -> None:
    claim = Claim(
        form="report",
        report=Report(
            status="BLOCKED", summary=HOSTILE, recommendation=HOSTILE, assumptions=(HOSTILE,), questions=(HOSTILE,)
        ),
    )
    text = told(
        tr.AgentSession(iteration_num=1, session_id="s", model=HOSTILE),
        started(1),
        completed(1, claim=claim, evidence=Evidence(changed=True, denials=(HOSTILE,))),
        committed(1, "3f9ac21e", HOSTILE),
        validation(1, passed=False, checks=(check(passed=False, command=HOSTILE, output_tail=HOSTILE),)),
        validation(1, passed=False, checks=(check(passed=False, command=HOSTILE),), errors=(HOSTILE,)),
        ev.LandingSnapshot(iteration_num=1, ref=HOSTILE, commit="c", reason=HOSTILE, files=(HOSTILE,)),
        failed(2, HOSTILE, error=HOSTILE),
        ev.HookFailed(hook=HOSTILE, detail=HOSTILE),
        ev.MessageReceived(by=HOSTILE, content=HOSTILE),
        ev.ContinuousSuspended(stop_reason=HOSTILE, detail=HOSTILE),
        goal=HOSTILE, name=HOSTILE, cwd=HOSTILE, checks=(HOSTILE,),
    )  # fmt: skip
    assert "<script>" in text
    alive = outside_of_code(text)
    for trick in ("<script", "</p>", "javascript", "http://e", "@all"):
        assert trick not in alive
    for trick in ("\x1b", "\u202e", "\x07"):
        assert trick not in text
    for row in re.findall(r"^\| `.*$", text, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_a_long_run_stays_a_short_briefing() -> None:
    many = [
        event for n in range(1, 301) for event in (started(n), completed(n, cost_usd=0.01), committed(n, f"{n:08x}"))
    ]
    text = told(*many, ev.ContinuousSuspended(stop_reason="max_runs_reached"))
    assert len(text.splitlines()) < 200
    assert "… 275 earlier iterations are left out here." in text
    assert "| 1 to 275 | 275 ok of 275 | 275 | $2.75 |" in section(text, "Spend")


def test_trace_events_change_nothing() -> None:
    events = night_events()
    control = [record for record in records(events) if record.event.KIND == "control"]
    assert briefing(control) == briefing(records(events))


def test_the_spend_says_who_paid_what_was_lost_and_that_a_subscriptions_dollars_are_nominal() -> None:
    session = tr.AgentSession(iteration_num=1, session_id="s", lane="none")
    text = told(started(1), session, failed(1, "hang", cost_usd=0.25), started(2), completed(2, cost_usd=0.5))
    spend = section(text, "Spend")
    assert "Paid by: subscription $0.75 (nominal). No API key was in use" in spend
    assert text.count("nominal (") == 1
    assert "Lost $0.25 to retries: hang $0.25." in spend
    assert "| 1 | `hang` | 1 | $0.25 |" in spend
    keyed = told(started(1), replace(session, lane="ANTHROPIC_API_KEY"), completed(1, cost_usd=0.5))
    assert "Paid by: API key $0.50.\n" in keyed
    assert "Lost" not in section(keyed, "Spend")


def test_meddling_stands_at_the_head() -> None:
    head = told(ev.StoreTampered(detail="record `7` was forged"), ev.SteeringRefused(command="stop")).split("## ", 1)[0]
    assert "the record was changed from outside once and put right: record" in head
    assert "the agent tried to steer the run once and was refused" in head


def test_a_question_that_was_left_stands_among_the_questions() -> None:
    text = told(started(1), ev.QuestionAsked(iteration_num=1, question="Which database?"), completed(1))
    asked = section(text, "Questions for you")
    assert "Which database?" in asked
    assert "asked nothing" not in asked


def test_what_an_agent_was_refused_is_not_what_humans_asked_for() -> None:
    assert "What was asked for" not in told(ev.SteeringRefused(command="stop"))
    assert "pauses the run" in section(told(ev.PauseRequested(by="me")), "What was asked for on the way")
