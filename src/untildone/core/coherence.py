"""What a person asked for that does not go together, and what goes together but may surprise."""

from untildone.core import check_specs
from untildone.core.contract import FORGE_CONDITIONS, Contract
from untildone.core.permissions import without_effect
from untildone.core.policy import RunSpec
from untildone.errors import UsageError

_CARRIED = frozenset({"merge", "pr"})


def coherent(spec: RunSpec) -> RunSpec:
    """The same, if it can be; UsageError says what cannot."""
    wrong = contradiction(spec)
    if wrong:
        raise UsageError(wrong)
    return spec


def forge_repository(owner: str | None, repo: str | None) -> str | None:
    """OWNER/NAME, however it was given: in one piece, or as `--owner` and `--repo`."""
    if repo is None:
        if owner is not None:
            raise UsageError(f"--owner {owner} needs --repo NAME; or give --repo {owner}/NAME")
        return None
    named, slash, name = repo.rpartition("/")
    if slash and owner not in {None, named}:
        raise UsageError(f"--owner {owner} and --repo {repo} name two different owners: give one of them")
    if not slash and owner is None:
        raise UsageError(f"--repo {repo} does not say whose: write --repo OWNER/{repo}, or add --owner OWNER")
    whose = named or owner or ""
    if not name or not whose or "/" in whose:
        raise UsageError(f"--repo {repo} is no repository on a forge: write --repo OWNER/NAME")
    return f"{whose}/{name}"


def contradiction(spec: RunSpec) -> str:
    """The first thing that cannot be, as one line with a way out; empty: all goes together."""
    return _impossible(spec.contract) or next((line for holds, line in _contradictions(spec) if holds), "")


def _impossible(contract: Contract) -> str:
    """What no contract can hold, however it was made."""
    try:
        check_specs.checks(contract.checks)
    except ValueError as wrong:
        return f"the contract {wrong}"
    try:
        for folder in contract.share:
            check_specs.below(folder)
    except ValueError as wrong:
        return f"--share {wrong}"
    return ""


def _contradictions(spec: RunSpec) -> list[tuple[bool, str]]:
    contract, landing = spec.contract, spec.landing
    asked = {check.kind for check in contract.checks}
    on_forge = ", ".join(sorted(asked & FORGE_CONDITIONS))
    return [
        (
            landing.land == "pr" and bool(on_forge),
            f"--require {on_forge} is what --land pr does itself, after everything else holds: leave it out",
        ),
        (
            spec.options.task_tools and spec.options.agent == "claude_cli",
            "--task-tools are served by this process, which --agent claude_cli cannot reach: leave one of them out",
        ),
        (
            "tasks-ticked" in asked and spec.task_file is None,
            "--require tasks-ticked needs a file with boxes to tick: start with `untildone tasks FILE`",
        ),
        (
            contract.fail_to_pass and "command" not in asked,
            "--fail-to-pass needs a command that runs the tests: give --check CMD",
        ),
        (
            contract.fail_to_pass_check is not None and not contract.fail_to_pass,
            "--fail-to-pass-check says how new tests are run for --fail-to-pass: give that, too",
        ),
        (
            contract.proof == "strict" and contract.room == "tree",
            "--proof strict needs a fresh checkout: leave out --check-in tree",
        ),
        (
            spec.branch_per == "iteration" and not spec.branch,
            "--branch-per iteration and --disable-branches contradict each other: give one of them",
        ),
        (
            spec.branch_per == "iteration" and not spec.commit,
            "--branch-per iteration needs commits: leave out --land none (or --disable-commits)",
        ),
        (
            landing.every == "iteration" and landing.land not in _CARRIED,
            f"--land-every iteration has nothing to land with --land {landing.land}: give --land merge or --land pr",
        ),
    ]


def remarks(spec: RunSpec) -> list[str]:
    """What works, but proves or does less than one may think."""
    contract, landing, review = spec.contract, spec.landing, spec.review
    in_tree = contract.room == "tree"
    weaker = "the checks run in the agent's own tree (--check-in tree), which is weaker evidence than a fresh checkout"
    also = f"; with --land {landing.land} the base gets what only that tree has shown to work"
    said = [
        (in_tree and bool(contract.checks), weaker + (also if landing.land in _CARRIED else "")),
        (
            in_tree and bool(contract.setup or contract.share),
            "--setup and --share prepare a fresh checkout: with --check-in tree they do nothing",
        ),
        (
            bool(contract.checks) and not contract.baseline,
            "the checks are not run before the work begins (--no-baseline): which of them failed before is not known",
        ),
        (
            review.when == "never" and any((review.prompt, review.model, review.agent)),
            "there is no review without --review: the settings of the reviewer have no effect",
        ),
        (
            spec.commit_message == "agent" and not spec.commit,
            "nothing is committed, so the message the agent writes is not used (--commit-message agent)",
        ),
        (
            landing.land in _CARRIED and not contract.checks,
            f"nothing is checked before the work lands (--land {landing.land}): give --check CMD",
        ),
    ]
    beaten = without_effect(spec.options.allowed_tools, spec.options.allow_tools)
    return [*(line for holds, line in said if holds), *beaten]
