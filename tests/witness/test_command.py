import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from patience import PATIENCE, run_out, soon
from processes import until_dead
from untildone.errors import WorkspaceError
from untildone.sandbox.host import behind_guard
from untildone.witness.command import readable_output, run_command

pytestmark = pytest.mark.anyio

CHECK = behind_guard(whole_tree=True)
HOOK = behind_guard(whole_tree=False)
TOO_LATE = 5000.0


one_of_them = pytest.mark.parametrize(
    "behind",
    [CHECK, *(pytest.param(other, marks=pytest.mark.soak) for other in ((), HOOK))],
    indirect=True,
    ids=["as a check", "alone", "as a hook"],
)
"""For a test that sits through a timeout: the other ways are for the soak."""


@pytest.fixture(params=[(), CHECK, HOOK], ids=["alone", "as a check", "as a hook"])
def behind(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


async def until_written(place: Path) -> str:
    return await soon(lambda: place.exists() and place.read_text().endswith("\n") and place.read_text(), place.name)


@pytest.mark.parametrize(
    ("command", "code"), [("true", 0), ("exit 7", 7), ("no-such-program-xyz", 127), ("kill -9 $$", -9)]
)
async def test_exit_codes(tmp_path, command, code, behind):
    assert (await run_command(command, cwd=tmp_path, behind=behind, timeout=240)).exit_code == code


async def test_stdout_and_stderr_come_merged_and_in_order_with_their_hash(tmp_path, behind):
    result = await run_command("echo one; echo two >&2; echo three", cwd=tmp_path, behind=behind, timeout=240)
    assert result.output_tail == "one\ntwo\nthree\n"
    assert result.sha256 == hashlib.sha256(b"one\ntwo\nthree\n").hexdigest()


async def test_runs_in_the_folder_with_no_stdin(tmp_path, behind):
    result = await run_command("pwd; cat", cwd=tmp_path, behind=behind, timeout=240)
    assert result.output_tail == f"{tmp_path}\n"


async def test_given_stdin_arrives_and_may_be_left_unread(tmp_path, behind):
    facts = json.dumps({"iteration_num": 3, "goal": "grüße"}).encode()
    read = f"{sys.executable} -c 'import json, sys; print(json.load(sys.stdin)[\"goal\"])'"
    assert (await run_command(read, cwd=tmp_path, behind=behind, timeout=240, stdin=facts)).output_tail == "grüße\n"
    assert (await run_command("true", cwd=tmp_path, behind=behind, timeout=240, stdin=b"x" * 1_000_000)).exit_code == 0


async def test_the_loops_own_variables_do_not_reach_it(tmp_path, monkeypatch, behind):
    monkeypatch.setenv("UNTILDONE_TOKEN", "secret")
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("KEPT", "yes")
    result = await run_command("env", cwd=tmp_path, behind=behind, timeout=240, env={"EXTRA": "e"})
    names = {line.partition("=")[0] for line in result.output_tail.splitlines()}
    assert {"KEPT", "EXTRA"} <= names
    assert not {"UNTILDONE_TOKEN", "CLAUDECODE"} & names


async def test_bytes_that_are_not_text_are_replaced_and_hashed_as_they_were(tmp_path, behind):
    result = await run_command(
        r"printf 'ok \377\376 \033[31mred\033[0m\r\n\000end'", cwd=tmp_path, behind=behind, timeout=240
    )
    assert result.output_tail == "ok \ufffd\ufffd red\nend"
    assert result.sha256 == hashlib.sha256(b"ok \xff\xfe \x1b[31mred\x1b[0m\r\n\x00end").hexdigest()


async def test_huge_output_is_hashed_whole_and_kept_in_part(tmp_path, behind):
    size = 40_000_000
    command = f"head -c {size} /dev/zero | tr '\\0' x; echo end"
    result = await run_command(command, cwd=tmp_path, behind=behind, timeout=240, output_cap=1000)
    assert len(result.output_tail) == 1000
    assert result.output_tail.endswith("xend\n")
    assert result.sha256 == hashlib.sha256(b"x" * size + b"end\n").hexdigest()


@one_of_them
async def test_too_late_ends_grandchildren_too_and_keeps_the_output(tmp_path, behind):
    command = "echo working; sh -c 'trap \"\" TERM; sleep 600 & echo $! > pid; wait; sleep 600'"
    running = asyncio.create_task(run_command(command, cwd=tmp_path, behind=behind, timeout=TOO_LATE))
    await until_written(tmp_path / "pid")
    await run_out(TOO_LATE)
    result = await running
    assert result.exit_code is None
    assert result.output_tail == "working\n"
    await until_dead(int((tmp_path / "pid").read_text()))


@one_of_them
async def test_too_late_leaves_a_moment_to_tidy_up(tmp_path, behind):
    inner = "trap 'sleep 0.1; touch tidied; exit' TERM; touch ready; while :; do sleep 0.05; done"
    (tmp_path / "inner.sh").write_text(inner)
    running = asyncio.create_task(run_command("sh inner.sh; true", cwd=tmp_path, behind=behind, timeout=TOO_LATE))
    await soon((tmp_path / "ready").exists, "the program")
    await run_out(TOO_LATE)
    assert (await running).exit_code is None
    assert {place.name for place in tmp_path.iterdir()} == {"inner.sh", "ready", "tidied"}


async def test_what_it_leaves_in_the_background_is_ended_and_does_not_delay_the_result(tmp_path, behind):
    async with asyncio.timeout(PATIENCE):
        result = await run_command("sleep 600 & echo $! > pid; echo done", cwd=tmp_path, behind=behind, timeout=240)
    assert (result.exit_code, result.output_tail) == (0, "done\n")
    await until_dead(int((tmp_path / "pid").read_text()))


async def test_a_process_that_left_the_group_cannot_hold_the_result(tmp_path, behind):
    leaves = "setsid sh -c 'echo $$ > new; mv new pid; exec sleep 600' & until test -e pid; do sleep 0.01; done"
    async with asyncio.timeout(PATIENCE):
        result = await run_command(f"{leaves}; echo done", cwd=tmp_path, behind=behind, timeout=240)
    assert (result.exit_code, result.output_tail) == (0, "done\n")
    pid = int((tmp_path / "pid").read_text())
    if behind == CHECK:
        await until_dead(pid)
    else:
        os.kill(pid, 9)


async def test_cancelling_ends_the_whole_group(tmp_path, behind):
    running = asyncio.create_task(
        run_command("sleep 600 & echo $! > pid; wait", cwd=tmp_path, behind=behind, timeout=240)
    )
    pid = int(await until_written(tmp_path / "pid"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_dead(pid)


LOOP = """
import asyncio, sys
from untildone.sandbox.host import behind_guard
from untildone.witness.command import run_command
behind = behind_guard(whole_tree=sys.argv[1] == "check")
asyncio.run(run_command(sys.argv[2], cwd=sys.argv[3], timeout=240, behind=behind))
"""


@pytest.mark.parametrize(("kind", "detached_lives"), [("check", False), ("hook", True)])
async def test_nothing_of_it_outlives_a_loop_killed_outright(tmp_path, kind, detached_lives):
    inside = "sleep 600 & echo $! > child; setsid sh -c 'echo $$ > detached; exec sleep 600' & echo $$ > shell; wait"
    loop = await asyncio.create_subprocess_exec(sys.executable, "-c", LOOP, kind, inside, str(tmp_path))
    pids = {name: int(await until_written(tmp_path / name)) for name in ("child", "detached", "shell")}
    loop.kill()
    await loop.wait()
    await until_dead(pids["shell"])
    await until_dead(pids["child"])
    if detached_lives:
        os.kill(pids["detached"], 9)
    else:
        await until_dead(pids["detached"])


async def test_a_check_that_ignores_every_request_is_ended_with_its_whole_tree(tmp_path):
    stubborn = "trap '' TERM INT; setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 1; done' & sleep 600"
    running = asyncio.create_task(run_command(stubborn, cwd=tmp_path, timeout=TOO_LATE, behind=CHECK))
    pid = int(await until_written(tmp_path / "pid"))
    await run_out(TOO_LATE)
    assert (await running).exit_code is None
    await until_dead(pid)


async def test_a_missing_folder_is_one_clear_line(tmp_path, behind):
    with pytest.raises(WorkspaceError, match=r"cannot run `true` in .*gone: No such file"):
        await run_command("true", cwd=tmp_path / "gone", behind=behind, timeout=5)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b]0;title\x07plain", "plain"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"10%\r20%\rdone\r\n", "10%\n20%\ndone\n"),
        ("\u009b31mC1".encode(), "31mC1"),
        (b"tab\tkept", "tab\tkept"),
    ],
)
def test_terminal_codes_are_taken_out(raw, text):
    assert readable_output(raw) == text
