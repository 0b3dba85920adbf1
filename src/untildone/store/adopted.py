"""A run that comes from another machine: what its records must be before they are taken over."""

from collections.abc import Sequence

from untildone.core.events import Record
from untildone.errors import StoreError

LARGEST = 2**53
"""Numbers beyond it are not the same in every program that reads them."""


def in_rising_order(records: Sequence[Record]) -> list[Record]:
    """The same records. StoreError when a number is twice there, out of order or no number of a log."""
    last = 0
    for record in records:
        if not last < record.seq <= LARGEST:
            raise StoreError(f"record {record.seq} of the other machine comes after {last}: nothing was taken over")
        last = record.seq
    return list(records)
