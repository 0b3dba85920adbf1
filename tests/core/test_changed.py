"""What a human changed about a run that goes on."""

from dataclasses import replace

from core.run_kit import START, spec
from untildone.core.changed import settings_changed
from untildone.core.contract import Contract, commands
from untildone.core.events import Record
from untildone.core.lines import event_line
from untildone.core.policy import Landing, Policy


def test_what_was_changed_is_named_and_no_command_is_told() -> None:
    before = (spec(checks=("make",)), Policy(max_runs=2))
    after = replace(before[0], landing=Landing(land="merge"), contract=Contract(checks=commands("psql s3cret")))
    event = settings_changed("cli", before, after, Policy(max_runs=4, max_duration=90.5))
    assert event.changes == ("max_runs = 4", "max_duration = 90.5", "checks", "guard", "land = merge")
    said = event_line(Record(seq=1, at=START, event=event)) or ""
    assert said.startswith("cli changed the settings: max_runs = 4, ")
    assert "s3cret" not in said
