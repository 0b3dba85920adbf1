"""What the checks borrow from the tree is noticed when it changes."""

import os
from pathlib import Path

import pytest

from untildone.core.contract import Contract
from untildone.core.findings import LentChange
from untildone.core.verdict import lent_findings, replaced_judges
from untildone.witness.lent import Lent, named_programs, watched


def made(tmp_path: Path) -> Lent:
    for name in ("bin/runner", "lib/a.js", "lib/deep/b.js", "other/c.js", "lib/__pycache__/a.pyc"):
        place = tmp_path / "tree" / "deps" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("exit 1\n")
    lent = Lent(tmp_path / "tree", ("deps",), (), tmp_path / "logs" / "shared.json")
    lent.remember()
    return lent


def test_a_folder_on_the_path_that_cannot_be_looked_into_is_not_watched(tmp_path: Path) -> None:
    """One of another user, or a name that no file can have."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    env = {"PATH": f"/{'x' * 300}/bin:{tmp_path}/env/bin"}
    assert watched(env, tmp_path / "tree") == [f"{tmp_path}/env"]


def test_nothing_changed_and_caches_do_not_count(tmp_path: Path) -> None:
    lent = made(tmp_path)
    (tmp_path / "tree/deps/lib/__pycache__/a.pyc").write_text("other")
    (tmp_path / "tree/deps/lib/__pycache__/b.pyc").write_text("new")
    assert lent.changed() == []


def test_a_program_is_named_even_if_its_size_and_time_are_the_same(tmp_path: Path) -> None:
    lent = made(tmp_path)
    runner = tmp_path / "tree/deps/bin/runner"
    known = runner.stat()
    runner.write_text("exit 0\n")
    os.utime(runner, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert lent.changed() == [LentChange("deps/bin/runner")]
    lent.remember()
    assert lent.changed() == [LentChange("deps/bin/runner")]


def test_what_is_changed_new_or_gone_is_told_by_its_package(tmp_path: Path) -> None:
    lent = made(tmp_path)
    deps = tmp_path / "tree/deps"
    (deps / "lib/deep/b.js").write_text("longer than before\n")
    (deps / "other/c.js").unlink()
    (deps / "new.js").symlink_to("lib/a.js")
    assert [change.path for change in lent.changed()] == ["deps/lib", "deps/new.js", "deps/other"]


def test_sources_of_packages_in_the_stores_of_cargo_and_go(tmp_path: Path) -> None:
    before = ("registry/src/index-6f17d22bba15001f/serde-1.0.2/lib.rs", "git/checkouts/x-12ab/34cd/lib.rs")
    go = ("pkg/mod/example.org/deep/errors@v0.9.1/errors.go", "pkg/mod/cache/download/list")
    for name in (*before, *go):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("bad\n")
    env = {"PATH": f"{tmp_path}/bin:/usr/bin", "GOPATH": str(tmp_path), "GOMODCACHE": f"{tmp_path}/pkg/mod"}
    folders = watched(env, Path("/nowhere"))
    assert folders == [f"{tmp_path}/{name}" for name in ("registry/src", "git/checkouts", "pkg/mod")]
    lent = Lent(tmp_path / "tree", folders, (), tmp_path / "logs" / "shared.json")
    lent.remember()
    new = tmp_path / "registry/src/index-6f17d22bba15001f/rand-0.8.5"
    new.mkdir()
    (new / "lib.rs").write_text("a new package is no harm\n")
    (tmp_path / go[1]).write_text("what the go command writes there is none either\n")
    assert replaced_judges(lent.changed(), ()) == []
    for name in (*before, go[0]):
        (tmp_path / name).write_text("good\n")
    told = [said.partition(": ")[0].removeprefix(f"{tmp_path}/") for said in replaced_judges(lent.changed(), ())]
    assert told == [
        "git/checkouts/x-12ab/34cd", "pkg/mod/example.org/deep/errors@v0.9.1",
        "registry/src/index-6f17d22bba15001f/serde-1.0.2",
    ]  # fmt: skip


@pytest.mark.parametrize("replaced", ["by another link", "by a folder"])
def test_a_package_that_is_a_link_and_is_replaced_judges_like_any_other(tmp_path: Path, replaced: str) -> None:
    for name in ("packages/greet", "other", "node_modules"):
        (tmp_path / name).mkdir(parents=True)
    package = tmp_path / "node_modules" / "greet"
    package.symlink_to("../packages/greet")
    lent = Lent(tmp_path, ("node_modules",), (), tmp_path / "logs" / "shared.json")
    lent.remember()
    assert lent.changed() == []
    package.unlink()
    if replaced == "by a folder":
        package.mkdir()
        (package / "index.js").write_text("module.exports = () => 'good'\n")
    else:
        package.symlink_to("../other")
    assert lent.changed() == [LentChange("node_modules/greet")]
    assert len(replaced_judges(lent.changed(), ())) == 1


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("mytest -q", ["mytest"]),
        ("cd sub && A=1 mytest -q | tee out; ! sh x", ["cd", "mytest", "sh", "tee"]),
        ("if sh a; then (mytest); fi", ["fi", "mytest", "sh"]),
        ("./run.sh && scripts/x", []),
        ("/bin/sh x || env B=2 mytest 'a;b'", ["/bin/sh", "mytest"]),
        ("mytest 'unended", ["mytest"]),
    ],
)
def test_the_programs_of_a_command(tmp_path: Path, command: str, names: list[str]) -> None:
    program = tmp_path / "mytest"
    program.touch(mode=0o755)
    found = named_programs(command, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert sorted(found) == names
    assert found.get("mytest") in {str(program), None}


def test_it_blocks_under_a_strict_guard_unless_it_is_waived() -> None:
    strict = Contract(guard="strict", share=("deps",))
    told = [lent_findings([LentChange("deps/x")], contract, let_pass)[0].blocking
            for contract, let_pass in ((Contract(), ()), (strict, ()), (strict, ("deps",)))]  # fmt: skip
    assert told == [False, True, False]


def test_an_installed_package_that_was_changed_is_disputed_and_a_new_one_is_not(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    for name in ("shop", "other"):
        (packages / name).mkdir(parents=True)
        (packages / name / "code.py").write_text("1")
    lent = Lent(tmp_path, ("venv",), (), tmp_path / "memory.json")
    lent.remember()
    (packages / "shop" / "code.py").write_text("22")
    (packages / "new").mkdir()
    (packages / "new" / "code.py").write_text("1")
    (packages / "hook.pth").write_text("import new\n")
    below = "venv/lib/python3.11/site-packages"
    hook = LentChange(f"{below}/hook.pth", was_there=False)
    assert lent.changed() == [hook, LentChange(f"{below}/new", was_there=False), LentChange(f"{below}/shop")]
    told = [said.partition(":")[0] for said in replaced_judges(lent.changed(), ())]
    assert told == [f"{below}/hook.pth", f"{below}/shop"], "Python reads each .pth by itself"
    assert replaced_judges(lent.changed(), ("venv/**",)) == []
