"""Which values of an environment, and of `.env` files, are worth hiding."""

from pathlib import Path

import pytest

from untildone.uplink import known_secrets as subject
from untildone.uplink.known_secrets import KnownSecrets, env_pairs, is_secret, secrets_of


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("A=1\nB = two\n", [("A", "1"), ("B", "two")]),
        ("export A='x y'\n", [("A", "x y")]),
        ('A="x \\"y\\" z" # why\n', [("A", 'x "y" z')]),
        ("# A=1\n\n  # B=2\nC=3 # three\n", [("C", "3")]),
        ('KEY="line 1\nline 2"\nB=2\n', [("KEY", "line 1\nline 2"), ("B", "2")]),
        ('KEY="never closed\nB=2', [("KEY", "never closed\nB=2")]),
        ("A=\nB\n=3\n1X=4\n", [("A", "")]),
        ("A=x#y\n", [("A", "x#y")]),
        ("DB: postgres\n", [("DB", "postgres")]),
        ("A=`x`\r\nB=2\r\n", [("A", "x"), ("B", "2")]),
    ],
)
def test_an_env_file_is_read_as_programs_do(text: str, pairs: list[tuple[str, str]]) -> None:
    assert list(env_pairs(text)) == pairs


@pytest.mark.parametrize("value", ["hunter22", "p@ssw0", "Blue-Horse-Rain-41", "x" * 12, "a/b+c9d8e7f6", "12345678"])
def test_these_are_secrets_under_a_telling_name(value: str) -> None:
    assert is_secret(value)


@pytest.mark.parametrize(
    "value",
    ["", "abc", "true", "False", "4096", "1.22.333", "postgres", "changeme", "/run/secrets/key", "~/.ssh/id_rsa",
     "./certs/server.pem", "https://login.test/oauth/token", "none"],
)  # fmt: skip
def test_these_are_not(value: str) -> None:
    assert not is_secret(value)


@pytest.mark.parametrize("by_look", [False, True])
def test_places_and_people_are_no_secrets(*, by_look: bool) -> None:
    plain = {
        "GIT_AUTHOR_NAME": "Ann-Marie7", "GIT_AUTHOR_EMAIL": "ann.m7x9@example.org",
        "GIT_AUTHOR_DATE": "2026-01-31T07:30",
        "GIT_COMMITTER_NAME": "Ann-Marie7", "GIT_COMMITTER_EMAIL": "a8f3k2Qz9bTy@example.org",
        "CLAUDE_CONFIG_DIR": "/tmp/tmpx8f3k2Qz9bTyLmN0/claude", "NO_PROXY": "localhost,127.0.0.1,.internal",
        "no_proxy": "localhost,10.0.0.0/8", "PWD": "/tmp/x8f3k2Qz9bTyLmN0", "OLDPWD": "/home/u/a8f3k2Qz9bTyLmN0",
        "SSH_AUTH_SOCK": "/tmp/ssh-XXa8f3k2Qz9b/agent.1234", "XAUTHORITY": "/run/user/1000/.auth.A8F3K2Qz9bTy",
        "KEYBOARD_LAYOUT": "us-intl", "PRIVATE_REGISTRY": "registry.example.org", "KEY_FILE": "certs/a8f3k2Qz9bTy.pem",
    }  # fmt: skip
    assert secrets_of(plain.items(), by_look=by_look) == {}
    secret = {"PWD_DB": "Blue-Horse-41", "AUTH_KEY": "hunter-22-x", "HTTPS_PROXY": "http://me:s3cr3t-9@proxy.test:3128"}
    assert sorted(secrets_of(secret.items(), by_look=by_look).values()) == sorted(secret)


def test_where_only_a_secret_can_stand_a_word_is_one() -> None:
    words = {
        "PASSWORD": "letmein", "PGPASSWORD": "abcdefgh", "ADMIN_PASSWORD": "sunshine", "PIN": "48213377",
        "MYSQL_PWD": "horsebox", "DB_PASS": "sesame",
    }  # fmt: skip
    assert sorted(secrets_of(words.items()).values()) == sorted(words)
    plain = {
        "DB_PASSWORD": "postgres", "API_TOKEN": "changeme", "MAX_TOKENS": "40960000", "PWD": "shopping",
        "OLDPWD": "shopping", "SORT_KEY": "created", "TOKEN_TYPE": "bearers", "SPIN": "roundabout", "PASSWORD": "short",
    }  # fmt: skip
    assert {name for name in secrets_of(plain.items()).values() if name != "MAX_TOKENS"} == set()


def test_a_password_in_an_address_is_one_whatever_its_name() -> None:
    found = secrets_of(
        [("PLACE", "amqp://me:s3cr%40t-9@mq.test/x"), ("OTHER", "http://[broken"), ("T", "http://a:b@c")]
    )
    assert found == {"s3cr@t-9": "PLACE"}


def test_the_bounds_hold_and_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_VALUES", 5)
    for n in range(3):
        (tmp_path / f".env.{n}").write_text("".join(f"KEY_{n}_{m}=value-{n}-{m}-x9\n" for m in range(9)))
    now, told = [0.0], list[str]()
    known = KnownSecrets({"A_KEY": "of-the-process-7"}, str(tmp_path), now=lambda: now[0], tell=told.append)
    assert len(known()) == 5 + 1
    # What was a secret stays one, and yet there is an end.
    for n in range(3):
        (tmp_path / f".env.{n}").write_text(f"NEW_KEY_{n}=newer-{n}-x9\n")
    now[0] = 100.0
    assert len(known()) == 5 + 1
    assert known()["of-the-process-7"] == "A_KEY"
    assert len(told) == 1
    assert "more than 5 values" in told[0]


@pytest.mark.parametrize(("bound", "value"), [("MOST_FILES", 2), ("MOST_FOLDERS", 2), ("MOST_BYTES", 100)])
def test_whatever_is_not_looked_at_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    for n in range(3):
        (tmp_path / f"part-{n}").mkdir()
        (tmp_path / f"part-{n}" / ".env").write_text(f"A_KEY=value-{n}-x9\n# {'x' * 50}\n")
    told: list[str] = []
    assert len(KnownSecrets({}, str(tmp_path), now=lambda: 0.0, tell=told.append)()) == 3
    assert told == []
    monkeypatch.setattr(subject, bound, value)
    assert 1 <= len(KnownSecrets({}, str(tmp_path), now=lambda: 0.0, tell=told.append)()) <= 2
    assert len(told) == 1


def test_a_file_with_many_values_keeps_no_other_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "MOST_VALUES", 20)
    monkeypatch.setattr(subject, "MOST_BYTES", 4000)
    by_look = "".join(f"THING_{n}=q8Zx{n:03d}LmR4vT7wKp\n" for n in range(30))
    (tmp_path / ".env").write_text(by_look + "".join(f"N{n}_SECRET=zq{n:05d}Xy77\n" for n in range(400)))
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / ".env").write_text(by_look.replace("Zx", "Zy") + "DEEP_SECRET=deepDeep77Zz\n")
    known = KnownSecrets({}, str(tmp_path), now=lambda: 0.0)()
    assert len(known) == 20
    assert known["deepDeep77Zz"] == "DEEP_SECRET"
    assert known["zq00000Xy77"] == "N0_SECRET"


def test_all_values_of_a_long_file_are_known(tmp_path: Path) -> None:
    lines = [f"K{n}_SECRET=zq{n:05d}Xy77\n" for n in range(3000)]
    (tmp_path / ".env").write_text("".join(lines) + "# pad\n" * 200_000 + "LAST_SECRET=qQ8zLast77Xy\n")
    known = KnownSecrets({}, str(tmp_path), now=lambda: 0.0)()
    assert len(known) == 3001
    assert known["qQ8zLast77Xy"] == "LAST_SECRET"


def test_nothing_is_read_anew_while_nothing_changed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A_KEY=value-1-x9\n")
    now = [0.0]
    known = KnownSecrets({}, str(tmp_path), now=lambda: now[0])
    first = known()
    now[0] = 100.0
    assert known() is first
    assert known() == {"value-1-x9": "A_KEY"}


def test_a_folder_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert KnownSecrets({}, str(tmp_path / "none"), now=lambda: 0.0)() == {}
    assert KnownSecrets({}, str(tmp_path / "link"), now=lambda: 0.0)() == {}
