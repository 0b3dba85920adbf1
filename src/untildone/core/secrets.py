"""Keys and tokens in added lines: known formats, and passwords that look random. A finding never shows the secret."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from untildone.core.findings import Finding, waived

LINE = 4000
"""Characters looked at of a line: beyond, it is data."""
MOST_FINDINGS = 50
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of secret, and what it looks like."""

    name: str
    pattern: str
    certain: bool = True
    """Nothing else looks like this; otherwise it must look random, too."""
    everywhere: bool = True
    """Also in tests, examples and docs; made-up ones of this kind are common there."""


_EDGE = r"(?<![A-Za-z0-9_/+.-])"
_END = r"(?![A-Za-z0-9_-])"

FORMS: tuple[Form, ...] = (
    Form("private key", r"-----BEGIN (?:(?:RSA|EC|DSA|OPENSSH|ENCRYPTED|PGP) )?PRIVATE KEY(?: BLOCK)?-----",
         everywhere=False),
    Form("AWS access key", _EDGE + r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}" + _END),
    Form("GitHub token", _EDGE + r"(?:gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{60,251})" + _END),
    Form("GitLab token", _EDGE + r"gl(?:pat|ptt|dt|rt|cbt|ft|imt|agent|soat)-[A-Za-z0-9_-]{20,64}"),
    Form("Slack token", _EDGE + r"xox[abeoprs]-(?:[A-Za-z0-9]{1,14}-){1,4}[A-Za-z0-9]{10,64}"),
    Form("Slack app token", _EDGE + r"xapp-\d-[A-Z0-9]{6,16}-\d{6,16}-[a-f0-9]{32,80}"),
    Form("Slack webhook",
         r"hooks\.slack\.com/(?:services|workflows)/T[A-Z0-9]{6,12}/[A-Z0-9]{6,14}/[A-Za-z0-9]{18,48}"),
    Form("Stripe key", _EDGE + r"(?:sk|rk)_live_[A-Za-z0-9]{16,120}|" + _EDGE + r"whsec_[A-Za-z0-9]{32,64}"),
    Form("Google API key", _EDGE + r"AIza[A-Za-z0-9_-]{35}" + _END),
    Form("Google OAuth secret", _EDGE + r"GOCSPX-[A-Za-z0-9_-]{28}" + _END),
    Form("Anthropic key", _EDGE + r"sk-ant-[a-z0-9]{3,12}-[A-Za-z0-9_-]{24,120}"),
    Form("OpenAI key", _EDGE + r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,200}|"
         + _EDGE + r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    Form("npm token", _EDGE + r"npm_[A-Za-z0-9]{36}" + _END + r"|_authToken\s*=\s*[0-9a-f]{8}-[0-9a-f-]{27}"),
    Form("PyPI token", _EDGE + r"pypi-AgE[A-Za-z0-9_-]{50,400}"),
    Form("Azure storage key", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    Form("Azure client secret", _EDGE + r"[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}" + _END),
    Form("Twilio key", _EDGE + r"SK[0-9a-f]{32}" + _END),
    Form("SendGrid key", _EDGE + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    Form("Hugging Face token", _EDGE + r"hf_[A-Za-z]{34}" + _END),
    Form("DigitalOcean token", _EDGE + r"do[opr]_v1_[a-f0-9]{64}" + _END),
    Form("Telegram bot token", _EDGE + r"\d{8,10}:AA[A-Za-z0-9_-]{33}" + _END),
    Form("Discord webhook", r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,80}"),
    Form("Shopify token", _EDGE + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}" + _END),
    Form("Databricks token", _EDGE + r"dapi[a-f0-9]{32}(?:-\d)?" + _END),
    Form("Vault token", _EDGE + r"hv[sb]\.[A-Za-z0-9_-]{24,200}"),
    Form("age key", r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    Form("JSON web token", _EDGE + r"eyJ[A-Za-z0-9_-]{15,2000}\.eyJ[A-Za-z0-9_-]{15,2000}\.[A-Za-z0-9_-]{20,1000}",
         everywhere=False),
    Form("password in an address", r"[a-z][a-z0-9+.-]{1,20}://[^\s:/@'\"<>{}$]{1,64}:([^\s:/@'\"<>{}$]{6,128})@",
         certain=False, everywhere=False),
    Form("password or key",
         r"(?i:pass(?:word|wd|phrase)?|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|auth[_-]?token|access[_-]?token"
         r"|client[_-]?secret|private[_-]?key|account[_-]?key|token)[\"']?\s{0,8}(?::|=>?|:=)\s{0,8}"
         r"(?:[\"']([^\"'\s]{12,200})[\"']|([A-Za-z0-9+/_=~.-]{20,200})\s*$)", certain=False, everywhere=False),
)  # fmt: skip
"""Every kind of secret that is known."""

# One look per line tells nearly always that nothing is there; only then is each form tried.
_HINTS = re.compile(
    r"-----BEGIN|AKIA|ASIA|ABIA|ACCA|gh[pousr]_|github_pat_|gl[a-z]{2,6}-|xox[a-z]-|xapp-|hooks\.slack|[sr]k_live_|whsec_"
    r"|AIza|GOCSPX|sk-|npm_|_authToken|pypi-|AccountKey|8Q~|SK[0-9a-f]{8}|SG\.|hf_|do[opr]_v1|:AA|webhooks/|shp[a-z]{2}_"
    r"|dapi|hv[sb]\.|AGE-SECRET|eyJ|://|(?i:pass|secret|api[_-]?key|token|private[_-]?key|account[_-]?key)"
)
_COMPILED = tuple((form, re.compile(form.pattern)) for form in FORMS)

_PLACEHOLDER = re.compile(
    r"(?i)example|sample|dummy|placeholder|changeme|change[_-]me|your[_-]|[_-]here\b|replace|redacted|insert|fake|\bmock"
    r"|not[_-]?a?[_-]?(?:real|secret)|test[_-]?(?:key|token|secret|pass)|(?:pass|key|token|secret)[_-]?test|xxx|\*\*\*|\.\.\."
    r"|…|^<.*>$|\$\{|\$\(|\{\{|%\(|^\$|process\.env|os\.environ|getenv|ENV\[|secrets\.|vault:|123456789|abcdef|deadbeef"
    r"|correct[_-]?horse|hunter2|^(.)\1+$|lorem|eyJzdWIiOiIxMjM0NTY3ODkw"
)
_REFERENCE = re.compile(r"^[A-Za-z_]\w*(?:[.\[(:]\w*[\])]*)+$|^[A-Z][A-Z0-9_]+$|^[a-z]+(?:[_-][a-z]+)*$")
_UUID = re.compile(r"^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
_MADE_UP_THERE = re.compile(
    r"(?i)(?:^|/)(?:docs?|examples?|samples?|fixtures?|testdata|__?mocks?_*|specs?|tests?|__tests__|e2e)/"
    r"|(?:^|[/_.-])(?:test|spec|example|sample)s?[_.-]|[_.-](?:test|spec|example|sample|template|dist)s?\.\w+$"
    r"|\.(?:md|rst|adoc|snap|example|sample|template|dist)$"
)
_ENTROPY = 3.2
_PATHLIKE_ENTROPY = 4.3
_DIGITS = 2
_CHANGES = 0.25


def scan(added: Iterable[tuple[str, int, str]], *, let_pass: Sequence[str] = ()) -> list[Finding]:
    """The secrets among added lines, each given as (path, number of the line, text)."""
    found: list[Finding] = []
    for path, number, text in added:
        line = text[:LINE]
        if not _HINTS.search(line) or (told := secret_in(line, path)) is None:
            continue
        blocking = not waived(path, let_pass)
        found.append(Finding(kind="secret", path=path, line=number, text=f"{told[0]}: {told[1]}", blocking=blocking))
        if len(found) >= MOST_FINDINGS:
            break
    return found


def secret_in(line: str, path: str = "") -> tuple[str, str] | None:
    """(kind, the secret masked) of the first secret in a line; None: there is none."""
    made_up = _MADE_UP_THERE.search(path) is not None
    for form, pattern in _COMPILED:
        if made_up and not form.everywhere:
            continue
        for match in pattern.finditer(line):
            value = next((group for group in match.groups() if group), match[0])
            if not _PLACEHOLDER.search(value) and (_is_varied(value) if form.certain else _is_random(value)):
                return form.name, _masked(form, value)
    return None


def _masked(form: Form, value: str) -> str:
    # Only the beginning that says what it is: of a password, nothing at all.
    return (value[:_SHOWN] if form.certain else "") + f"… ({len(value)} characters)"


def _is_varied(value: str) -> bool:
    """Whether the end of it varies: aaaa and 0000 are typed by people who show what a token looks like."""
    tail = value.rstrip("-=")[-16:]
    return len(set(tail)) > len(tail) // 4


def _is_random(value: str) -> bool:
    """Whether a value was drawn by a machine, rather than made up of words, names and paths."""
    if _REFERENCE.match(value) or _UUID.match(value):
        return False
    digits = sum(map(str.isdigit, value))
    kinds = [0 if char.isdigit() else 1 if char.isupper() else 2 if char.islower() else 3 for char in value]
    changes = sum(one != other for one, other in pairwise(kinds)) / len(value)
    enough = _PATHLIKE_ENTROPY if "/" in value else _ENTROPY
    return digits >= _DIGITS and changes >= _CHANGES and _entropy(value) >= enough


def _entropy(value: str) -> float:
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())
