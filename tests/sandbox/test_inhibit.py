import os
import signal
import subprocess
import sys
from pathlib import Path

from patience import eventually
from untildone.sandbox.inhibit import WAYS, awake

HOLDS = """\
#!/bin/sh
echo "$@" > {folder}/asked
while case "$1" in -*) true;; *) false;; esac; do shift; done
"$@"
touch {folder}/over
"""
DRIVER = """\
import sys
from untildone.sandbox.inhibit import awake
with awake({{"PATH": {path!r}}}):
    print("up", flush=True)
    sys.stdin.read()
"""


def stage(folder: Path, name: str) -> str:
    """A PATH with a program that keeps machines awake, and what it needs."""
    program = folder / name
    program.write_text(HOLDS.format(folder=folder))
    program.chmod(0o755)
    for tool in ("cat", "touch"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    return str(folder)


def test_the_machine_is_kept_awake_for_as_long_as_the_work_lasts(tmp_path: Path) -> None:
    path = stage(tmp_path, "systemd-inhibit")
    with awake({"PATH": path}):
        eventually((tmp_path / "asked").exists)
        assert not (tmp_path / "over").exists()
    assert (tmp_path / "over").exists(), "it is waited for: nothing is left behind"
    assert "--what=sleep:idle" in (tmp_path / "asked").read_text()


def test_also_on_a_mac(tmp_path: Path) -> None:
    path = stage(tmp_path, "caffeinate")
    with awake({"PATH": path}):
        eventually((tmp_path / "asked").exists)
    assert (tmp_path / "asked").read_text().startswith("-i ")


def test_it_ends_with_a_driver_that_was_killed(tmp_path: Path) -> None:
    path = stage(tmp_path, "systemd-inhibit")
    argv = [sys.executable, "-c", DRIVER.format(path=path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"up\n"
        eventually((tmp_path / "asked").exists)
        os.kill(driver.pid, signal.SIGKILL)
        eventually((tmp_path / "over").exists)


def test_where_nothing_is_offered_nothing_happens(tmp_path: Path) -> None:
    with awake({"PATH": str(tmp_path)}):
        assert list(tmp_path.iterdir()) == []


def test_one_that_refuses_is_no_trouble(tmp_path: Path) -> None:
    stage(tmp_path, "unused")
    refusing = tmp_path / WAYS[0][0]
    refusing.write_text("#!/bin/sh\necho 'no bus' >&2\nexit 1\n")
    refusing.chmod(0o755)
    with awake({"PATH": str(tmp_path)}):
        pass
    refusing.write_text("not a program at all")
    with awake({"PATH": str(tmp_path)}):
        pass
