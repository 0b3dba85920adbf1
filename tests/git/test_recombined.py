"""A commit of two: the code of one, and the files that judge it as they are in the other."""

import os
from pathlib import Path

import pytest

from untildone.core.base_judges import BaseJudges
from untildone.core.contract import Contract
from untildone.core.judges import judges_for

pytestmark = pytest.mark.anyio


def files(repo, commit: str) -> list[str]:
    return repo.git("ls-tree", "-r", "-z", "--name-only", commit).strip("\0").split("\0")


async def test_files_are_put_back_left_out_and_rewritten_and_the_tree_is_not_touched(repo, open_in):
    odd = ["tests/new\nline", ":(glob)*", "-x", "tests/with space"]
    for name in odd:
        repo.write(name, "old\n")
    repo.write("tests/folder", "a file once\n")
    repo.write("setup.cfg", "[tool:pytest]\na = 1\n")
    start = repo.commit()
    for name in odd:
        (repo.path / name).unlink()
    (repo.path / "tests/folder").unlink()
    repo.write("tests/folder/inside", "now a folder\n")
    repo.write("conftest.py", "new\n")
    repo.write("app.py", "new\n")
    repo.write("setup.cfg", "[x]\nb = 1\n")
    new = repo.commit()
    before = repo.git("status", "--porcelain"), repo.git("rev-parse", "HEAD"), repo.git("branch", "--list")
    judges = BaseJudges(
        restored=(*odd, "tests/folder"), removed=("conftest.py",), rewritten={"setup.cfg": "[x]\nb = 1\n[y]\n"}
    )
    made = await (await open_in(repo)).recombined(new, start, judges)
    assert sorted(files(repo, made)) == sorted([*odd, "README.md", "app.py", "setup.cfg", "tests/folder"])
    assert repo.git("show", f"{made}:tests/folder") == "a file once"
    assert repo.git("show", f"{made}:setup.cfg") == "[x]\nb = 1\n[y]"
    assert (repo.git("status", "--porcelain"), repo.git("rev-parse", "HEAD"), repo.git("branch", "--list")) == before


async def test_names_that_are_not_utf8(repo, open_in):
    odd = Path(os.fsdecode(os.fsencode(repo.path) + b"/test_\xff.py"))
    odd.write_text("old\n")
    start = repo.commit()
    odd.write_text("new\n")
    repo.write(r"test_\xff.py", "another file, which reads the same\n")
    new = repo.commit()
    workspace = await open_in(repo)
    changes = await workspace.changes(start, new, lambda path: path.startswith("test_"))
    assert {change.path for change in changes} == {r"test_\xff.py"}
    made = await workspace.recombined(new, start, BaseJudges(restored=(r"test_\xff.py",)))
    assert files(repo, made) == ["README.md", os.fsdecode(b"test_\xff.py")]
    assert repo.git("diff", start, made) == ""


async def test_every_file_that_differs_and_what_tests_compare_with_in_the_product(repo, open_in):
    for name in ("src/testing.py", "src/old.py", "vendor/expect/index.js", "vendor/other/index.js"):
        repo.write(name, f"{name} as it was\n")
    start = repo.commit()
    for name in ("src/testing.py", "vendor/expect/index.js", "vendor/other/index.js", "lib/assertions.py"):
        repo.write(name, f"{name} as it is\n")
    (repo.path / "src/old.py").rename(repo.path / "src/new.py")
    new = repo.commit()
    workspace = await open_in(repo)
    assert {(one.path, one.status) for one in await workspace.changed_files(start, new)} == {
        ("src/testing.py", "modified"), ("vendor/expect/index.js", "modified"), ("vendor/other/index.js", "modified"),
        ("lib/assertions.py", "added"), ("src/old.py", "deleted"), ("src/new.py", "added"),
    }  # fmt: skip
    assert await workspace.further_judges(start, new, lambda _: False) == ["src/testing.py", "vendor/expect/index.js"]


async def test_a_repository_with_longer_hashes(plain, open_in):
    plain.git("init", "-q", "-b", "main", "--object-format=sha256")
    plain.git("config", "user.name", "Ada")
    plain.git("config", "user.email", "ada@example.org")
    plain.write("tests/a", "old\n")
    start = plain.commit()
    plain.write("tests/a", "new\n")
    plain.write("tests/b", "new\n")
    made = await (await open_in(plain)).recombined(
        plain.commit(), start, BaseJudges(restored=("tests/a",), removed=("tests/b",))
    )
    assert plain.git("diff", start, made) == ""


async def test_what_was_run_and_linked_stays_so(repo, open_in):
    repo.write("tests/run.sh", "true\n").chmod(0o755)
    (repo.path / "tests/link").symlink_to("run.sh")
    start = repo.commit()
    for name in ("run.sh", "link"):
        (repo.path / "tests" / name).unlink()
    new = repo.commit()
    made = await (await open_in(repo)).recombined(new, start, BaseJudges(restored=("tests/run.sh", "tests/link")))
    listed = repo.git("ls-tree", "-r", made, "tests")
    assert [line.split()[0] for line in listed.splitlines()] == ["120000", "100755"]


async def test_data_that_a_test_names_is_part_of_it(repo, open_in):
    repo.write("examples/slugs.csv", "a;b\n")
    repo.write("examples/other.csv", "a;b\n")
    repo.write("sub/test_examples.py", 'read("examples/slugs.csv")\n')
    start = repo.commit()
    for name in ("slugs", "other"):
        repo.write(f"examples/{name}.csv", "")
    repo.write("new.csv", "")
    new = repo.commit()
    assert await (await open_in(repo)).further_judges(start, new, lambda _: False) == ["examples/slugs.csv"]


async def test_what_a_link_leads_to_is_part_of_the_test(repo, open_in):
    for name in ("suite/one", "real", "else"):
        repo.write(name, "old\n")
    (repo.path / "tests").symlink_to("suite")
    (repo.path / "sub").mkdir()
    (repo.path / "sub/test_a.py").symlink_to("../real")
    (repo.path / "link").symlink_to("else")
    start = repo.commit()
    for name in ("suite/one", "suite/two", "real", "else"):
        repo.write(name, "new\n")
    new = repo.commit()
    judges = judges_for(Contract(), [])
    assert await (await open_in(repo)).further_judges(start, new, judges) == ["real", "suite/one", "suite/two"]


async def test_a_submodule_is_part_of_the_judgement_if_tests_in_it_differ(repo, open_in, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    other = type(repo)(tmp_path / "other")
    other.init()
    other.write("lib/code", "old\n")
    other.write("tests/run.sh", "exit 1\n")
    other.commit()
    for name in ("code", "judges", "gone"):
        repo.git("submodule", "--quiet", "add", str(other.path), name)
    start = repo.commit()
    for name, file in (("code", "lib/code"), ("judges", "tests/run.sh")):
        module = type(repo)(repo.path / name)
        module.git("config", "user.name", "Ada")
        module.git("config", "user.email", "ada@example.org")
        module.write(file, "new\n")
        module.commit()
    repo.git("rm", "-q", "--cached", "gone")
    repo.git("add", "code", "judges")
    repo.git("commit", "-qm", "more")
    workspace, new = await open_in(repo), repo.git("rev-parse", "HEAD")
    found = await workspace.further_judges(start, new, judges_for(Contract(), []))
    assert found == ["gone", "judges"]
    made = await workspace.recombined(new, start, BaseJudges(restored=tuple(found)))
    assert repo.git("diff", "--name-only", start, made) == "code"


async def test_texts_of_a_commit_and_what_is_new_between_two(repo, open_in):
    repo.write("ci/check", "one\n")
    repo.write("with space.sh", "two\n")
    repo.write("app.py", "a = 1\nb = 2\nc = 3\n")
    start = repo.commit()
    workspace = await open_in(repo)
    wanted = ["ci/check", "./ci", "nowhere", "with space.sh", "", "a\nb"]
    assert await workspace.read_files(start, wanted) == {"ci/check": "one\n", "with space.sh": "two\n"}
    repo.write("app.py", "a = 1\nimport pytest\nb = 2\nc = 3\n++ more\n")
    repo.write("new.py", "import unittest\n")
    repo.write("plain.py", "nothing\n")
    new = repo.commit()
    assert await workspace.added_text(start, new, "pytest|unittest") == [
        ("app.py", 2, "import pytest"),
        ("app.py", 5, "++ more"),
        ("new.py", 1, "import unittest"),
    ]
