"""What an agent in a sandbox sees."""

import os
import socket
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from untildone.errors import NoSandbox
from untildone.sandbox.agents_view import Quarters, view
from untildone.sandbox.bubblewrap import can_enclose, enclosed
from untildone.sandbox.toolchains import interpreters


@pytest.fixture
def quarters(tmp_path: Path) -> Quarters:
    home, around = tmp_path / "home", tmp_path / "store" / "boxes" / "r-work"
    (home / "project").mkdir(parents=True)
    around.mkdir(parents=True)
    return Quarters(around=around, home=home, writable=(home / "project",), own=(tmp_path / "store",))


def test_its_folder_is_written_its_home_is_its_own_and_the_rest_is_not_there(quarters: Quarters) -> None:
    seen = view(quarters, {"PATH": "/usr/bin"}, root=False, as_user=True)
    by_place = {mount.place: mount for mount in seen.mounts}
    assert not seen.whole_system
    assert not seen.network
    assert by_place[str(quarters.home)].source == str(quarters.around / "home")
    assert by_place[f"{quarters.home}/project"].kind == "write"
    assert by_place["/usr"].kind == "read"
    assert {"/home", "/root", "/var", "/run", "/srv", "/sys"}.isdisjoint(by_place)


def test_what_not_everybody_may_read_is_hidden_from_root_too(quarters: Quarters) -> None:
    if os.geteuid() == 0:
        seen = {mount.place: mount for mount in view(quarters, {}, root=False, as_user=True).mounts}
        assert seen["/etc/shadow"].source == "/dev/null"
        assert "/etc/passwd" not in seen


def test_what_is_fixed_lies_on_top_of_what_may_be_written_and_what_is_not_there_stays_away(quarters: Quarters) -> None:
    folder = quarters.writable[0]
    (folder / "config").write_text("x")
    there, missing = folder / "config", folder / "hooks"
    fixed = Quarters(
        around=quarters.around, home=quarters.home, writable=quarters.writable, fixed=(there, missing), own=quarters.own
    )
    kinds = {mount.place: mount.kind for mount in view(fixed, {}, root=False, as_user=True).mounts}
    assert (kinds[str(there)], kinds[str(missing)]) == ("read", "empty")


def test_our_own_folder_is_not_seen_even_if_it_lies_in_the_agents(quarters: Quarters) -> None:
    store = quarters.writable[0] / ".untildone"
    store.mkdir()
    inside = Quarters(around=store / "boxes", home=quarters.home, writable=quarters.writable, own=(store,))
    kinds = {mount.place: mount.kind for mount in view(inside, {}, root=False, as_user=True).mounts}
    assert kinds[str(store)] == "empty"


@pytest.mark.parametrize("place", [".", ".."])
def test_a_whole_home_is_not_lent(quarters: Quarters, place: str) -> None:
    folder = Path(os.path.normpath(quarters.home / place))
    wide = Quarters(around=quarters.around, home=quarters.home, writable=(folder,))
    with pytest.raises(NoSandbox, match="holds your home"):
        view(wide, {}, root=False, as_user=True)


def test_programs_beside_downloads_and_logins_are_lent_alone(quarters: Quarters) -> None:
    for file in (
        ".cargo/bin/cargo",
        ".cargo/credentials.toml",
        ".cargo/registry/x",
        ".pyenv/bin/pyenv",
        ".pyenv/lib/x",
    ):
        (quarters.home / file).parent.mkdir(parents=True, exist_ok=True)
        (quarters.home / file).touch(mode=0o755)
    path = f"{quarters.home}/.cargo/bin:{quarters.home}/.pyenv/bin"
    mounts = {mount.place: mount for mount in view(quarters, {"PATH": path}, root=False, as_user=True).mounts}
    assert {f"{quarters.home}/.cargo/bin", f"{quarters.home}/.pyenv"} <= mounts.keys()
    assert mounts[f"{quarters.home}/.cargo"].source == f"{quarters.around}/home/.cargo"


def test_the_python_of_an_environment_in_the_folder_is_lent_and_nothing_that_is_none(quarters: Quarters) -> None:
    python, secret = quarters.home / "uv" / "cpython" / "bin" / "python3", quarters.home / "secret" / "bin" / "python3"
    for program in (python, secret):
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    library = python.parent.parent / "lib" / "python3.12" / "os.py"
    library.parent.mkdir(parents=True)
    library.touch()
    for name, target in ((".venv", python), ("backend/venv", python), (".evil", secret)):
        environment = quarters.writable[0] / name
        (environment / "bin").mkdir(parents=True)
        (environment / "bin" / "python").symlink_to(target)
        (environment / "pyvenv.cfg").touch()
    named = replace(quarters, programs=tuple(interpreters(quarters.writable)))
    places = {mount.place for mount in view(named, {}, root=False, as_user=True).mounts}
    assert str(python.parent.parent) in places
    assert not any("secret" in place for place in places)


def test_a_socket_of_a_program_outside_cannot_be_connected_to(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as service:
        home, tools = Path(short), Path(short, "tools", "bin")
        for folder in (tools, home / "project", home / "else"):
            folder.mkdir(parents=True)
        service.bind(f"{tools}/in.sock")
        service.listen()
        with socket.socket(socket.AF_UNIX) as hidden:
            hidden.bind(f"{home}/else/out.sock")
            quarters = Quarters(around=tmp_path / "around", home=home, writable=(home / "project",))
            seen = view(quarters, {"PATH": str(tools)}, root=False, as_user=os.geteuid() != 0 or can_enclose().as_user)
        sockets = {mount.place: mount.source for mount in seen.mounts if mount.place.endswith(".sock")}
        assert sockets == {f"{tools}/in.sock": "/dev/null"}
        knock = f"import socket; socket.socket(socket.AF_UNIX).connect('{tools}/in.sock')"
        argv = [*enclosed(seen), "--", "/usr/bin/python3", "-c", knock]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert "ConnectionRefusedError" in done.stderr
