"""Whether there is room for more: a disk that runs full takes the whole machine along."""

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from untildone.core.figures import size
from untildone.core.limits import is_disk_low
from untildone.core.policy import Policy
from untildone.errors import NoRoom

EVERY = 1.0
"""Seconds for which one look holds."""
SHARE = 10
"""Of a small disk, one part in so many is kept free, if that is less than what runs keep free."""

_log = logging.getLogger(__name__)


class DiskRoom:
    """The disk below a folder, with the reserve that every run keeps there, too."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now = now
        self._looked_at: float | None = None
        self._low = False
        self._line = ""

    def must_be(self) -> None:
        """NoRoom when less than the reserve is free, until there is clearly more again."""
        now = self._now()
        if self._looked_at is None or now - self._looked_at >= EVERY:
            self._looked_at = now
            self._look()
        if self._low:
            raise NoRoom(self._line)

    def _look(self) -> None:
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return  # what cannot be told is no reason to refuse anybody
        usual = Policy()
        reserve = min(usual.disk_reserve, disk.total // SHARE)
        was_low, self._low = self._low, is_disk_low(disk.free, Policy(disk_reserve=reserve), was_low=self._low)
        if self._low:
            self._line = (
                f"the disk of the server is nearly full ({size(disk.free)} free, {size(reserve)} are kept free): "
                "nothing more is kept until there is room"
            )
        if self._low and not was_low:
            _log.warning("%s (%s)", self._line, self._folder)
