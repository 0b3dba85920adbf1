"""What is left on the real machine, and on a disk small enough to fill."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from untildone.sandbox.machine import ThisMachine

# In a mount namespace of its own: a disk of 8 MiB that nobody else sees, and that is gone with the program.
_TINY_DISK = """
import json, os, sys
from untildone.sandbox.machine import ThisMachine

disk, elsewhere = sys.argv[1:]
machine = ThisMachine(writes_to=(elsewhere, disk + "/not/made/yet"), reclaimable={"here": disk, "there": elsewhere})
empty = machine.look()
with open(disk + "/big", "wb") as file:
    file.write(b"x" * (6 << 20))
full = machine.look()
for number in range(100_000):
    try:
        open(f"{disk}/{number}", "wb").close()
    except OSError:
        break
print(json.dumps({
    "empty": [empty.disk_free, empty.disk_where], "full": [full.disk_free, full.disk_where],
    "reclaimable": machine.reclaimable(disk), "no inodes": machine.look().disk_free,
}))
"""


_NOT_ALLOWED = 77


def test_a_small_disk_is_seen_filling_up(tmp_path: Path) -> None:
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    disk.mkdir()
    elsewhere.mkdir()
    script = tmp_path / "look.py"
    script.write_text(_TINY_DISK)
    mount = f'mount -t tmpfs -o size=8m,nr_inodes=2000 none "$1" || exit {_NOT_ALLOWED}; exec "$2" "$3" "$1" "$4"'
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    ran = subprocess.run(
        ["unshare", *as_user, "--mount", "sh", "-c", mount, "sh",
         str(disk), sys.executable, str(script), str(elsewhere)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    if ran.returncode == _NOT_ALLOWED:
        pytest.skip(f"this system lets nobody mount a disk of its own: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["empty"] == [8 << 20, f"{disk}/not/made/yet"]
    assert seen["full"] == [2 << 20, f"{disk}/not/made/yet"]
    assert seen["reclaimable"] == [["here", 6 << 20]], "what is on another disk makes no room on this one"
    assert seen["no inodes"] == 0, "bytes without inodes are of no use"


def test_memory_and_processes_are_counted(tmp_path: Path) -> None:
    facts = ThisMachine(writes_to=[str(tmp_path)]).look()
    assert facts.memory_free is not None
    assert facts.memory_total is not None
    assert 0 < facts.memory_free < facts.memory_total
    assert facts.processes is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as one, subprocess.Popen(["cat"], stdin=one.stdin):
        assert (ThisMachine(writes_to=[]).look().processes or 0) >= 3, "this one and two of its children"


def test_root_is_held_to_no_number_of_processes() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    free = os.geteuid() == 0 or limit == resource.RLIM_INFINITY
    assert ThisMachine(writes_to=[]).look().process_limit == (None if free else limit)


def test_what_cannot_be_measured_is_unknown() -> None:
    assert ThisMachine(writes_to=[]).look().disk_free is None
    assert ThisMachine(writes_to=["/etc/passwd/below-a-file"]).look().disk_free is None


def test_sizes_count_what_is_below_and_follow_no_links(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * (1 << 20))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"x" * (4 << 20))
    (tmp_path / "a" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    places = {"a": str(tmp_path / "a"), "nothing": str(tmp_path / "nothing"), "outside": str(tmp_path / "outside")}
    found = ThisMachine(writes_to=[], reclaimable=places).reclaimable(str(tmp_path))
    assert [name for name, _ in found] == ["outside", "a"]
    assert 1 << 20 <= dict(found)["a"] < 2 << 20
