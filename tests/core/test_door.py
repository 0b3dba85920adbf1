"""What a request from inside a sandbox becomes."""

import pytest

from untildone.core.door import (
    MODEL_HOST,
    Forward,
    Refused,
    Table,
    Tunnel,
    answer,
    host_rule,
    host_rules,
    may_lead_to,
    model_way,
)
from untildone.errors import ConfigError

KEY = (("x-api-key", "the-real-one"),)
TABLE = Table(
    ways=(model_way("https://api.example/base/", KEY),),
    rules=host_rules(["pypi", "*.corp.example", "db.example:5432", "127.0.0.1:9000", "any.example:*"]),
)


@pytest.mark.parametrize(
    ("method", "target", "url"),
    [
        ("POST", "/v1/messages?beta=true", "https://api.example/base/v1/messages?beta=true"),
        ("POST", f"http://{MODEL_HOST}/v1/messages/count_tokens", "https://api.example/base/v1/messages/count_tokens"),
        ("GET", "/v1/models", "https://api.example/base/v1/models"),
        ("HEAD", "/", "https://api.example/base/"),
    ],
)
def test_the_model_is_asked_with_the_real_key(method: str, target: str, url: str) -> None:
    found = answer(TABLE, method, target)
    assert isinstance(found, Forward)
    assert (found.url, found.adds) == (url, KEY)
    assert "authorization" in found.withheld


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/v1/organizations/members"),
        ("POST", "/v1/messages/../organizations"),
        ("POST", "/v1/messages/%2e%2e/organizations"),
        *(
            ("GET", f"/v1/models/{way}/x")
            for way in ("%252e%252e", "..%00", "%c0%ae%c0%ae", "a;b", "%5c..", "a%2f%2fb")
        ),
        ("DELETE", "/v1/messages"),
        ("POST", "//v1/messages"),
        ("POST", "/v1/files"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/messagesX"),
        ("HEAD", "/v1/messages"),
    ],
)
def test_nothing_else_is_asked_with_it(method: str, target: str) -> None:
    assert isinstance(answer(TABLE, method, target), Refused)


@pytest.mark.parametrize(
    ("target", "is_allowed"),
    [
        ("pypi.org:443", True),
        ("PyPI.org:443", True),
        ("pypi.org:80", False),
        ("a.corp.example:443", True),
        ("a.b.corp.example:443", True),
        ("corp.example:443", False),
        ("evilcorp.example:443", False),
        ("db.example:5432", True),
        ("db.example:443", False),
        ("any.example:1", True),
        ("127.0.0.1:9000", True),
        ("127.0.0.1:9001", False),
        ("evil.example:443", False),
        ("pypi.org.evil.example:443", False),
        ("pypi.org", False),
        ("pypi.org:99999", False),
        ("[::1]:443", False),
        ("", False),
        (":443", False),
        (f"{MODEL_HOST}:443", False),
    ],
)
def test_what_may_be_connected_to(target: str, *, is_allowed: bool) -> None:
    assert isinstance(answer(TABLE, "CONNECT", target), Tunnel) == is_allowed


def test_plain_http_goes_to_hosts_that_are_allowed_at_that_port() -> None:
    table = Table(rules=host_rules(["debian"]))
    found = answer(table, "GET", "http://deb.debian.org/debian/dists/x?y")
    assert found == Tunnel(host="deb.debian.org", port=80, named=True, path="/debian/dists/x?y")
    refused = answer(table, "GET", "http://evil.example:8080/")
    assert refused == Refused(
        host="evil.example:8080", said="it is not allowed: --allow-host evil.example:8080 would allow it"
    )
    assert isinstance(answer(table, "GET", "http://[bad/"), Refused)
    assert isinstance(answer(table, "GET", "/etc"), Refused)


@pytest.mark.parametrize(("network", "is_allowed"), [("registries", False), ("open", True), ("none", False)])
def test_the_network_can_be_opened_and_closed(network: str, *, is_allowed: bool) -> None:
    table = Table(network=network)  # type: ignore[arg-type]
    assert isinstance(answer(table, "CONNECT", "example.org:443"), Tunnel) == is_allowed
    closed = Table(ways=TABLE.ways, rules=TABLE.rules, network="none")
    assert isinstance(answer(closed, "CONNECT", "pypi.org:443"), Refused)
    assert isinstance(answer(closed, "POST", "/v1/messages"), Forward)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Example.org", "example.org"),
        ("*.example.org:8443", "*.example.org:8443"),
        ("localhost:5432", "localhost:5432"),
        ("[::1]:5432", "[::1]:5432"),
        ("::1", "[::1]"),
        ("10.0.0.1:*", "10.0.0.1:*"),
    ],
)
def test_rules_are_written_as_hosts(text: str, shown: str) -> None:
    assert str(host_rule(text)) == shown
    assert host_rule(shown) == host_rule(text)


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.*", "a b", "http://a.example", "a.example:0", "a.example:x", "-a.example", "a/b", "a.example:99999"],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no host that can be allowed"):
        host_rule(text)


@pytest.mark.parametrize(
    ("address", "named", "may"),
    [
        ("93.184.216.34", False, True),
        ("2606:2800:220:1::1", False, True),
        ("10.1.2.3", False, False),
        ("10.1.2.3", True, True),
        ("64:ff9b::7f00:1", False, False),
        ("2002:7f00:1::", False, False),
        ("::127.0.0.1", False, False),
        ("fd00:ec2::254", False, False),
        ("100.100.100.200", False, False),
        ("127.0.0.1", False, False),
        ("127.0.0.1", True, True),
        ("::1", False, False),
        ("::ffff:127.0.0.1", False, False),
        ("169.254.169.254", False, False),
        ("fe80::1%eth0", False, False),
        ("0.0.0.0", False, False),
        ("224.0.0.1", False, False),
        ("nonsense", True, False),
    ],
)
def test_a_name_leads_elsewhere_than_to_the_internet_only_if_it_was_named(
    address: str, *, named: bool, may: bool
) -> None:
    assert may_lead_to(address, named=named) == may
