"""What a command sees: as words for bubblewrap, and which folders of the user's are lent."""

import subprocess
import sys
from pathlib import Path

import pytest

from untildone.sandbox.bubblewrap import enclosed
from untildone.sandbox.toolchains import Surroundings, lent_from_trees, toolchains
from untildone.sandbox.view import Mount, View


def test_what_lies_deeper_is_seen_on_top_and_root_keeps_what_it_needs() -> None:
    mounts = (Mount(place="/h/u/p", kind="write", source="/room"), Mount(place="/h", kind="empty"))
    argv = enclosed(View(mounts=mounts, env=(("HOME", "/h/u"), ("TMPDIR", None)), network=False, root=True))
    text = " ".join(argv)
    assert text.endswith("--tmpfs /h --bind /room /h/u/p --setenv HOME /h/u --unsetenv TMPDIR")
    assert "--unshare-net" in argv
    assert "CAP_SETUID" in argv
    assert "CAP_SYS_ADMIN" not in argv
    plain = enclosed(View())
    assert not {"--unshare-net", "--cap-add", "--unshare-user"} & set(plain)


@pytest.mark.parametrize(
    ("instead", "trouble"),
    [("/dev/null", "bubblewrap is not installed"), ("/bin/false", "bubblewrap cannot work here (exit 1)")],
)
def test_where_it_cannot_work_the_reason_is_told(instead: str, trouble: str) -> None:
    asks = "from untildone.sandbox.bubblewrap import can_enclose; print(can_enclose().trouble)"
    argv = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", instead, "/usr/bin/bwrap", "--", sys.executable, "-c", asks]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout == f"{trouble}\n"


# --- toolchains ------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (
        ".cargo/bin/cargo", ".rustup/toolchains/x", ".nvm/v20/bin/node", ".pyenv/shims/python", "bin/mine",
        ".local/bin/own", ".local/lib/site", ".local/share/keys", ".local/share/uv/tools/ruff/bin/ruff",
        ".local/share/uv/python/3.12/bin/python3.12", "go/bin/gopls", "go/src/project/x", "tools/alone/run.sh",
        ".ssh/id", ".claude/bin/hook", "venv/bin/pip", "certificates/ca.pem", "code/tree/.venv/bin/pytest",
        "code/tree/src/x", ".local/state/untildone/untildone.db",
    ):  # fmt: skip
        place = tmp_path / "home" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o755)
    return tmp_path / "home"


def around(home: Path, *trees: str) -> Surroundings:
    own = (home / ".local" / "state" / "untildone",)
    places = tuple(home / tree for tree in trees or ("code/tree",))
    return Surroundings(home=home, hidden=(home, *own), trees=places, own=own)


@pytest.mark.parametrize(
    ("path", "lent"),
    [
        (".cargo/bin", [".cargo", ".rustup"]),
        (".nvm/v20/bin", [".nvm/v20"]),
        (".pyenv/shims", [".pyenv"]),
        ("bin", ["bin"]),
        (".local/bin", [".local/bin", ".local/lib"]),
        ("go/bin", ["go"]),
        ("tools/alone", ["tools/alone"]),
        ("code/tree/.venv/bin", []),
        (".claude/bin", []),
        ("nowhere/bin", []),
        ("", []),
    ],
)
def test_what_belongs_to_a_folder_of_programs(home: Path, path: str, lent: list[str]) -> None:
    found = toolchains({"PATH": f"/usr/bin:{home / path}"}, (), around(home))
    assert sorted(str(place.relative_to(home)) for place in found) == lent


def test_a_workspace_around_the_tree_is_not_lent_as_a_toolchain(home: Path) -> None:
    env = {"PATH": f"{home}/go/bin", "GOPATH": f"{home}/go"}
    assert toolchains(env, (), around(home, "go/src/project")) == [home / "go" / "bin"]


def test_links_of_programs_are_followed_each_step_of_the_way(home: Path) -> None:
    uv = home / ".local" / "share" / "uv"
    (home / ".local" / "bin" / "ruff").symlink_to(uv / "tools/ruff/bin/ruff")
    (uv / "python" / "current").symlink_to("3.12")
    (uv / "tools" / "ruff" / "bin" / "python").symlink_to(uv / "python/current/bin/python3.12")
    found = toolchains({"PATH": f"{home}/.local/bin"}, (), around(home))
    expected = [".local/bin", ".local/lib", *(f".local/share/uv/{name}" for name in ("python/3.12", "python/current"))]
    assert sorted(str(place.relative_to(home)) for place in found) == [*expected, ".local/share/uv/tools/ruff"]


def test_variables_lend_what_they_name_but_nothing_private_and_no_whole_home(home: Path) -> None:
    env = {
        "PATH": "/usr/bin", "PIP_CERT": f"{home}/certificates/ca.pem",
        "PYTHONPATH": f"{home}/venv:{home}/code/tree/src",
        "HOME": str(home), "OLDPWD": f"{home}/tools", "SSH_KEYS": f"{home}/.ssh", "ALL": f"{home}/.local",
        "STATE": f"{home}/.local/state/untildone", "XDG_DATA_HOME": f"{home}/tools", "TEXT": "not a path",
    }  # fmt: skip
    found = toolchains(env, (), around(home))
    assert sorted(str(place.relative_to(home)) for place in found) == ["certificates/ca.pem", "venv"]


def test_a_program_that_is_named_by_its_path_is_lent(home: Path) -> None:
    found = toolchains({}, (f"{home}/venv/bin/pip", f"{home}/tools/alone/run.sh", "/bin/sh"), around(home))
    assert sorted(str(place.relative_to(home)) for place in found) == ["tools/alone", "venv"]


def test_an_environment_in_the_tree_is_lent_at_its_place(home: Path) -> None:
    tree = home / "code" / "tree"
    (tree / "node_modules" / ".bin").mkdir(parents=True)
    (tree / "bin").mkdir()
    env = {"PATH": f"{tree}/.venv/bin:{tree}/node_modules/.bin:{tree}/bin:{tree}/gone/bin:/usr/bin"}
    assert lent_from_trees(env, [tree]) == [tree / ".venv", tree / "node_modules", tree / "bin"]
    assert lent_from_trees({"VIRTUAL_ENV": f"{tree}/.venv"}, [tree]) == [tree / ".venv"]
