"""What is proven, guarded and reviewed, and how far the work has come: in a few words, from the folded state."""

from typing import Any

from untildone.core.contract import FAIL_TO_PASS, Contract
from untildone.core.figures import short_commit
from untildone.core.obstacles import LOOKS_AGAIN, guard_text, obstacles
from untildone.core.policy import Landing, RunSpec
from untildone.core.printable import one_line
from untildone.core.progress import curve
from untildone.core.state import LoopState

_WIDTH = 300
_CARRIED = frozenset({"merge", "pr"})

IN_TREE = "the agent's own tree, which is weaker evidence than a fresh checkout"
IN_ROOM = "a fresh checkout of the commit"


def weaker_text(weaker: str) -> str:
    """Said wherever a verdict is shown that proves less than it could; "" for others."""
    return f"weaker, because {weaker}" if weaker else ""


def standing(state: LoopState) -> list[tuple[str, str]]:
    """Labels and words for whoever looks at a run; only of what there is."""
    contract = state.spec.contract
    unknown = contract.checks and not contract.baseline and state.baseline is None
    red = ["not known (--no-baseline)"] if unknown else [name for name, passed in state.baseline or () if not passed]
    facts = [
        ("blocked by", "; ".join(obstacles(state))),
        ("checked in", (IN_TREE if contract.room == "tree" else IN_ROOM) if contract.checks else ""),
        ("proof", weaker_text(state.weaker)),
        ("proven at", short_commit(state.verified_commit or "")),
        ("failing before", ", ".join(red)),
        ("flaky", ", ".join(state.flaky)),
        ("progress", curve(state.progress)),
        ("fail to pass", fail_to_pass_text(state)),
        ("guard", guard_text([finding for finding in state.findings if not finding.blocking])),
        ("waived", ", ".join((*contract.waive, *state.waived))),
        ("review", review_text(state)),
        ("landing", landing_text(state)),
    ]
    return [(label, one_line(text, _WIDTH)) for label, text in facts if text]


def unproven(state: LoopState) -> str:
    """Why the work that is there counts for nothing yet, in a few words; empty when it is proven, or there is none."""
    if state.verified or not state.attempts:
        return ""
    if state.claim_due and state.refused_streak[0]:
        return LOOKS_AGAIN
    if state.checks_said == "passed" and not state.feedback:
        return "the checks pass, and the agent did not say that it is done"
    if not state.feedback:
        return "the latest changes were not checked" if state.spec.contract.checks else "no checks were given"
    failed = ["the checks failed"] if state.checks_said == "failed" else []
    return "; ".join([*failed, *obstacles(state)]) or "the checks failed"


def fail_to_pass_text(state: LoopState) -> str:
    """How new tests did on the code before the change; empty where nobody asked."""
    if not state.spec.contract.fail_to_pass:
        return ""
    if any(name == FAIL_TO_PASS for name, _ in state.red):
        return "not shown to fail on the code the run began with"
    return "they fail on the code the run began with" if state.verified else "not looked at yet: the checks come first"


def review_text(state: LoopState) -> str:
    """What the reviewer said last, in a few words; empty without one."""
    review = state.spec.review
    if review.when == "never":
        return ""
    if state.approved:
        return "approved"
    if state.review_rounds:
        return f"asked for changes, {state.review_rounds} of {review.rounds} times in a row"
    return "after each iteration" if review.when == "iteration" else "before it counts as done"


def landing_text(state: LoopState) -> str:
    """How far the work has come; empty where it goes no further than into commits."""
    landing, arrival = state.spec.landing, state.arrival
    if landing.land not in _CARRIED:
        return ""
    base = arrival.base or landing.base or "the base"
    if arrival.trouble:
        pull = f" ({arrival.url})" if arrival.url else ""
        return f"given up: {arrival.trouble}{pull}"
    if arrival.landed is not None and state.last_commit in {None, arrival.landed}:
        at = f" as {short_commit(arrival.merged)}" if arrival.merged else ""
        return f"landed in {base}{at}"
    if state.last_commit is None and state.phase == "completed":
        return "nothing was committed, so nothing lands"
    mended = f", fixed {arrival.fixes} of {landing.fixes} times" if arrival.fixes else ""
    if arrival.commit is None:
        return f"not yet in {base}{mended}"
    held_up = f"; waiting for the forge: {arrival.held_up}" if arrival.held_up else ""
    return f"{_under_way(state, base)}{mended}{held_up}"


def _under_way(state: LoopState, base: str) -> str:
    arrival = state.arrival
    if arrival.number is not None:
        return f"pull request #{arrival.number} waits for CI and reviews: {arrival.url}"
    if arrival.in_line:
        return f"waiting for its turn to land: {arrival.in_line}"
    if arrival.pushed is not None:
        return f"{arrival.branch} is pushed, a pull request for {base} comes next"
    return f"{short_commit(arrival.commit or '')} on its way to {base}"


def contract_facts(spec: RunSpec) -> list[tuple[str, str]]:
    """What was agreed about proof and arrival, before a run begins."""
    contract = spec.contract
    review = spec.review
    who = ", ".join(filter(None, (review.model, review.agent)))
    facts = [
        ("checked in", _room(contract) if contract.checks else ""),
        ("guard", _guard(contract)),
        (
            "review",
            "" if review.when == "never" else review_text(LoopState(spec=spec)) + (f", by {who}" if who else ""),
        ),
        ("landing", landing_plan(spec.landing)),
    ]
    return [(label, text) for label, text in facts if text]


def _room(contract: Contract) -> str:
    if contract.room == "tree":
        return IN_TREE
    strict = ", enclosed and without a network" if contract.proof == "strict" else ""
    setup = f", prepared by `{contract.setup}`" if contract.setup else ""
    share = f", with {', '.join(contract.share)} from the tree" if contract.share else ""
    return IN_ROOM + strict + setup + share


def _guard(contract: Contract) -> str:
    words = {
        "off": "off: tests, CI and thresholds may change",
        "on": "where tests, settings or scripts of checks change, the base's judge the new code as well",
        "strict": "any change of tests, CI, coverage and lint settings blocks done",
    }[contract.guard]
    more = f"; also {', '.join(contract.guard_files)}" if contract.guard_files else ""
    waived = f"; waived: {', '.join(contract.waive)}" if contract.waive else ""
    fail = "; new tests must fail on the old code" if contract.fail_to_pass else ""
    return words + more + waived + fail


def landing_plan(landing: Landing) -> str:
    """What is to become of the work; empty where it stays where it is made."""
    if landing.land not in _CARRIED:
        return ""
    base = landing.base or "the branch that is checked out at the start"
    when = "what each iteration made" if landing.every == "iteration" else "once done"
    if landing.land == "merge":
        return f"{when}, merged here into {base} ({landing.strategy})"
    whose = f" of {landing.repo}" if landing.repo else ""
    return f"{when}, through a pull request to {base}{whose} ({landing.strategy}), pushed to {landing.remote}"


def delivery_json(state: LoopState) -> dict[str, Any]:
    """The same for programs: parts of `untildone status --json`."""
    arrival, contract = state.arrival, state.spec.contract
    return {
        "in_the_way": obstacles(state),
        "proof": {
            "room": contract.room,
            "weaker": state.weaker or None,
            "commit": state.verified_commit,
            "baseline": dict(state.baseline or ()),
            "flaky": list(state.flaky),
            "fail_to_pass": fail_to_pass_text(state) or None,
            "progress": curve(state.progress) or None,
            "red": [
                {"check": name, "log": log or None, "failed": dict(state.failing).get(name) or None}
                for name, log in state.red
            ],
        },
        "guard": {
            "mode": contract.guard,
            "waived": [*contract.waive, *state.waived],
            "disputed": list(state.disputed),
            "accepted": list(state.accepted),
            "accepted_by": state.accepted_by or None,
            "findings": [
                {"kind": f.kind, "path": f.path, "line": f.line, "blocking": f.blocking} for f in state.findings
            ],
        },
        "review": {"when": state.spec.review.when, "approved": state.approved, "rounds": state.review_rounds},
        "landing": {
            "land": state.spec.landing.land,
            "branch": arrival.branch,
            "base": arrival.base,
            "under_way": arrival.commit,
            "in_line": arrival.in_line or None,
            "pull": arrival.number,
            "url": arrival.url or None,
            "landed": arrival.landed,
            "merged": arrival.merged,
            "fixes": arrival.fixes,
            "rejected": arrival.rejected or None,
            "held_up": arrival.held_up or None,
            "trouble": arrival.trouble or None,
        },
    }
