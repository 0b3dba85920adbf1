"""What is printed: no address of a channel, and nothing of what a hidden check looks at."""

from dataclasses import asdict

from untildone.cli.masking import masked_event, masked_spec
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.outcome import CheckResult
from untildone.core.policy import RunSpec


def test_a_hidden_check_is_hidden_wherever_something_is_printed() -> None:
    contract = Contract(checks=(*commands("make"), *commands("golden --seed 7", hidden=True)))
    spec = RunSpec(goal="g", cwd="/w", name="n", contract=contract)
    assert "golden" not in str(asdict(masked_spec(spec)))
    assert "make" in str(asdict(masked_spec(spec)))
    seen = CheckResult(
        name="hidden check 1", command="golden --seed 7", passed=False, output_tail="7 != 8", hidden=True
    )
    told = ev.IterationValidation(iteration_num=1, passed=False, checks=(seen,))
    assert "golden" not in str(masked_event(told))
    assert "7 != 8" not in str(masked_event(told))
