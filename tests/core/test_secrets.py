"""Keys and tokens in added lines. Those below are drawn here, so that no scanner takes this file for a leak."""

import random
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untildone.core.secrets import FORMS, LINE, MOST_FINDINGS, redact, scan, secret_in

WORD = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def drawn(size: int, letters: str = WORD) -> str:
    return "".join(random.Random(size * 7 + len(letters)).choices(letters, k=size))


SECRETS = {
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "AWS access key": "AK" + "IA" + drawn(16, string.ascii_uppercase + "234567"),
    "GitHub token": "gh" + "p_" + drawn(36),
    "GitLab token": "gl" + "pat-" + drawn(20),
    "Slack token": "xo" + "xb-9081726354-9081726354-" + drawn(24),
    "Slack app token": "xa" + "pp-1-A0X1Y2Z3W-9081726354-" + drawn(64, HEX),
    "Slack webhook": "https://hooks.slack.com/" + "services/T0XYZWVUQ/B0XYZWVUQ/" + drawn(24),
    "Stripe key": "sk" + "_live_" + drawn(24),
    "Google API key": "AI" + "za" + drawn(35),
    "Google OAuth secret": "GOC" + "SPX-" + drawn(28),
    "Anthropic key": "sk-" + "ant-api03-" + drawn(90),
    "OpenAI key": "sk-" + "proj-" + drawn(48),
    "npm token": "np" + "m_" + drawn(36),
    "PyPI token": "py" + "pi-AgE" + drawn(100),
    "Azure storage key": "AccountKey=" + drawn(86) + "==",
    "Azure client secret": "abc" + "8Q~" + drawn(34),
    "Twilio key": "S" + "K" + drawn(32, HEX),
    "SendGrid key": "S" + "G." + drawn(22) + "." + drawn(43),
    "Hugging Face token": "h" + "f_" + drawn(34, string.ascii_letters),
    "DigitalOcean token": "dop" + "_v1_" + drawn(64, HEX),
    "Telegram bot token": "123456780" + ":AA" + drawn(33),
    "Discord webhook": "https://discord.com/api/" + "webhooks/123456780123456780/" + drawn(68),
    "Shopify token": "shp" + "at_" + drawn(32, HEX),
    "Databricks token": "da" + "pi" + drawn(32, HEX),
    "Vault token": "hv" + "s." + drawn(90),
    "age key": "AGE-" + "SECRET-KEY-1" + drawn(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "JSON web token": "ey" + "J" + drawn(30) + ".ey" + "J" + drawn(60) + "." + drawn(43),
    "untildone token": "u" + "d_" + drawn(43),
    "OpenRouter key": "sk-" + "or-v1-" + drawn(64, HEX),
    "Google access token": "ya" + "29." + drawn(60),
    "Groq key": "gs" + "k_" + drawn(52),
    "Linear key": "lin" + "_api_" + drawn(40),
    "Sentry token": "sn" + "trys_" + drawn(80),
    "password in an address": "postgres://app:" + drawn(20) + "@db.internal/app",
    "password or key": f'password = "{drawn(24)}"',
}

MORE = [
    f"aws_secret_access_key = {drawn(38)}/+",
    f'  "client_secret": "{drawn(32)}",',
    f"DB_PASSWORD={drawn(24)}",
    f"api_key: '{drawn(40, HEX)}'",
    f'const token = "{drawn(30)}";',
    "github_" + "pat_" + drawn(22) + "_" + drawn(59),
    '"private_key": "-----BEGIN ' + "PRIVATE KEY-----\\nMII",
    f"url = redis://:x@h and {SECRETS['GitHub token']}",
]

PLACEHOLDERS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    'token = "<your token here>"',
    'password = "changeme-please-1234"',
    'password = os.environ["DB_PASSWORD_2024_PROD"]',
    "api_key: ${API_KEY_PRODUCTION_2}",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    'API_KEY = "xxxxxxxxxxxxxxxxxxxxxxxx1A"',
    "gh" + "p_" + "x" * 36,
    "gh" + "p_" + "0" * 36,
    "sk-" + "ant-api03-" + "a" * 60,
    'token = "..."',
    "token = get_token_from_keyring_v2",
    "accessToken = getTokenV2FromKeyring",
    'const secret = "feature-flag-v2-enabled";',
    'password_field = "user_password_confirmation"',
    'secret = "projects/123/secrets/db-pass/versions/1"',
    'token = "550e8400-e29b-41d4-a716-446655440000"',
    "postgres://user:password@localhost/db",
    "postgres://user:${PASSWORD}@localhost/db",
    "https://example.com/token?next=/login",
    "def password(self): return self._password",
    "the password = the one you chose",
    "SECRET_KEY_FALLBACK_NAME = SETTINGS_SECRET_KEY_2",
    "sha256:" + drawn(64, HEX),
    '"integrity": "sha512-' + drawn(86) + '=="',
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0." + drawn(43),
    "task-" + drawn(40),
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
]


def test_every_form_is_tried():
    assert set(SECRETS) == {form.name for form in FORMS}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_found_and_never_shown(name):
    line = f"x {SECRETS[name]}" if "=" in SECRETS[name] else f'x = "{SECRETS[name]}"'
    (found,) = scan([("src/app.py", 7, line)])
    assert (found.kind, found.place, found.blocking) == ("secret", "src/app.py:7", True)
    assert found.text.startswith(f"{name}: ")
    shown = found.text.partition(": ")[2]
    assert not any(SECRETS[name][at : at + 6] in shown for at in range(len(SECRETS[name]) - 6))


@pytest.mark.parametrize("line", MORE)
def test_other_ways_to_write_one(line):
    assert secret_in(line) is not None


@pytest.mark.parametrize("line", PLACEHOLDERS)
def test_what_only_looks_like_one_is_left_alone(line):
    assert secret_in(line) is None


@pytest.mark.parametrize(
    "path", ["tests/test_login.py", "docs/setup.md", "src/a.spec.ts", ".env.example", "examples/a.py"]
)
def test_passwords_are_made_up_in_tests_and_docs_and_tokens_are_not(path):
    assert scan([(path, 1, SECRETS["password or key"])]) == []
    assert len(scan([(path, 1, SECRETS["GitHub token"])])) == 1


def test_a_waived_file_is_told_and_does_not_block():
    (found,) = scan([("a/b.py", 1, SECRETS["GitHub token"])], let_pass=("a/*",))
    assert not found.blocking


def test_only_so_many_are_told():
    assert len(scan(("a", n, SECRETS["GitHub token"]) for n in range(1000))) == MOST_FINDINGS


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_taken(line):
    scan([("a", 1, line)])


@pytest.mark.parametrize(
    "piece",
    ["a", "eyJ", "eyJa.", "token=", "a://b:", "password: ", "xoxb-1-", "=", "sk-ant-a-", "AccountKey=", "\"'", "A1/"],
)
def test_a_long_line_costs_no_more_than_its_size(piece):
    def seconds(size: int) -> float:
        line = (piece * size)[:size]
        start = time.thread_time()
        for _ in range(10):
            secret_in(line)
        return time.thread_time() - start

    limit = 10 * max(seconds(LINE // 4), 0.01)
    assert any(seconds(LINE) < limit for _ in range(5)), "not even once in five tries"


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_redacted_and_the_rest_stays(name):
    secret = SECRETS[name]
    value = (secret.partition('"')[2].strip('"') or secret).removeprefix("https://")
    text = f"before\n+x = {secret}\nafter the token"
    told = redact(text)
    assert told.startswith("before\n+x = ")
    assert told.endswith("\nafter the token")
    assert f"[secret: {name}]" in told
    assert not any(value[at : at + 8] in told for at in range(len(value) - 8) if name != "password in an address")
    assert redact(told) == told


@pytest.mark.parametrize("line", MORE)
def test_no_scanner_finds_anything_in_what_was_redacted(line):
    assert secret_in(redact(line)) is None
    assert redact(line) != line


@pytest.mark.parametrize("line", PLACEHOLDERS)
def test_what_is_no_secret_is_not_redacted(line):
    assert redact(line) == line


def test_two_in_a_line_and_the_end_of_a_long_one_are_gone():
    github, slack, stripe = (SECRETS[name] for name in ("GitHub token", "Slack token", "Stripe key"))
    long = stripe + drawn(300)
    told = redact(f"{github}, {slack} and {long}; {github}")
    assert told == "[secret: GitHub token], [secret: Slack token] and [secret: Stripe key]; [secret: GitHub token]"


def test_the_password_in_an_address_goes_and_the_address_stays():
    told = redact("DATABASE=" + SECRETS["password in an address"])
    assert told == "DATABASE=postgres://app:[secret: password in an address]@db.internal/app"


BEGIN, END = "-----BEGIN " + "OPENSSH PRIVATE KEY-----", "-----END " + "OPENSSH PRIVATE KEY-----"
BODY = [drawn(70, WORD + "+/"), drawn(69, WORD + "+/"), drawn(10) + "=="]


@pytest.mark.parametrize("sign", ["", "+", "-", " ", "+    "])
def test_the_body_of_a_private_key_goes_with_it_and_the_count_of_lines_stays(sign):
    lines = [f"{sign}{line}" for line in ("x = 1", BEGIN, *BODY, END, "y = two(3)")]
    told = redact("\n".join(lines)).split("\n")
    assert told == [
        f"{sign}x = 1", *[f"{sign}[secret: private key]"] * 4, f"{sign}{END}", f"{sign}y = two(3)",
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [[BEGIN, *BODY], [*BODY, END], ["+" + BODY[0], *BODY, END, "x"]])
def test_so_does_one_of_which_the_beginning_or_the_end_is_cut_off(cut):
    told = redact("\n".join(cut))
    assert not any(line in told for line in BODY)


def test_a_key_in_one_line_goes_as_a_whole():
    told = redact('"private_key": "' + "\\n".join([BEGIN, *BODY, END]) + '\\n",')
    assert told == f'"private_key": "[secret: private key]{END}\\n",'


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.sampled_from(sorted(SECRETS.values())), st.text(max_size=100))
def test_whatever_is_around_it_nothing_is_found_afterwards(before, secret, after):
    told = redact(f"{before}{secret}{after}")
    assert all(secret_in(line) is None for line in told.split("\n"))
    assert told.count("\n") == f"{before}{secret}{after}".count("\n")


def test_redacting_costs_no_more_than_the_size():
    def seconds(count: int) -> float:
        text = "\n".join([f"+token = {SECRETS['GitHub token']}", BEGIN, *BODY, "+plain text"] * count)
        start = time.thread_time()
        redact(text)
        return time.thread_time() - start

    limit = 8 * 3 * max(seconds(50), 0.005)
    assert any(seconds(400) < limit for _ in range(5)), "not even once in five tries"


@pytest.mark.parametrize("before", [0, LINE - 20, LINE, LINE + 7, 3 * LINE - 10, 50_000])
def test_a_secret_is_found_wherever_it_is_in_a_long_line(before: int) -> None:
    line = "x = 1; " * (before // 7) + "y" * (before % 7) + f' "{SECRETS["GitHub token"]}" ' + "z = 2; " * 3000
    (found,) = scan([("a.js", 1, line)])
    assert found.text.startswith("GitHub token")
