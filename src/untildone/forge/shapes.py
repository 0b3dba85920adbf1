"""What GitHub answers, as far as it is read. Anything else in an answer is ignored; anything missing has a default."""

from typing import TypeVar

import msgspec

from untildone.errors import ForgeError

T = TypeVar("T")


class User(msgspec.Struct):
    """Somebody; deleted accounts are null where a user is expected."""

    login: str = "ghost"
    type: str = "User"


class Repo(msgspec.Struct):
    """A repository by its full name."""

    full_name: str = ""


class Ref(msgspec.Struct):
    """One end of a pull request."""

    ref: str
    sha: str
    repo: Repo | None = None


class Pull(msgspec.Struct):
    """A pull request."""

    number: int
    state: str
    head: Ref
    base: Ref
    html_url: str = ""
    body: str | None = None
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    mergeable: bool | None = None
    mergeable_state: str = "unknown"
    requested_reviewers: list[User] = []
    requested_teams: list[msgspec.Raw] = []


class App(msgspec.Struct):
    """Who runs a check."""

    slug: str | None = None


class CheckOutput(msgspec.Struct):
    """What a check says about itself."""

    title: str | None = None
    summary: str | None = None
    text: str | None = None


class CheckRun(msgspec.Struct):
    """One check run."""

    id: int
    name: str
    status: str
    conclusion: str | None = None
    html_url: str | None = None
    app: App | None = None
    output: CheckOutput | None = None


class CheckRuns(msgspec.Struct):
    """A page of check runs."""

    check_runs: list[CheckRun]
    total_count: int = 0


class Status(msgspec.Struct):
    """One commit status: the older way of CI."""

    context: str
    state: str
    description: str | None = None
    target_url: str | None = None


class Statuses(msgspec.Struct):
    """The newest status of each context."""

    statuses: list[Status]
    total_count: int = 0


class Annotation(msgspec.Struct):
    """A line a check complains about."""

    path: str = ""
    start_line: int = 0
    message: str | None = None


class Review(msgspec.Struct):
    """A submitted review."""

    id: int
    state: str
    user: User | None = None
    body: str | None = None
    submitted_at: str | None = None
    author_association: str = "NONE"


class Comment(msgspec.Struct):
    """A comment: on a line of the diff, or on the whole."""

    id: int
    created_at: str
    user: User | None = None
    body: str | None = None
    path: str = ""
    line: int | None = None
    original_line: int | None = None
    pull_request_review_id: int | None = None
    author_association: str = "NONE"


class Comparison(msgspec.Struct):
    """How two branches differ."""

    behind_by: int


class Count(msgspec.Struct):
    """How many there are."""

    total: int = msgspec.field(name="totalCount", default=0)


class Asked(msgspec.Struct):
    """What only GraphQL tells about reviews."""

    decision: str | None = msgspec.field(name="reviewDecision", default=None)
    requests: Count = msgspec.field(default_factory=Count)
    removals: Count = msgspec.field(default_factory=Count)


class _Repository(msgspec.Struct):
    pull: Asked | None = msgspec.field(name="pullRequest", default=None)


class _Data(msgspec.Struct):
    repository: _Repository | None = None


class _Error(msgspec.Struct):
    message: str = ""
    type: str = ""


class GraphQL(msgspec.Struct):
    """An answer of the GraphQL API: errors come with status 200."""

    data: _Data | None = None
    errors: list[_Error] = []


def read(body: object, kind: type[T], host: str) -> T:
    """An answer as a value. ForgeError when it is something else: perhaps only this time."""
    try:
        return msgspec.convert(body, kind, strict=False)
    except (msgspec.ValidationError, UnicodeError) as wrong:  # JSON may hold text that no encoding can
        raise ForgeError(f"{host} answered in an unknown form ({wrong})", lasting=False) from None
