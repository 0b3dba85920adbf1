"""Git repositories for tests, copied from templates: `git init` and a first commit take five processes, a copy one."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

README = {"README.md": "hello\n"}


def new_repository(
    folder: Path, branch: str = "main", files: Mapping[str, str] | None = None, *, checked_out: str = ""
) -> Path:
    """A repository with one commit of these files (a README unless told otherwise), and a user who may commit.

    `checked_out`: another branch at the same commit, which is the current one then.
    """
    template = _template(branch, tuple((README if files is None else files).items()), checked_out)
    shutil.copytree(template, folder, dirs_exist_ok=True)
    # A copied file is another file to git; without this, the first `git status` would have to read them all.
    _git(folder, "update-index", "-q", "--refresh")
    return folder


def new_bare_repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """What a remote is: a bare repository, without a commit or with one commit of these files."""
    shutil.copytree(_bare_template() if files is None else _bare_template_with(tuple(files.items())), folder)
    return folder


def add_remote(folder: Path, bare: Path) -> None:
    """Both hold the same commit on main, which is checked out: as after a clone."""
    with (folder / ".git" / "config").open("a") as config:
        config.write(f'[remote "origin"]\n\turl = {bare}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n')
        config.write('[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n')
    refs = folder / ".git" / "refs" / "remotes" / "origin"
    refs.mkdir(parents=True)
    shutil.copy(folder / ".git" / "refs" / "heads" / "main", refs / "main")
    (refs / "HEAD").write_text("ref: refs/remotes/origin/main\n")


@functools.cache
def _template(branch: str, files: tuple[tuple[str, str], ...], checked_out: str) -> Path:
    folder = _templates() / f"{_template.cache_info().currsize}"
    folder.mkdir()
    _git(folder, "init", "-q", "-b", branch, ".")
    _remove_samples(folder / ".git")
    _git(folder, "config", "user.name", "Ada")
    _git(folder, "config", "user.email", "ada@example.org")
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    if checked_out:
        _git(folder, "switch", "-q", "-c", checked_out)
    return folder


@functools.cache
def _bare_template() -> Path:
    _git(_templates(), "init", "-q", "--bare", "-b", "main", "bare")
    _remove_samples(_templates() / "bare")
    return _templates() / "bare"


@functools.cache
def _bare_template_with(files: tuple[tuple[str, str], ...]) -> Path:
    bare = _templates() / f"bare-{_bare_template_with.cache_info().currsize}"
    _git(_templates(), "clone", "-q", "--bare", str(_template("main", files, "")), str(bare))
    _git(bare, "remote", "remove", "origin")
    _remove_samples(bare)
    return bare


def _remove_samples(git_folder: Path) -> None:
    """Half of the files that would be copied are hooks nobody calls."""
    for sample in (git_folder / "hooks").glob("*.sample"):
        sample.unlink()


@functools.cache
def _templates() -> Path:
    return Path(tempfile.mkdtemp(prefix="untildone-repositories-"))


def _git(folder: Path, *args: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *args], cwd=folder, env=env, check=True, capture_output=True, timeout=240)


@pytest.fixture(scope="session", autouse=True)
def _templates_are_removed() -> Iterator[None]:
    yield
    if _templates.cache_info().currsize:
        shutil.rmtree(_templates())
