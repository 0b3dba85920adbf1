"""Which forge and which repository a remote's address means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.errors import ConfigError
from untildone.forge.address import Remote, api_of, checked_api, host_of, is_repo, parse_remote

ADDRESSES = [
    ("https://github.com/acme/widget", Remote("github.com", "acme/widget")),
    ("https://github.com/acme/widget.git", Remote("github.com", "acme/widget")),
    ("https://github.com/acme/widget/", Remote("github.com", "acme/widget")),
    ("https://user:secret@GitHub.com/acme/widget.git", Remote("github.com", "acme/widget")),
    ("https://ghe.example.com:8443/acme/widget.git", Remote("ghe.example.com", "acme/widget", 8443)),
    ("ssh://git@github.com/acme/widget.git", Remote("github.com", "acme/widget")),
    ("ssh://git@ghe.example.com:2222/acme/widget.git", Remote("ghe.example.com", "acme/widget")),
    ("ssh://git@ssh.github.com:443/acme/widget.git", Remote("github.com", "acme/widget")),
    ("git@github.com:acme/widget.git", Remote("github.com", "acme/widget")),
    ("github.com:acme/wid.get", Remote("github.com", "acme/wid.get")),
    ("git@[::1]:acme/widget.git", Remote("::1", "acme/widget")),
    ("git@github.com:/acme/widget.git", Remote("github.com", "acme/widget")),
    ("/srv/git/widget.git", None),
    ("../widget.git", None),
    ("C:acme/widget", None),
    ("file:///srv/acme/widget.git", None),
    ("https://github.com/acme", None),
    ("https://github.com/acme/widget/more", None),
    ("https://github.com/../widget", None),
    ("https://github.com:notaport/acme/widget", None),
    ("https://github.com/acme/wid%0aget", None),
    ("", None),
]


@pytest.mark.parametrize(("url", "expected"), ADDRESSES, ids=[url or "nothing" for url, _ in ADDRESSES])
def test_parse_remote(url: str, expected: Remote | None) -> None:
    assert parse_remote(url) == expected


@given(st.text())
def test_any_text_has_an_answer_that_is_safe_in_an_address(url: str) -> None:
    remote = parse_remote(url)
    assert remote is None or is_repo(remote.repo)


@pytest.mark.parametrize(
    ("remote", "api", "host"),
    [
        (Remote("github.com", "a/b"), "https://api.github.com", "github.com"),
        (Remote("acme.ghe.com", "a/b"), "https://api.acme.ghe.com", "acme.ghe.com"),
        (Remote("ghe.example.com", "a/b"), "https://ghe.example.com/api/v3", "ghe.example.com"),
        (Remote("ghe.example.com", "a/b", 8443), "https://ghe.example.com:8443/api/v3", "ghe.example.com"),
    ],
)
def test_the_api_of_a_remote_and_the_host_whose_login_it_wants(remote: Remote, api: str, host: str) -> None:
    assert api_of(remote) == api
    assert host_of(api) == host


@pytest.mark.parametrize("url", ["https://ghe.example.com/api/v3/", "http://127.0.0.1:8080", "http://localhost/x"])
def test_addresses_a_login_may_go_to(url: str) -> None:
    assert checked_api(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://ghe.example.com/api/v3",
        "ftp://ghe.example.com",
        "ghe.example.com",
        "https://u:p@h/api",
        "https://h/?q=1",
        "",
    ],
)
def test_addresses_no_login_goes_to(url: str) -> None:
    with pytest.raises(ConfigError):
        checked_api(url)
