import pytest

from untildone.witness.checks import CommandCheck, Keeping

pytestmark = pytest.mark.anyio


class TwoSecondSteps:
    def __init__(self) -> None:
        self._now = 100.0

    def monotonic(self) -> float:
        self._now += 2
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


async def test_a_passing_check(tmp_path):
    check = CommandCheck("echo fine", cwd=tmp_path, timeout=240, clock=TwoSecondSteps())
    result = await check.run()
    assert check.name == "echo fine"
    assert (result.passed, result.exit_code, result.output_tail) == (True, 0, "fine\n")
    assert result.seconds == 2
    assert len(result.output_sha256) == 64


async def test_a_failing_check_keeps_its_evidence(tmp_path):
    check = CommandCheck("echo 'E  assert 1 == 2'; exit 3", cwd=tmp_path, timeout=240, name="tests")
    result = await check.run()
    assert (result.name, result.passed, result.exit_code) == ("tests", False, 3)
    assert result.output_tail == "E  assert 1 == 2\n"


async def test_a_check_that_does_not_end_is_not_passed(tmp_path):
    result = await CommandCheck("sleep 60", cwd=tmp_path, timeout=0.2).run()
    assert (result.passed, result.exit_code) == (False, None)
    assert 0 < result.seconds < 60


async def test_a_login_is_neither_given_nor_told(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "login-of-the-user")
    (tmp_path / "found").write_text("login-of-the-user")
    keeping = Keeping(withheld=frozenset({"GITHUB_TOKEN"}), masked=("login-of-the-user",))
    check = CommandCheck('echo "<$GITHUB_TOKEN>"; cat found', cwd=tmp_path, timeout=240, keeping=keeping)
    assert (await check.run()).output_tail == "<>\n[secret: login]"
