"""What the agent did to its own record is remembered, bounded, and changes nothing else."""

from dataclasses import replace

from untildone.core.events import Record, SteeringRefused, StoreTampered
from untildone.core.fold import fold
from untildone.core.lines import event_line
from untildone.core.meddling import TAMPERED_KEPT
from untildone.core.state import LoopState

DRIVEN = LoopState(run_id="r", phase="running", driving=True, last_at=100.0)


def test_only_the_last_few_deeds_are_kept() -> None:
    deeds = [Record(seq=n, at=100.0 + n, event=StoreTampered(detail=f"deed {n}")) for n in range(1, 31)]
    after = fold(deeds, DRIVEN)
    assert after.tampered == tuple(f"deed {n}" for n in range(31 - TAMPERED_KEPT, 31))
    assert replace(after, tampered=(), last_seq=0, active_seconds=0.0, last_at=100.0) == DRIVEN


def test_refusals_are_counted_and_move_no_clock() -> None:
    asked = [Record(seq=n, at=900.0, event=SteeringRefused(command="stop")) for n in (1, 2, 3)]
    assert fold(asked, DRIVEN) == replace(DRIVEN, refusals=3, last_seq=3)


def test_both_have_their_line() -> None:
    tampered = Record(seq=1, at=0.0, event=StoreTampered(detail="records\nwere deleted", records=(3,)))
    assert event_line(tampered) == "the record of this run was changed from outside: records were deleted"
    refused = Record(seq=2, at=0.0, event=SteeringRefused(command="limits --max-cost 1000"))
    assert event_line(refused) == "the agent tried `untildone limits --max-cost 1000`: refused"
