"""What is printed: no address of a channel, and nothing of what a hidden check looks at."""

from dataclasses import asdict, replace

from untildone.cli.masking import masked_event, masked_spec, masked_value
from untildone.core import events as ev
from untildone.core.contract import Contract, commands
from untildone.core.outcome import CheckResult
from untildone.core.policy import AgentOptions, RunSpec
from untildone.core.settings import BY_NAME


def test_a_hidden_check_is_hidden_wherever_something_is_printed() -> None:
    contract = Contract(checks=(*commands("make"), *commands("golden --seed 7", hidden=True)))
    spec = RunSpec(goal="g", cwd="/w", name="n", contract=contract)
    assert "golden" not in str(asdict(masked_spec(spec)))
    assert "make" in str(asdict(masked_spec(spec)))
    options = AgentOptions(mcp_config=('{"key": "in-servers"}',), extra_args=('{"key": "in-args"}',))
    assert '"key"' not in str(asdict(masked_spec(replace(spec, options=options))))
    assert masked_value(BY_NAME["mcp_config"], options.mcp_config) == ("(hidden)",)
    assert masked_value(BY_NAME["extra_args"], ("--effort", "high")) == ("--effort", "high")
    seen = CheckResult(
        name="hidden check 1", command="golden --seed 7", passed=False, output_tail="7 != 8", hidden=True
    )
    told = ev.IterationValidation(iteration_num=1, passed=False, checks=(seen,))
    assert "golden" not in str(masked_event(told))
    assert "7 != 8" not in str(masked_event(told))
