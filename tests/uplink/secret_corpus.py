"""Secrets as machines draw them, made anew for each run of the tests: none is anybody's, none is written here."""

import base64
import json
import random
import string
from collections.abc import Callable
from urllib.parse import quote

from untildone.core import events as ev
from untildone.core import trace as tr
from untildone.core.events import Event
from untildone.core.policy import Policy, RunSpec

_dice = random.Random(20)
ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + "234567"


def draw(alphabet: str, length: int) -> str:
    return "".join(_dice.choice(alphabet) for _ in range(length))


RECOGNISED: dict[str, str] = {
    "aws access key": "AKIA" + draw(UPPER, 16),
    "aws temporary key": "ASIA" + draw(UPPER, 16),
    "github classic": "ghp_" + draw(ALNUM, 36),
    "github oauth": "gho_" + draw(ALNUM, 36),
    "github user": "ghu_" + draw(ALNUM, 36),
    "github server": "ghs_" + draw(ALNUM, 36),
    "github refresh": "ghr_" + draw(ALNUM, 60),
    "github fine-grained": "github_pat_" + draw(ALNUM, 22) + "_" + draw(ALNUM, 59),
    "gitlab personal": "glpat-" + draw(ALNUM, 20),
    "gitlab deploy": "gldt-" + draw(ALNUM, 20),
    "slack bot": f"xoxb-{draw('0123456789', 12)}-{draw('0123456789', 12)}-{draw(ALNUM, 24)}",
    "slack user": f"xoxp-{draw('0123456789', 12)}-{draw('0123456789', 12)}-{draw(ALNUM, 32)}",
    "slack app": f"xapp-1-{draw(UPPER, 10)}-{draw('0123456789', 12)}-{draw(HEX, 64)}",
    "slack webhook": f"https://hooks.slack.com/services/T{draw(UPPER, 8)}/B{draw(UPPER, 8)}/{draw(ALNUM, 24)}",
    "stripe live": "sk_live_" + draw(ALNUM, 24),
    "stripe restricted": "rk_live_" + draw(ALNUM, 24),
    "stripe webhook": "whsec_" + draw(ALNUM, 32),
    "google api": "AIza" + draw(ALNUM, 35),
    "google oauth": "GOCSPX-" + draw(ALNUM, 28),
    "anthropic api": "sk-ant-api03-" + draw(ALNUM, 95),
    "anthropic oauth": "sk-ant-oat01-" + draw(ALNUM, 95),
    "openai project": "sk-proj-" + draw(ALNUM, 48),
    "openai service": "sk-svcacct-" + draw(ALNUM, 48),
    "npm": "npm_" + draw(ALNUM, 36),
    "pypi": "pypi-AgE" + draw(ALNUM, 120),
    "azure storage": "AccountKey=" + draw(ALNUM + "+/", 86) + "==",
    "twilio": "SK" + draw(HEX, 32),
    "sendgrid": f"SG.{draw(ALNUM, 22)}.{draw(ALNUM, 43)}",
    "hugging face": "hf_" + draw(string.ascii_letters, 34),
    "digitalocean": "dop_v1_" + draw(HEX, 64),
    "telegram": f"{draw('123456789', 9)}:AA{draw(ALNUM, 33)}",
    "discord webhook": f"https://discord.com/api/webhooks/{draw('123456789', 18)}/{draw(ALNUM, 68)}",
    "shopify": "shpat_" + draw(HEX, 32),
    "databricks": "dapi" + draw(HEX, 32),
    "vault": "hvs." + draw(ALNUM, 90),
    "age": "AGE-SECRET-KEY-1" + draw("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "jwt": f"eyJ{draw(ALNUM, 33)}.eyJ{draw(ALNUM, 80)}.{draw(ALNUM, 43)}",
}
"""By what they look like."""

FROM_ENVIRONMENT: dict[str, str] = {
    "ANTHROPIC_API_KEY": draw(ALNUM, 40),
    "ANTHROPIC_AUTH_TOKEN": draw(ALNUM + "-_", 64),
    "GITHUB_TOKEN": draw(HEX, 40),
    "GH_ENTERPRISE_TOKEN": draw(HEX, 40),
    "UNTILDONE_TOKEN": "ud_" + draw(ALNUM + "-_", 43),
    "AWS_SECRET_ACCESS_KEY": draw(ALNUM + "+/", 40),
    "MY_SERVICE_KEY": draw(HEX, 32),
    "SESSION_SECRET": 'q"' + draw(ALNUM, 12) + '\\/"x',
    "SMTP_PASSWORD": "p@" + draw(ALNUM, 9) + "&<%$",
    "ROOT_PASSWORD": "Blue-Horse-Rain-41",
    "SIGNING_PRIVATE_KEY": "line1-" + draw(ALNUM, 20) + "\nline2-" + draw(ALNUM, 20),
    "COOKIE_SECRET": "schlüssel-" + draw(ALNUM, 8) + "-ß",
    "DATABASE_URL": "postgresql://shop:" + draw(ALNUM, 18) + "@db.internal:5432/shop",
}
"""By where they are: nothing about most of them looks like a secret."""

FROM_ENV_FILES: dict[str, str] = {
    "STRIPE_KEY": draw(HEX, 24),
    "MAIL_PASSWORD": "tr0ub4dor and " + draw(ALNUM, 4),
    "APP_SECRET": draw(ALNUM + "!#%", 32),
    "REDIS_URL": "redis://:" + draw(ALNUM, 20) + "@cache:6379/0",
    "SENTRY_DSN": draw(HEX, 32),
    "OAUTH_CLIENT_SECRET": draw(ALNUM + "~.-", 34),
    "ENCRYPTION_KEY": draw(ALNUM + "+/", 43) + "=",
    "JWT_SIGNING_KEY": "short9!",
    "WEBHOOK_TOKEN": draw(ALNUM, 12),
    "SALT": draw(HEX, 24),
    "PLAIN_VALUE": draw(ALNUM, 32),
}

PRIVATE_KEY = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *(draw(ALNUM + "+/", 64) for _ in range(12)), "-----END RSA PRIVATE KEY-----"]
)

_spec = RunSpec(goal="", cwd="/shop", name="shop")


def _goal(secret: str) -> Event:
    from dataclasses import replace

    goal = f"Deploy with {secret} and tell nobody"
    return ev.ContinuousStarted(
        run_id="r", goal=goal, limits={}, completion_signal="DONE", completion_threshold=None, policy=Policy(),
        spec=replace(_spec, goal=goal),
    )  # fmt: skip


def _nested(secret: str, times: int) -> str:
    text = json.dumps({"password": secret, "list": [secret]})
    for _ in range(times):
        text = json.dumps({"inner": text})
    return text


PLACES: dict[str, Callable[[str], Event]] = {
    "goal": _goal,
    "message of a human": lambda s: ev.MessageReceived(by="ann", content=f"use {s}."),
    "commit message": lambda s: ev.LandingCommitted(
        iteration_num=1, commit="c0ffee", files_changed=1, message=f"Set the key\n\nkey = '{s}'"
    ),
    "diff": lambda s: tr.AgentFileEdited(
        iteration_num=1,
        tool_use_id="t",
        tool="Edit",
        file_path=".env",
        diff_preview=f"--- a\n+++ b\n@@ -1 +1 @@\n-KEY=\n+KEY={s}\n",
        full_diff=f"+KEY={s}\n",
    ),
    "tool result": lambda s: tr.AgentToolResult(iteration_num=1, tool_use_id="t", text=f"$ cat .env\nKEY={s}\n"),
    "nested data": lambda s: tr.AgentSystem(iteration_num=1, subtype="x", data={"a": [{"b": {"c": f"({s})"}}]}),
    "key of a mapping": lambda s: tr.AgentSystem(iteration_num=1, subtype="x", data={f"{s} ": 1}),
    "text with json": lambda s: tr.AgentMessage(iteration_num=1, text="it says " + _nested(s, 0)),
    "json in json": lambda s: tr.AgentMessage(iteration_num=1, text=_nested(s, 1)),
    "json in json in json": lambda s: tr.AgentMessage(iteration_num=1, text=_nested(s, 2)),
    "error": lambda s: ev.IterationFailed(
        iteration_num=1, error=f"401 for token '{s}'", error_type="auth", retry_allowed=False, cost_usd=None
    ),
    "settled preview": lambda s: ev.IterationCompleted(
        iteration_num=1, cost_usd=0.1, output_preview=f'I set the password to "{s}".'
    ),
}
"""Where a secret can turn up in what leaves."""


def spelled_with_escapes(secret: str) -> str:
    """Every letter as a JSON escape."""
    return "".join(f"\\u{ord(char):04x}" for char in secret if ord(char) < 0x10000)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda s: s,
    "for an address": lambda s: quote(s, safe=""),
    "escaped letter by letter": spelled_with_escapes,
    "in a basic login": lambda s: "Basic " + base64.b64encode(f"me:{s}".encode()).decode(),
    "in a longer basic login": lambda s: "Basic " + base64.b64encode(f"user:{s}:more".encode()).decode(),
    "in a third basic login": lambda s: "Basic " + base64.b64encode(f"user1:{s}!".encode()).decode(),
}

_DRAWN = draw(ALNUM, 12) + "4x" + draw(ALNUM, 14)
SAID: tuple[str, ...] = (
    f"http://127.0.0.1:8642/login/«once_{draw(ALNUM + '-_', 43)}»",
    f"the token is «ud_{draw(ALNUM + '-_', 43)}»",
    f"Authorization: Basic «{_DRAWN}»",
    f"authorization: bearer «{_DRAWN}»",
    f"Cookie: «session={_DRAWN}»",
    "curl -s -u admin:«Sup3rS3cret99» https://h",
    "mysql -uroot -p«Sup3rS3cret99»",
    "tool --password=«Sup3rS3cret99» --verbose",
    "tool --api-key «Sup3rS3cret99»",
    f"https://h/cb?access_token=«{_DRAWN}»&x=1",
    "machine h login u password «Sup3rS3cret99»",
    f"aws_session_token = «{_DRAWN}//////////{_DRAWN}»",
)
"""Commands and requests, with what is secret of them in marks."""

INNOCENT: tuple[str, ...] = (
    "The password is read from os.environ['SMTP_PASSWORD'].",
    "password: str = field(repr=False)",
    "TOKEN = os.getenv('TOKEN', '')",
    "def token_for(host: str) -> str: ...",
    "secret_key = settings.SECRET_KEY",
    "Use `--max-tokens 4096` to bound it.",
    "The tokens in this iteration: 12,345 in, 678 out.",
    "commit 9f2c1e0b7d4a5c6e8f1029384756abcdef012345",
    "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    "550e8400-e29b-41d4-a716-446655440000",
    "https://github.com/acme/shop/pull/42#issuecomment-1234567",
    "https://user@host.example.org/path?q=1",
    "git clone git@github.com:acme/shop.git",
    "tests/test_password_reset.py::test_token_expires PASSED",
    "api_key: ${API_KEY}",
    "apiKey: process.env.API_KEY",
    "export ANTHROPIC_API_KEY=...",
    "set GITHUB_TOKEN=<your token here>",
    "Authorization: Bearer {token}",
    "-----BEGIN CERTIFICATE-----",
    "pip install 'requests[security]>=2.31'",
    "The key point is that keys are sorted: {'a': 1, 'b': 2}",
    "SELECT password_hash FROM users WHERE token IS NULL;",
    "CSRF token missing or incorrect",
    "He passed 12 of 14 tests; 2 passed after a retry.",
    "npm_config_registry=https://registry.npmjs.org/",
    "sk-SK locale: 1 234,50 €",
    "SKU SK-100234 is out of stock",
    "hf_hub_download(repo_id='bert-base-uncased')",
    '#!/bin/sh\nset -eu\nexec "$@"\n',
    "--- a/app.py\n+++ b/app.py\n@@ -1,3 +1,4 @@\n import os\n+import sys\n",
    '{"password": "", "token": null}',
    '{"inner": "{\\"token\\": \\"\\"}"}',
    "C:\\new\\table\\readme.txt",
    "a regex: \\bsecret\\b|\\btoken\\b",
    "DEBUG=true PORT=3000 NODE_ENV=production",
    "Authorization: Basic authentication is not enough, the --password option is needed",
    "--token TOKEN and --password=$PASSWORD, or --api-key=<key>; curl -u user:$PASS",
    "docker run -u 1000:1000 -p 8080:8080 mysql",
    "postgres is up, user postgres, database postgres",
    "keyboard layouts, monkeys, turkeys and tokenizers",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
    "/home/me/.ssh/id_ed25519.pub",
    "arn:aws:iam::123456789012:role/deploy",
    'package-lock: "integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17L=="',
    "日本語のテキストとパスワードという言葉",
    "\u001b[32mtoken ok\u001b[0m",
)
"""What speaks of secrets, or looks a little like one, and must arrive as it is."""
