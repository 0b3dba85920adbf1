"""What GitHub's refusals mean, in one line that says what to do."""

from untildone.core.printable import one_line
from untildone.errors import ForgeError
from untildone.forge.http import Answer, retry_at

OK = range(200, 300)
_SAID = 300
_A_MINUTE = 60.0
_SCOPES = "it needs to read and write pull requests and contents, and to read checks and statuses"


def refusal(answer: Answer, *, doing: str, repo: str, host: str, now: float) -> ForgeError:
    """The error for an answer that is no success."""
    said = one_line(answer.message, _SAID)
    match answer.status:
        case 401:
            return ForgeError(
                f"{host} does not accept the login: renew the token, or log in again with `gh auth login`"
            )
        case 403 | 429 if _is_limit(answer):
            at = retry_at(answer, now) or now + _A_MINUTE
            return ForgeError(f"{host} answers no more questions for now: {said}", retry_at=at, lasting=False)
        case 403:
            return ForgeError(_forbidden(answer, doing, repo, host))
        case 404 | 410:
            return ForgeError(
                f"cannot {doing}: {host} knows no {repo}, or the login may not see it: check --repo and the token"
            )
        case status if status >= 500 or status in {408, 425}:  # noqa: PLR2004 - their trouble, not ours
            return ForgeError(f"{host} has trouble of its own: it answered {status}", lasting=False)
        case status:
            return ForgeError(f"cannot {doing}: {said or 'no reason given'} ({status}{_errors(answer)})")


def _is_limit(answer: Answer) -> bool:
    """Too many questions: said by headers, and for the secondary limit sometimes by words alone."""
    headers, said = answer.headers, answer.message.lower()
    is_told = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    return answer.status == 429 or is_told or "rate limit" in said or "abuse detection" in said  # noqa: PLR2004 - the status says more than a name


def _forbidden(answer: Answer, doing: str, repo: str, host: str) -> str:
    said = one_line(answer.message, _SAID)
    low = said.lower()
    if "x-github-sso" in answer.headers or "saml" in low:
        return f"cannot {doing}: the organisation wants single sign-on: authorise the token for it on {host}"
    if "upgrade to" in low or "billing" in low:
        return f"cannot {doing}: the plan of {repo} does not include this: {said}"
    if "archived" in low:
        return f"cannot {doing}: {repo} is archived, so nothing can be changed in it"
    if "resource not accessible" in low:
        return f"cannot {doing}: the token may not do that in {repo}: {_SCOPES}"
    return f"cannot {doing}: {host} forbids it: {said or 'no reason given'}; check what the token may do: {_SCOPES}"


def _errors(answer: Answer) -> str:
    """What is wrong in detail, of an answer to something that cannot be processed."""
    errors = answer.body.get("errors") if isinstance(answer.body, dict) else None
    if not isinstance(errors, list):
        return ""
    said = [
        e if isinstance(e, str) else str(e.get("message") or e.get("code", ""))
        for e in errors
        if isinstance(e, str | dict)
    ]
    return f": {one_line('; '.join(said), _SAID)}" if said else ""


def says(answer: Answer, *words: str) -> bool:
    """Whether an answer's message, or one of its errors, has one of these words."""
    text = f"{answer.message} {_errors(answer)}".lower()
    return any(word in text for word in words)


def unmerged(answer: Answer, *, strategy: str, number: int) -> ForgeError:
    """Why a merge was refused (405, 409): most often something that passes, else a rule of the repository."""
    said = one_line(answer.message, _SAID)
    if says(answer, "not allowed on this repository"):
        return ForgeError(
            f"the repository does not allow this way of merging ({strategy}): choose another --merge-strategy"
        )
    if says(answer, "merge queue"):
        return ForgeError(f"the base takes changes through its merge queue only: add #{number} to it by hand")
    return ForgeError(f"#{number} cannot be merged yet: {said or 'no reason given'}", lasting=False)
