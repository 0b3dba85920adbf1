import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.cli_kit import Say
from untildone.cli import autostart
from untildone.config import OPERATOR_MARK


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the unit goes in a home of our own, with a name that is hard to quote."""
    home = tmp_path / 'my "home" 100% $HOME'
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home / ".config" / "systemd" / "user" / "untildone.service"


def switch_on(unit: Path) -> Path:
    """What `systemctl --user enable` does."""
    link = unit.parent / "default.target.wants" / unit.name
    link.parent.mkdir()
    link.symlink_to(unit)
    return link


def test_install_writes_a_unit_and_says_what_is_next(say: Say, unit: Path) -> None:
    said = say("autostart", "install")
    assert said.code == 0
    for piece in (str(unit), "systemctl --user enable untildone.service", "loginctl enable-linger"):
        assert piece in said.out
    text = unit.read_text()
    for piece in ("Type=oneshot", "RemainAfterExit=yes", "WantedBy=default.target", '"--interrupted" "--detach"'):
        assert piece in text


def test_installing_twice_changes_nothing(say: Say, unit: Path) -> None:
    say("autostart", "install")
    before = (unit.read_bytes(), unit.stat().st_mtime_ns)
    said = say("autostart", "install")
    assert (said.code, (unit.read_bytes(), unit.stat().st_mtime_ns)) == (0, before)
    assert "already" in said.out


def test_an_older_unit_is_renewed(say: Say, unit: Path) -> None:
    unit.parent.mkdir(parents=True)
    unit.write_text(autostart.MARK + "\n[Service]\nExecStart=/old\n")
    assert "install it again" in say("autostart", "status").out
    assert say("autostart", "install").code == 0
    assert "/old" not in unit.read_text()


def test_uninstall_removes_exactly_what_install_wrote(say: Say, unit: Path) -> None:
    say("autostart", "install")
    other = unit.with_name("other.service")
    other.write_text("[Service]\n")
    link = switch_on(unit)
    (link.parent / "other.service").symlink_to(other)
    assert say("autostart", "uninstall").code == 0
    left = sorted(str(path.relative_to(unit.parent)) for path in unit.parent.rglob("*.service"))
    assert left == ["default.target.wants/other.service", "other.service"]
    again = say("autostart", "uninstall")
    assert (again.code, "there is no" in again.out) == (0, True)


@pytest.mark.parametrize("verb", ["install", "uninstall", "status"])
def test_a_unit_of_somebody_else_is_left_alone(say: Say, unit: Path, verb: str) -> None:
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    said = say("autostart", verb)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert unit.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_status(say: Say, unit: Path) -> None:
    assert "not installed" in say("autostart", "status").out
    say("autostart", "install")
    assert "not switched on" in say("autostart", "status").out
    switch_on(unit)
    assert "\nswitched on" in say("autostart", "status").out


def test_an_agent_installs_nothing(say: Say, unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPERATOR_MARK, "abc")
    assert say("autostart", "install").code == 5
    assert not unit.exists()


def test_a_folder_that_cannot_be_written_is_one_line(say: Say, unit: Path) -> None:
    (unit.parents[2]).write_text("not a folder")
    said = say("autostart", "install")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "Traceback" not in said.err


def test_keys_are_not_written_down(say: Say, unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-to-be-seen")
    say("autostart", "install")
    assert "sk-not-to-be-seen" not in unit.read_text()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/two\nlines")
    assert say("autostart", "install").code == 2


def complaints(unit: Path) -> list[str]:
    check = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)],
        env={"HOME": str(unit.parents[3]), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(unit.parent)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return [line for line in check.stderr.splitlines() if "untildone" in line]


def test_systemd_understands_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a Python and folders whose names are hard to quote. Without systemd, only the text is checked."""
    python = tmp_path / "a b 50% $HOME" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/my bin:/usr/bin", "UNTILDONE_HOME": str(tmp_path / "s p")}
    service = autostart.systemd_unit(env)
    text = service.content.decode()
    assert f'Environment="UNTILDONE_HOME={tmp_path}/s p"\n' in text
    assert f'ExecStart=":{tmp_path}/a b 50%% $HOME/python3" "-P"' in text
    if shutil.which("systemd-analyze"):
        service.path.parent.mkdir(parents=True)
        service.path.write_bytes(service.content)
        assert complaints(service.path) == []
        service.path.write_bytes(service.content.replace(b'":/', b'":/nowhere/'))
        assert complaints(service.path) != [], "a program that is not there is noticed"


def test_what_systemd_does_not_take_is_said(say: Say, unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", '/opt/"my" python')
    said = say("autostart", "install")
    assert (said.code, unit.exists()) == (2, False)


def test_launchd(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    said = say("autostart", "install")
    path = tmp_path / "Library" / "LaunchAgents" / "untildone.autostart.plist"
    assert "launchctl bootstrap" in said.out
    table = plistlib.loads(path.read_bytes())
    assert table["ProgramArguments"] == [
        sys.executable, "-P", "-m", "untildone", "resume", "--interrupted", "--detach"
    ]  # fmt: skip
    assert table["RunAtLoad"] is table["AbandonProcessGroup"] is True
    assert "already" in say("autostart", "install").out
    assert say("autostart", "uninstall").code == 0
    assert not path.exists()
    path.write_bytes(b"<plist>")
    assert say("autostart", "uninstall").code == 2
