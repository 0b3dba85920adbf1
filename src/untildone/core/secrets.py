"""Keys and tokens in added lines: known formats, and passwords that look random. A finding never shows the secret."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

from untildone.core.dataclass import dataclass
from untildone.core.findings import Finding, waived

LINE = 4000
"""Characters looked at together: no secret needs more to be recognised."""
_OVERLAP = 2000
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
    spoken: bool = False
    """Part of a command or a request: anything there is one, unless it is a word or a name."""


PRIVATE_KEY = "private key"
_EDGE = r"(?<![A-Za-z0-9_/+.-])"
_END = r"(?![A-Za-z0-9_-])"

FORMS: tuple[Form, ...] = (
    Form(PRIVATE_KEY, r"-----BEGIN (?:(?:RSA|EC|DSA|OPENSSH|ENCRYPTED|PGP) )?PRIVATE KEY(?: BLOCK)?-----",
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
    Form("untildone token", r"(?<![A-Za-z0-9_])(?:ud|once)_[A-Za-z0-9_-]{40,64}" + _END),
    Form("OpenRouter key", _EDGE + r"sk-or-v1-[a-f0-9]{64}" + _END),
    Form("Google access token", _EDGE + r"ya29\.[A-Za-z0-9_-]{20,2000}"),
    Form("Groq key", _EDGE + r"gsk_[A-Za-z0-9]{40,64}" + _END),
    Form("Linear key", _EDGE + r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}" + _END),
    Form("Sentry token", _EDGE + r"sntry[su]_[A-Za-z0-9+/=_-]{32,400}"),
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

_WORTH = r"[^\s\"'`$<>{}()\[\]&;|]"
_SPOKEN = (
    ("login", (r"(?i:authorization)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?i:basic|bearer|token|digest|negotiate)\s{1,4}"
     r"([A-Za-z0-9+/_=~.-]{8,4000})")),
    ("cookie", r"(?i:\b(?:set-)?cookie)[\"']?\s{0,4}:\s{0,4}[\"']?([\w.-]{1,64}=[^\"'\[\]{}<>$]{8,4000})"),
    ("login", (r"\b(?:curl|wget)\b[^|;]{0,120}?\s(?:-u|--user)[ =]?[\"']?[\w.@%+-]{1,40}:"
     rf"({_WORTH}{{4,200}})")),
    ("password", rf"\b(?:mysql|mariadb)\w{{0,20}}\b[^|;]{{0,120}}?\s-p[\"']?({_WORTH}{{4,200}})"),
    ("password", (r"(?<![\w-])--?(?i:[a-z]{1,20}-){0,2}(?i:pass(?:word|wd|phrase)?|pwd|token|secret|api-?key|key)"
     rf"(?:=|\s{{1,4}})[\"']?({_WORTH}{{6,200}})")),
    ("token in an address",
     (r"[?&;#](?i:(?:access|id|refresh|auth|session|csrf)?_?token|api_?key|sig|signature|secret|client_secret|password"
     r"|x-amz-(?:signature|security-token|credential))=([^\s&;\"'`<>#\[\]{}$]{8,2000})")),
    ("password", (r"\b(?:machine\s{1,8}\S{1,200}|default)\s{1,8}(?:login\s{1,8}\S{1,200}\s{1,8})?"
     rf"password\s{{1,8}}({_WORTH}{{4,200}})|^\s{{0,8}}password\s{{1,8}}({_WORTH}{{6,200}})\s{{0,8}}$")),
    ("password or key",
     r"(?i:aws_(?:session_token|secret_access_key))\s{0,4}[:=]\s{0,4}([A-Za-z0-9+/=]{16,4000})"),
)  # fmt: skip
SPOKEN: tuple[Form, ...] = (
    *(Form(name, pattern, spoken=True) for name, pattern in _SPOKEN),
    Form("password or key", r"(?i:pass(?:word|wd)|secret|token|(?:api|access)[_-]?key)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
         r"([A-Za-z0-9+][A-Za-z0-9+/_=~-]{15,4000})", certain=False),
)  # fmt: skip
"""What is said and shown, but is no line of a program: only hidden, never held against anybody."""

# Nearly always these tell that nothing is there, several times faster than one pattern could; else each form is
# tried. The words count in whatever case.
_HINTS = (
    "-----BEGIN", "AKIA", "ASIA", "ABIA", "ACCA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glimt-", "glagent-", "glsoat-", "xox", "xapp-", "hooks.slack",
    "k_live_", "whsec_", "AIza", "GOCSPX", "sk-", "npm_", "_authToken", "pypi-", "AccountKey", "8Q~", "SK", "SG.",
    "hf_", "_v1_", ":AA", "webhooks/", "shpat_", "shpca_", "shppa_", "shpss_", "dapi", "hvs.", "hvb.", "AGE-SECRET",
    "eyJ", "://", "ud_", "once_", "ya29.", "gsk_", "lin_", "sntry",
)  # fmt: skip
_WORDS = (
    "pass", "pwd", "secret", "token", "authorization", "cookie", "curl", "wget", "mysql", "mariadb", "signature",
    "sig=",
    *(f"{of}{by}key" for of in ("api", "private", "account", "access") for by in ("", "_", "-")),
)  # fmt: skip
_COMPILED = tuple((form, re.compile(form.pattern)) for form in FORMS)
_EVERYWHERE = _COMPILED + tuple((form, re.compile(form.pattern)) for form in SPOKEN)

_PLACEHOLDER = re.compile(
    r"(?i)example|sample|dummy|placeholder|changeme|change[_-]me|your[_-]|[_-]here\b|replace|redacted|insert|fake|\bmock"
    r"|not[_-]?a?[_-]?(?:real|secret)|test[_-]?(?:key|token|secret|pass)|(?:pass|key|token|secret)[_-]?test|xxxx|(?<![a-z0-9])xxx(?![a-z0-9])|\*\*\*|\.\.\."
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
_SAID = "[secret: {}]"
_REST = re.compile(r"[A-Za-z0-9_+/=~-]*")
_KEY_EDGE = "PRIVATE KEY"
_KEY_END = "-----END "
_KEY_LAST = re.compile(r"-----END [A-Z ]{0,20}PRIVATE KEY")
_KEY_REST = re.compile(r"(?:\\[nr]|[A-Za-z0-9+/=\s])*")
_KEY_BODY = re.compile(r"[-+ ]?\s{0,40}[\"'#*]?\s{0,4}(?:[A-Za-z0-9+/=]{4,400}|[A-Z][A-Za-z-]{2,20}: [^\n]{1,80}|)"
                       r"(?:\\[nr])*[\"',;+)\\\s]{0,8}")  # fmt: skip
_SIGN = re.compile(r"[-+ ]?\s{0,40}")
_ENTROPY = 3.2
_PATHLIKE_ENTROPY = 4.3
_DIGITS = 2
_CHANGES = 0.25


def scan(added: Iterable[tuple[str, int, str]], *, let_pass: Sequence[str] = ()) -> list[Finding]:
    """The secrets among added lines, each given as (path, number of the line, text)."""
    found: list[Finding] = []
    for path, number, text in added:
        told = next(filter(None, (secret_in(piece, path) for piece in _pieces(text) if _may_hold_one(piece))), None)
        if told is None:
            continue
        blocking = not waived(path, let_pass)
        found.append(Finding(kind="secret", path=path, line=number, text=f"{told[0]}: {told[1]}", blocking=blocking))
        if len(found) >= MOST_FINDINGS:
            break
    return found


def _pieces(text: str) -> Iterator[str]:
    """A long line bit by bit, each with the end of the one before: a secret may lie where it is cut."""
    yield text[:LINE]
    for at in range(LINE - _OVERLAP, len(text) - _OVERLAP, LINE - _OVERLAP):
        yield text[at : at + LINE]


def secret_in(line: str, path: str = "") -> tuple[str, str] | None:
    """(kind, the secret masked) of the first secret in a line; None: there is none."""
    made_up = _MADE_UP_THERE.search(path) is not None
    for form, pattern in _COMPILED:
        if made_up and not form.everywhere:
            continue
        for start, end in _places(form, pattern, line):
            return form.name, _masked(form, line[start:end])
    return None


def redact(text: str) -> str:
    """The text with the kind of each secret in its place, wherever it was found; as many lines as before."""
    if not _may_hold_one(text) and _KEY_END not in text:
        return text
    lines = text.split("\n")
    body = _key_bodies(lines) if _KEY_EDGE in text else frozenset()
    return "\n".join(_hidden(line) if at in body else _redacted(line) for at, line in enumerate(lines))


def may_hold_secret(text: str) -> bool:
    """Whether it is worth looking: a quick answer that is never wrong when it is no."""
    return _may_hold_one(text) or _KEY_END in text


def secrets_in(text: str) -> list[tuple[str, int, int]]:
    """(kind, from where, to where) of everything in a text that one line shows."""
    found: list[tuple[str, int, int]] = []
    begins = 0
    for line in text.split("\n"):
        if _may_hold_one(line):
            for form, pattern in _EVERYWHERE:
                places = _places(form, pattern, line)
                found += ((form.name, begins + start, begins + end) for start, end in places)
        begins += len(line) + 1
    return found


def is_random(value: str) -> bool:
    """Whether a value was drawn by a machine, rather than made up of words, names and paths."""
    return _is_random(value)


def _redacted(line: str) -> str:
    if not _may_hold_one(line):
        return line
    for form, pattern in _EVERYWHERE:
        shown, at = "", 0
        for start, end in _places(form, pattern, line):
            if start >= at:
                shown += line[at:start] + _SAID.format(form.name)
                # What hangs on to it may be the rest of it: forms know only how long one usually is.
                rest = _KEY_REST if form.name == PRIVATE_KEY else _REST
                is_open = form.certain and not form.spoken
                at = max(end, found.end()) if is_open and (found := rest.match(line, end)) else end
        line = shown + line[at:]
    return line


def _may_hold_one(text: str) -> bool:
    if any(hint in text for hint in _HINTS):
        return True
    lowered = text.lower()
    return any(word in lowered for word in _WORDS)


def _places(form: Form, pattern: re.Pattern[str], line: str) -> Iterator[tuple[int, int]]:
    """From where to where a line holds secrets of this form."""
    for match in pattern.finditer(line):
        group = next((number for number, value in enumerate(match.groups(), 1) if value), 0)
        value = match[group]
        if not _PLACEHOLDER.search(value) and _counts(form, value):
            yield match.span(group)


def _counts(form: Form, value: str) -> bool:
    if form.spoken:
        return not value.isalpha() and not _REFERENCE.match(value)
    return _is_varied(value) if form.certain else _is_random(value)


def _key_bodies(lines: Sequence[str]) -> frozenset[int]:
    """The lines of private keys between their first and their last one; either may be cut off."""
    hidden: set[int] = set()
    for at, line in enumerate(lines):
        if _KEY_END in line and _KEY_LAST.search(line):
            above = takewhile(lambda n: n not in hidden and _KEY_BODY.fullmatch(lines[n]), range(at - 1, -1, -1))
            hidden.update(above)
        elif _COMPILED[0][1].search(line):
            hidden.update(takewhile(lambda n: _KEY_BODY.fullmatch(lines[n]), range(at + 1, len(lines))))
    return frozenset(hidden)


def _hidden(line: str) -> str:
    sign = _SIGN.match(line)
    return (sign[0] if sign else "") + _SAID.format(PRIVATE_KEY)


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
