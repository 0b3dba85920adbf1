"""What the composition root decides by itself."""

from untildone.core.contract import CheckSpec, Contract
from untildone.core.policy import Landing, RunSpec
from untildone.wiring import login_names


def spec(land: str, *kinds: str) -> RunSpec:
    checks = tuple(CheckSpec(name=kind, kind=kind) for kind in kinds)  # type: ignore[arg-type] # any kind will do
    return RunSpec(goal="g", cwd="/", name="n", landing=Landing(land=land), contract=Contract(checks=checks))  # type: ignore[arg-type] # as above


def test_the_login_for_a_forge_is_withheld_where_the_loop_uses_it() -> None:
    assert {"GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN"} < login_names(spec("pr"))
    assert login_names(spec("commit")) == frozenset()
    assert login_names(spec("pr", "pushed")) == frozenset()
