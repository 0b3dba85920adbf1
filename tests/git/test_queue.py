"""Several runs that land on the same base: in turns or together, each by its own checks, whoever dies meanwhile."""

import asyncio
import fcntl
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from git.conftest import Project
from git.landing_kit import Looks, files_of, green, lander_in, run_git, untouched, work_on
from patience import PATIENCE, eventually, soon
from untildone.git.landings import landings_on
from untildone.git.merging import Work
from untildone.git.queue import Answer, Queue
from untildone.git.repository import open_repository
from untildone.ports.delivery import Landed, NotLanded

pytestmark = pytest.mark.anyio

DRIVER = Path(__file__).with_name("lander_driver.py")
KILLED = -signal.SIGKILL


def line_of(folder: Path) -> Path:
    return folder / ".git" / "untildone" / "queue" / "main"


@contextmanager
def somebody_elses_turn(folder: Path) -> Iterator[None]:
    line_of(folder).mkdir(parents=True, exist_ok=True)
    turn = os.open(line_of(folder) / "turn", os.O_RDWR | os.O_CREAT)
    fcntl.flock(turn, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(turn)


async def standing(folder: Path, count: int) -> None:
    await soon(lambda: len(list(line_of(folder).glob("*.work"))) >= count)


async def land_together(repo: Project, looks: dict[str, Looks], files: dict[str, str]) -> dict[str, Landed | NotLanded]:
    """All of them stand in line before anybody has the turn."""
    tasks = {}
    with somebody_elses_turn(repo.path):
        for run, look in looks.items():
            commit = work_on(repo.path, f"branch-{run}", {files[run]: f"{run}\n"}, message=run)
            lander = await lander_in(repo.path, run)
            tasks[run] = asyncio.ensure_future(lander.merge(commit, message=f"of {run}", verify=look))
        await standing(repo.path, len(looks))
    async with asyncio.timeout(PATIENCE):
        return {run: await task for run, task in tasks.items()}


def subjects(repo: Project) -> list[str]:
    return repo.git("log", "--first-parent", "--format=%s", "main").splitlines()


def no_bad(files: set[str]) -> str:
    bad = sorted(name for name in files if name.startswith("bad"))
    return f"red because of {', '.join(bad)}" if bad else ""


async def test_a_batch_is_looked_at_once(repo: Project) -> None:
    looks = {run: Looks(repo.path) for run in "abc"}
    results = await land_together(repo, looks, {run: f"{run}.txt" for run in "abc"})
    assert all(isinstance(result, Landed) for result in results.values())
    assert sorted(subjects(repo)) == ["first", "of a", "of b", "of c"]
    assert [len(look.seen) for look in looks.values()] == [1, 1, 1]
    assert {look.seen[0] for look in looks.values()} == {repo.git("rev-parse", "main")}
    assert list(line_of(repo.path).glob("*.work")) == []


@pytest.mark.parametrize("guilty", [3, *(pytest.param(n, marks=pytest.mark.soak) for n in (0, 1, 2, 4))])
async def test_one_of_five_is_guilty(repo: Project, guilty: int) -> None:
    runs = "abcde"
    files = {run: f"bad-{run}.txt" if number == guilty else f"{run}.txt" for number, run in enumerate(runs)}
    looks = {run: Looks(repo.path, no_bad) for run in runs}
    results = await land_together(repo, looks, files)
    (sent_back,) = [run for run, result in results.items() if isinstance(result, NotLanded)]
    assert sent_back == runs[guilty]
    refused = results[sent_back]
    assert isinstance(refused, NotLanded)
    assert (refused.cause, f"bad-{sent_back}.txt" in refused.detail) == ("checks", True)
    assert sorted(subjects(repo)) == sorted(["first", *(f"of {run}" for run in runs if run != sent_back)])
    looked_at = {commit for look in looks.values() for commit in look.seen}
    assert len(looked_at) <= 5, "halving, not one by one from both ends"
    assert max(len(look.seen) for look in looks.values()) <= 5


CHOICES = ["".join(chosen) for n in range(5) for chosen in itertools.combinations("abcd", n)]
COMMON = ("bd", "abcd")


@pytest.mark.parametrize(
    "guilty", [choice if choice in COMMON else pytest.param(choice, marks=pytest.mark.soak) for choice in CHOICES]
)
async def test_only_the_guilty_are_sent_back(repo: Project, guilty: str) -> None:
    """Every choice of guilty ones among four (in the soak)."""
    files = {run: f"bad-{run}.txt" if run in guilty else f"{run}.txt" for run in "abcd"}
    results = await land_together(repo, {run: Looks(repo.path, no_bad) for run in "abcd"}, files)
    assert {run for run, result in results.items() if isinstance(result, NotLanded)} == set(guilty)
    assert sorted(subjects(repo)) == sorted(["first", *(f"of {run}" for run in "abcd" if run not in guilty)])
    assert files_of(repo.path, "main") == {"README.md", *(files[run] for run in "abcd" if run not in guilty)}
    for run, result in results.items():
        if isinstance(result, Landed):
            assert files[run] in set(repo.git("show", "--format=", "--name-only", result.merged).splitlines())


async def test_a_check_is_asked_only_where_its_work_is(repo: Project) -> None:
    """What a run was started for is red without it: nobody else is to blame for that."""
    looks = {
        run: Looks(repo.path, lambda files, run=run: "" if f"{run}.txt" in files else f"{run} is missing")
        for run in "abc"
    }
    looks["d"] = Looks(repo.path, lambda _: "always red")
    results = await land_together(repo, looks, {run: f"{run}.txt" for run in "abcd"})
    assert [run for run, result in results.items() if isinstance(result, NotLanded)] == ["d"]


async def test_who_breaks_what_just_landed_is_found_by_the_others_check(repo: Project) -> None:
    looks = {run: Looks(repo.path) for run in "ab"}
    for look in looks.values():
        look.is_red = lambda files: "they do not go together" if {"a.txt", "b.txt"} <= files else ""
    looks["c"] = Looks(repo.path)
    results = await land_together(repo, looks, {run: f"{run}.txt" for run in "abc"})
    assert len([run for run in "ab" if isinstance(results[run], Landed)]) == 1, "the first stays, the second mends"
    assert isinstance(results["c"], Landed)


async def test_who_conflicts_with_another_of_the_batch_is_told_when_that_one_has_landed(repo: Project) -> None:
    looks = {run: Looks(repo.path) for run in "abc"}
    results = await land_together(repo, looks, {"a": "same.txt", "b": "same.txt", "c": "c.txt"})
    assert isinstance(results["c"], Landed)
    conflicts = [result for result in results.values() if isinstance(result, NotLanded)]
    assert [(one.cause, "same.txt" in one.detail) for one in conflicts] == [("conflict", True)]
    assert len(subjects(repo)) == 3


async def test_who_leaves_while_all_look_is_left_out(repo: Project) -> None:
    """A stop asked for meanwhile: the others land without it."""
    looking, leaving = asyncio.Event(), asyncio.Event()

    async def slow(_: str) -> str:
        looking.set()
        await asyncio.sleep(600)
        return ""

    async def after_that(_: str) -> str:
        await leaving.wait()
        return ""

    tasks = {}
    with somebody_elses_turn(repo.path):
        for run, verify in {"a": after_that, "b": slow, "c": after_that}.items():
            commit = work_on(repo.path, f"branch-{run}", {f"{run}.txt": "x\n"}, message=run)
            tasks[run] = asyncio.ensure_future(
                (await lander_in(repo.path, run)).merge(commit, message=f"of {run}", verify=verify)
            )
        await standing(repo.path, 3)
    async with asyncio.timeout(PATIENCE):
        await looking.wait()
        tasks["b"].cancel()
        await asyncio.wait([tasks["b"]])
        leaving.set()
        assert isinstance(await tasks["a"], Landed)
        assert isinstance(await tasks["c"], Landed)
    assert sorted(subjects(repo)) == ["first", "of a", "of c"]


async def test_the_dead_and_the_garbled_are_removed_from_the_line(repo: Project) -> None:
    line = line_of(repo.path)
    line.mkdir(parents=True)
    dead = Work(run_id="dead", commit=repo.git("rev-parse", "HEAD"), message="m", strategy="squash")
    with Queue(repo.path / ".git", "main").standing(dead):
        shutil.copy(line / "dead.work", line / "killed.work")
    (line / "garbled.work").write_text('{"run_id": 7')
    (line / "list.work").write_text("[]")
    (line / "asked").write_text('{"commit": ["r1"], "runs": 3}')
    (line / "r1.answer").write_text('{"cause": "landed"}')
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    assert isinstance(await (await lander_in(repo.path)).merge(commit, message="m", verify=green(repo.path)), Landed)
    assert [path.name for path in line.iterdir()] == ["turn"]


@pytest.mark.parametrize(
    "letter",
    [
        '{"commit": "x", "runs": 5}',
        '{"commit": "--orphan", "runs": ["r1"]}',
        '{"commit": "HEAD", "runs": ["r1"]}',
        "[]",
    ],
)
async def test_a_letter_that_nobody_of_us_wrote_says_nothing(tmp_path: Path, letter: str) -> None:
    work = Work(run_id="r1", commit="1" * 40, message="m", strategy="squash")
    with Queue(tmp_path, "main").standing(work) as place:
        (folder,) = (tmp_path / "untildone" / "queue").iterdir()
        for name in ("asked", "r1.answer", "r1.said"):
            (folder / name).write_text(letter)
        assert (place.asked(), place.answer(), place.said("r1", "x")) == (None, None, None)
        place.ask("2" * 40, ["r1"])
        assert place.asked() == "2" * 40


async def test_letters_reach_only_whom_they_are_for(repo: Project) -> None:
    mine = Work(run_id="a/b", commit="1" * 40, message="m", strategy="rebase")
    other = Work(run_id="c", commit="2" * 40, message="ü", strategy="merge")
    queue = Queue(repo.path / ".git", "feature/x")
    with queue.standing(mine) as place, queue.standing(other) as theirs:
        assert place.others() == [other]
        assert place.waits(other)
        assert (place.take_turn(), theirs.take_turn()) == (True, False)
        place.ask("3" * 40, ["c"])
        assert (place.asked(), theirs.asked()) == (None, "3" * 40)
        theirs.say("3" * 40, "red")
        assert theirs.asked() is None
        assert (place.said("c", "3" * 40), place.said("c", "4" * 40)) == ("red", None)
        place.give("c", Answer(commit="9" * 40, cause="landed"))
        assert theirs.answer() is None, "it is about another commit"
        place.give("c", Answer(commit=other.commit, cause="checks", detail="red"))
        assert theirs.answer() == Answer(commit=other.commit, cause="checks", detail="red")
        place.end_turn()
        assert theirs.take_turn()
    assert not place.waits(other)


# Processes of their own


def start(repo: Path, run: str, commit: str, *more: str, path: Path | None = None) -> subprocess.Popen[str]:
    search = f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin"
    args = [sys.executable, str(DRIVER), str(repo), run, commit, *(more or ("squash",))]
    env = {"PATH": search, "HOME": str(repo.parent)}
    return subprocess.Popen(args, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def end_of(driver: subprocess.Popen[str]) -> str:
    try:
        return driver.communicate(timeout=240)[0].strip()
    finally:
        driver.kill()
        driver.wait()


def test_three_processes_land_at_once(repo: Project) -> None:
    commits = {run: work_on(repo.path, f"branch-{run}", {f"{run}.txt": "x\n"}) for run in "abc"}
    drivers = {run: start(repo.path, run, commit) for run, commit in commits.items()}
    said = {run: end_of(driver) for run, driver in drivers.items()}
    assert all(line.startswith("landed ") for line in said.values()), said
    assert sorted(subjects(repo)) == ["first", "of a", "of b", "of c"]
    assert repo.git("fsck", "--no-dangling") == ""


def test_who_leads_dies_and_another_takes_the_turn(repo: Project) -> None:
    """The first is killed while all three look at the batch."""
    commits = {run: work_on(repo.path, f"branch-{run}", {f"{run}.txt": "x\n"}) for run in "abc"}
    began = repo.path.parent / "began"
    # The check writes its pid as its last word before it sleeps. Nothing ends it with this driver, so the test does.
    first = start(repo.path, "a", commits["a"], "squash", f"exec >/dev/null; echo $$ > {began}; exec sleep 600")
    eventually(lambda: began.exists() and began.read_text().endswith("\n"))
    others = {run: start(repo.path, run, commits[run]) for run in "bc"}
    eventually(lambda: len(list(line_of(repo.path).glob("*.work"))) == 3)
    first.kill()
    assert end_of(first) == ""
    os.kill(int(began.read_text()), signal.SIGKILL)
    said = {run: end_of(driver) for run, driver in others.items()}
    assert all(line.startswith("landed ") for line in said.values()), said
    assert sorted(subjects(repo)) == ["first", "of b", "of c"]
    assert end_of(start(repo.path, "a", commits["a"])).startswith("landed ")
    assert sorted(subjects(repo)) == ["first", "of a", "of b", "of c"]


SHIM = """#!/bin/sh
count=$(($(cat "{counter}") + 1))
echo $count > "{counter}"
echo "$*" >> "{counter}.calls"
[ "$count" = "{number}" ] && [ {side} = before ] && kill -9 $PPID && exit 1
/usr/bin/git "$@"
code=$?
[ "$count" = "{number}" ] && [ {side} = after ] && kill -9 $PPID
exit $code
"""


def git_that_kills(folder: Path, number: int, side: str) -> tuple[Path, Path]:
    """A git whose n-th call kills who called it, before or after it did its work."""
    folder.mkdir()
    counter, shim = folder / "counter", folder / "git"
    counter.write_text("0")
    shim.write_text(SHIM.format(counter=counter, number=number, side=side))
    shim.chmod(0o755)
    return folder, counter


def prepared(repo: Project, folder: Path, *, checked_out: bool) -> tuple[Project, str]:
    """A copy of a repository in which a human is at work, a base that has moved on, and two commits to land."""
    copy = Project(folder / "project")
    shutil.copytree(repo.path, copy.path)
    work_on(copy.path, "run", {"a.txt": "a\n"}, message="one")
    commit = work_on(copy.path, "run", {"b.txt": "b\n"}, message="two")
    work_on(copy.path, "main", {"meanwhile.txt": "m\n"}, message="meanwhile")
    if checked_out:
        copy.git("switch", "-q", "main")
    copy.write("README.md", "stashed\n")
    copy.git("stash")
    copy.write("README.md", "in the middle of a thought\n")
    copy.write("new.txt", "untracked\n")
    copy.git("status")
    return copy, commit


LANDED = {
    "squash": ["of r1", "meanwhile", "first"],
    "merge": ["of r1", "meanwhile", "first"],
    "rebase": ["two", "one", "meanwhile", "first"],
}


def killed_and_repeated(
    repo: Project, folder: Path, number: int, side: str, strategy: str, *, checked_out: bool
) -> None:
    """Whatever had happened, the base has moved once in the end, and nothing else at all."""
    copy, commit = prepared(repo, folder, checked_out=checked_out)
    before = untouched(copy.path)
    path, _ = git_that_kills(folder / "bin", number, side)
    first = start(copy.path, "r1", commit, strategy, path=path)
    said = end_of(first)
    assert first.returncode == KILLED, said
    eventually(lambda: not any(copy.path.glob(".git/*.lock")))  # a git that its caller's death did not end
    if not checked_out:
        assert untouched(copy.path) == before
    assert end_of(start(copy.path, "r1", commit, strategy)).startswith("landed "), (number, side)
    assert subjects(copy) == LANDED[strategy], (number, side)
    assert files_of(copy.path, "main") == {"README.md", "a.txt", "b.txt", "meanwhile.txt"}
    after = untouched(copy.path)
    if checked_out:
        assert copy.git("status", "--porcelain").splitlines() == [" M README.md", "?? new.txt"]
        moved = ("index", "a.txt", "b.txt")
        before, after = ({k: v for k, v in kept.items() if k not in moved} for kept in (before, after))
    assert after == before, (number, side)
    assert copy.git("fsck", "--no-dangling") == ""


SIDES = ("before", "after")


def kill_at(
    repo: Project, tmp_path: Path, deaths: Iterable[tuple[int, str]], strategy: str, *, checked_out: bool
) -> None:
    for number, side in deaths:
        folder = tmp_path / f"{number}-{side}"
        folder.mkdir()
        killed_and_repeated(repo, folder, number, side, strategy, checked_out=checked_out)


def steps_of(repo: Project, tmp_path: Path, strategy: str, *, checked_out: bool) -> dict[int, str]:
    """Every git step of an undisturbed landing, by its number."""
    copy, commit = prepared(repo, tmp_path / "undisturbed", checked_out=checked_out)
    path, _ = git_that_kills(tmp_path / "bin", 0, "never")
    assert end_of(start(copy.path, "r1", commit, strategy, path=path)).startswith("landed ")
    return dict(enumerate((path / "counter.calls").read_text().splitlines(), 1))


def test_killed_before_and_after_the_base_moves(repo: Project, tmp_path: Path) -> None:
    """What is about to happen is written down, and then it happens."""
    steps = steps_of(repo, tmp_path, "squash", checked_out=True)
    (written,) = [number for number, call in steps.items() if "update-ref refs/untildone/r1/landed/" in call]
    (moved,) = [number for number, call in steps.items() if "merge -q --ff-only" in call]
    assert written < moved
    kill_at(repo, tmp_path, [(written, "after"), (moved, "after")], "squash", checked_out=True)


@pytest.mark.soak
@pytest.mark.parametrize("checked_out", [False, True])
@pytest.mark.parametrize("strategy", ["squash", "merge", "rebase"])
@pytest.mark.parametrize("part", range(4))
def test_killed_at_every_git_step_of_a_landing(
    repo: Project, tmp_path: Path, part: int, strategy: str, checked_out: bool
) -> None:
    steps = steps_of(repo, tmp_path, strategy, checked_out=checked_out)
    assert len(steps) > 20
    kill_at(repo, tmp_path, itertools.product(list(steps)[part::4], SIDES), strategy, checked_out=checked_out)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(14, 74, 4))
def test_who_leads_a_batch_dies_at_any_step(repo: Project, tmp_path: Path, number: int) -> None:
    """Two others wait. They land all the same, once, and so does the dead one when it comes back."""
    commits = {run: work_on(repo.path, f"branch-{run}", {f"{run}.txt": "x\n"}) for run in "abc"}
    path, _ = git_that_kills(tmp_path / "bin", number, ("before", "after")[number // 2 % 2])
    with somebody_elses_turn(repo.path):
        drivers = {run: start(repo.path, run, commits[run], path=path if run == "a" else None) for run in "abc"}
        eventually(lambda: len(list(line_of(repo.path).glob("*.work"))) == 3)
    said = {run: end_of(driver) for run, driver in drivers.items()}
    assert said["b"].startswith("landed ")
    assert said["c"].startswith("landed ")
    assert drivers["a"].returncode in (0, KILLED)
    assert end_of(start(repo.path, "a", commits["a"])).startswith("landed ")
    assert sorted(subjects(repo)) == ["first", "of a", "of b", "of c"]
    assert repo.git("fsck", "--no-dangling") == ""


async def test_what_the_dead_wrote_down_is_read_again(repo: Project) -> None:
    commit = work_on(repo.path, "run", {"a.txt": "a\n"})
    landed = await (await lander_in(repo.path)).merge(commit, message="m", verify=green(repo.path))
    assert isinstance(landed, Landed)
    repository = await open_repository(repo.path, private=repo.path.parent / "private")
    (found,) = await landings_on(repository, "r1", landed.merged)
    assert (found.commit, found.merged, found.onto) == (
        commit,
        landed.merged,
        run_git(repo.path, "rev-parse", "main~1"),
    )
    assert await landings_on(repository, "r1", found.onto) == [], "a base without it has not got it"


async def test_who_waits_is_told_for_whom_and_when_that_is_over(repo: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("untildone.git.lander.NOTICEABLE", 0.02)
    told: list[tuple[str, ...]] = []
    enough = asyncio.Event()

    async def in_line(ahead: Sequence[str]) -> None:
        told.append(tuple(ahead))
        enough.set()

    commit = work_on(repo.path, "branch-b", {"b.txt": "b\n"})
    git_folder = repo.path / ".git"
    first = Work(run_id="a", commit=commit, message="m", strategy="squash", name="importer")
    with somebody_elses_turn(repo.path), Queue(git_folder, "main").standing(first):
        landing = asyncio.ensure_future(
            (await lander_in(repo.path, "b")).merge(commit, message="m", verify=green(repo.path), in_line=in_line)
        )
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
    async with asyncio.timeout(PATIENCE):
        assert isinstance(await landing, Landed)
    assert told == [("importer",), ()]


async def test_who_does_not_wait_is_told_nothing(repo: Project) -> None:
    async def in_line(_: Sequence[str]) -> None:
        raise AssertionError

    commit = work_on(repo.path, "branch-b", {"b.txt": "b\n"})
    lander = await lander_in(repo.path, "b")
    assert isinstance(await lander.merge(commit, message="m", verify=green(repo.path), in_line=in_line), Landed)
