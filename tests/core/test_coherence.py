"""What does not go together gets one clear line."""

from typing import Any

import pytest

from core.run_kit import spec
from untildone.core.check_specs import together
from untildone.core.coherence import coherent, contradiction, forge_repository, remarks
from untildone.core.contract import CheckSpec, Contract, commands
from untildone.core.policy import Landing, Review, RunSpec
from untildone.errors import UsageError


def asked(*, require: tuple[str, ...] = (), checks: tuple[str, ...] = ("make",), **changes: Any) -> RunSpec:
    contract = Contract(checks=together(commands(*checks), (), require), **changes.pop("contract", {}))
    return spec(contract=contract, **changes)


PR = Landing(land="pr")
TWINS = (CheckSpec(name="tests", command="make"), CheckSpec(name="tests", command="true"))


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (asked(require=("pr-open",), landing=PR), "--require pr-open is what --land pr does itself"),
        (asked(require=("ci-green", "pushed"), landing=PR), "--require ci-green, pushed is what"),
        (asked(require=("tasks-ticked",)), "untildone tasks FILE"),
        (asked(checks=(), contract={"fail_to_pass": True}), "--fail-to-pass needs a command"),
        (asked(branch=False, branch_per="iteration"), "--disable-branches contradict"),
        (asked(landing=Landing(land="none"), branch_per="iteration"), "--branch-per iteration needs commits"),
        (asked(landing=Landing(every="iteration")), "--land-every iteration has nothing to land with --land commit"),
        (spec(contract=Contract(checks=TWINS)), "two different checks called 'tests': give each a name of its own"),
        (asked(contract={"share": ("/etc",)}), "--share must be inside of the project, not '/etc'"),
        (asked(contract={"share": ("a/../../b",)}), "--share must be inside of the project"),
        (asked(contract={"share": (".",)}), "--share must name something inside of the project, not '.'"),
    ],
)
def test_contradictions(wish: RunSpec, said: str) -> None:
    assert said in contradiction(wish)
    with pytest.raises(UsageError) as refused:
        coherent(wish)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "wish",
    [
        asked(), asked(require=("pushed", "pr-open", "ci-green")), asked(require=("tasks-ticked",), task_file="T.md"),
        asked(landing=Landing(land="pr", every="iteration")), asked(contract={"fail_to_pass": True}),
        asked(require=("tree-clean",), landing=PR),
    ],
)  # fmt: skip
def test_what_goes_together_is_left_alone(wish: RunSpec) -> None:
    assert coherent(wish) is wish


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (asked(contract={"room": "tree"}), ["weaker evidence"]),
        (asked(contract={"room": "tree"}, landing=Landing(land="merge")), ["with --land merge the base gets"]),
        (asked(contract={"room": "tree", "setup": "x"}), ["weaker", "--setup and --share"]),
        (asked(review=Review(model="opus")), ["there is no review without --review"]),
        (asked(checks=(), landing=PR), ["nothing is checked before the work lands"]),
        (asked(), []),
        (asked(review=Review(when="landing", model="opus"), landing=PR), []),
    ],
)
def test_remarks(wish: RunSpec, said: list[str]) -> None:
    told = remarks(wish)
    assert len(told) == len(said)
    assert all(part in line for part, line in zip(said, told, strict=True))


def test_the_repository_on_the_forge_in_one_piece_or_two() -> None:
    assert forge_repository(None, None) is None
    assert forge_repository(None, "a/b") == forge_repository("a", "b") == forge_repository("a", "a/b") == "a/b"


@pytest.mark.parametrize(
    ("owner", "repo", "said"),
    [
        ("a", None, "needs --repo NAME"), (None, "b", "does not say whose"), ("x", "a/b", "two different owners"),
        (None, "a/b/c", "is no repository"), (None, "/b", "is no repository"), (None, "a/", "is no repository"),
    ],
)  # fmt: skip
def test_a_repository_nobody_can_find_is_refused(owner: str | None, repo: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        forge_repository(owner, repo)
