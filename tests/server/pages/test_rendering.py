"""Templates escape whatever they are given."""

from untildone.server.pages.rendering import templates


def said(template: str, **values: object) -> str:
    return templates().from_string(template).render(values)


def test_values_are_escaped() -> None:
    assert said("{{ x }}", x="<b onload='x'>") == "&lt;b onload=&#39;x&#39;&gt;"


def test_what_stands_between_backticks_is_a_command_and_still_escaped() -> None:
    shown = said("{{ x|marked }}", x="go on with `untildone <x>` & see")
    assert shown == "go on with <code>untildone &lt;x&gt;</code> &amp; see"
    assert said("{{ x|marked }}", x="a lone ` and <i>") == "a lone ` and &lt;i&gt;"


def test_whoever_has_no_script_is_told_the_zone() -> None:
    told = said('{% from "macros.html" import moment %}{{ moment(x) }} {{ moment(x, "time") }}', x=1_760_000_000.0)
    assert ">2025-10-09 08:53 UTC</time>" in told
    assert ">08:53:20 UTC</time>" in told
    assert told.count('datetime="2025-10-09T08:53:20+00:00"') == 2


def test_moments_no_calendar_holds_are_the_beginning_of_time() -> None:
    assert said("{{ x|iso }}", x=1e300) == "1970-01-01T00:00:00+00:00"
    assert said("{{ x|iso }}", x=float("nan")) == "1970-01-01T00:00:00+00:00"
