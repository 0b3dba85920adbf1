"""What verdicts leave behind: proof only of a commit that every check passed on, and suspicion of those that waver."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from core.run_kit import after, completed, done_claim, started
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.delivery import done_for, is_proven, needs_witness
from untildone.core.outcome import CheckResult
from untildone.core.proven import doubted
from untildone.core.stopping import Reason

NAMES = ("a", "b")


def check(name: str, *, passed: bool, **changes: object) -> CheckResult:
    known = {"name": name, "command": name, "passed": passed, "exit_code": 0 if passed else 1, "room": "clean"}
    return CheckResult(**{**known, **changes})  # type: ignore[arg-type]


def looked(commit: str | None, *checks: CheckResult) -> ev.IterationValidation:
    passed = all(one.passed for one in checks)
    return ev.IterationValidation(iteration_num=1, passed=passed, commit=commit, checks=checks, room="clean")


def test_both_verdicts_on_one_commit_are_suspect_also_hours_apart() -> None:
    state = after(looked("c1", check("a", passed=False)), looked("c1", check("a", passed=True)), checks=NAMES)
    assert state.flaky == ("a",)
    state = after(looked("c1", check("a", passed=False)), looked("c2", check("a", passed=True)), checks=NAMES)
    assert state.flaky == ()


def test_the_baseline_is_a_verdict_too() -> None:
    baseline = ev.BaselineTaken(commit="c1", room="clean", checks=(check("a", passed=False),))
    assert after(baseline, looked("c1", check("a", passed=True)), checks=NAMES).flaky == ("a",)


def test_a_setup_that_was_mended_is_no_wavering() -> None:
    red, green = looked("c1", check("a", passed=False)), looked("c1", check("a", passed=True))
    given_before = after(checks=NAMES)
    same = ev.SettingsChanged(by="cli", policy=given_before.policy, spec=given_before.spec)
    prepared = replace(same.spec, contract=replace(same.spec.contract, setup="npm ci"))
    assert after(red, replace(same, spec=prepared), green, checks=NAMES).flaky == ()
    assert after(red, same, green, checks=NAMES).flaky == ("a",)


def test_what_may_change_while_the_commit_does_not_is_no_contradiction() -> None:
    for changes in ({"command": ""}, {"ran": False}, {"room": "tree"}):
        state = after(
            looked("c1", check("a", passed=False, **changes)), looked("c1", check("a", passed=True, **changes))
        )
        assert state.flaky == (), changes


def test_a_failure_is_remembered_on_its_commit_however_many_verdicts_follow() -> None:
    red, green = check("a", passed=False), check("a", passed=True)
    later = [looked(f"c{n}", green, check("b", passed=True)) for n in range(2, 300)]
    state = after(looked("c1", red), *later, checks=NAMES)
    assert doubted(state, commit="c1") == ("a",)
    assert doubted(state, commit="c2") == ()
    assert len(state.verdicts) == 201
    assert after(looked("c1", red), *later, looked("c1", green), checks=NAMES).flaky == ("a",)


def test_in_the_tree_a_verdict_belongs_to_what_the_tree_held() -> None:
    red = replace(looked("c1", check("a", passed=False, room="tree")), tree="t1")
    state = after(red, contract=Contract(checks=commands(*NAMES), room="tree"))
    assert doubted(state, commit="c1", tree="t1") == ("a",)
    assert doubted(state, commit="c1", tree="t2") == ()


def test_a_refused_baseline_stops_before_any_work() -> None:
    state = after(ev.BaselineTaken(commit="c1", room="clean", refused="give a --setup"), checks=NAMES)
    assert (state.fatal, state.fatal_detail, state.baseline) == ("clean_room", "give a --setup", None)


verdicts = st.builds(
    looked,
    st.sampled_from(["c1", "c2"]),
    st.builds(check, st.just("a"), passed=st.booleans(), ran=st.booleans(), flaky=st.booleans()),
    st.builds(check, st.just("b"), passed=st.booleans()),
)
iterations = st.sampled_from([(started(1), completed(1)), (started(1), completed(1, claim=done_claim()))])


@given(st.lists(st.one_of(verdicts.map(lambda verdict: (verdict,)), iterations), max_size=8), st.booleans())
def test_nothing_but_a_passed_verdict_after_the_last_work_is_proof(
    steps: list[tuple[ev.Event, ...]], guarded: bool
) -> None:
    contract = Contract(checks=commands(*NAMES), guard="on" if guarded else "off")
    events = [event for step in steps for event in step]
    state = after(*events, contract=contract)
    assert needs_witness(state)
    last = events[-1] if events else None
    is_green = isinstance(last, ev.IterationValidation) and last.passed
    if is_proven(state) is not None:
        assert is_proven(state) is Reason.VALIDATION_PASSED
        place, proof = next((n, e) for n, e in reversed([*enumerate(events)]) if isinstance(e, ev.IterationValidation))
        assert proof.passed
        assert state.verified_commit == proof.commit
        assert not any(isinstance(event, ev.IterationCompleted) for event in events[place:])
    if is_green:
        assert done_for(state) is Reason.VALIDATION_PASSED


@settings(max_examples=40)
@given(st.lists(verdicts, max_size=8))
def test_suspicion_never_goes_away_and_has_a_reason(events: list[ev.IterationValidation]) -> None:
    suspects: set[str] = set()
    for number in range(len(events) + 1):
        state = after(*events[:number], checks=NAMES)
        assert suspects <= set(state.flaky)
        suspects = set(state.flaky)
        seen = {(event.commit, one.name, one.passed) for event in events[:number] for one in event.checks if one.ran}
        marked = {one.name for event in events[:number] for one in event.checks if one.flaky}
        both = {name for commit, name, passed in seen if (commit, name, not passed) in seen}
        assert suspects == both | marked
