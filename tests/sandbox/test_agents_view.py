"""What an agent in a sandbox sees."""

import os
from pathlib import Path

import pytest

from untildone.errors import NoSandbox
from untildone.sandbox.agents_view import Quarters, view


@pytest.fixture
def quarters(tmp_path: Path) -> Quarters:
    home, around = tmp_path / "home", tmp_path / "store" / "boxes" / "r-work"
    (home / "project").mkdir(parents=True)
    around.mkdir(parents=True)
    return Quarters(around=around, home=home, writable=(home / "project",), own=(tmp_path / "store",))


def test_its_folder_is_written_its_home_is_its_own_and_the_rest_is_not_there(quarters: Quarters) -> None:
    seen = view(quarters, {"PATH": "/usr/bin"}, root=False, as_user=True)
    by_place = {mount.place: mount for mount in seen.mounts}
    assert not seen.whole_system
    assert not seen.network
    assert by_place[str(quarters.home)].source == str(quarters.around / "home")
    assert by_place[f"{quarters.home}/project"].kind == "write"
    assert by_place["/usr"].kind == "read"
    assert {"/home", "/root", "/var", "/run", "/srv", "/sys"}.isdisjoint(by_place)


def test_what_not_everybody_may_read_is_hidden_from_root_too(quarters: Quarters) -> None:
    if os.geteuid() == 0:
        seen = {mount.place: mount for mount in view(quarters, {}, root=False, as_user=True).mounts}
        assert seen["/etc/shadow"].source == "/dev/null"
        assert "/etc/passwd" not in seen


def test_what_is_fixed_lies_on_top_of_what_may_be_written_and_what_is_not_there_stays_away(quarters: Quarters) -> None:
    folder = quarters.writable[0]
    (folder / "config").write_text("x")
    there, missing = folder / "config", folder / "hooks"
    fixed = Quarters(
        around=quarters.around, home=quarters.home, writable=quarters.writable, fixed=(there, missing), own=quarters.own
    )
    kinds = {mount.place: mount.kind for mount in view(fixed, {}, root=False, as_user=True).mounts}
    assert (kinds[str(there)], kinds[str(missing)]) == ("read", "empty")


def test_our_own_folder_is_not_seen_even_if_it_lies_in_the_agents(quarters: Quarters) -> None:
    store = quarters.writable[0] / ".untildone"
    store.mkdir()
    inside = Quarters(around=store / "boxes", home=quarters.home, writable=quarters.writable, own=(store,))
    kinds = {mount.place: mount.kind for mount in view(inside, {}, root=False, as_user=True).mounts}
    assert kinds[str(store)] == "empty"


@pytest.mark.parametrize("place", [".", ".."])
def test_a_whole_home_is_not_lent(quarters: Quarters, place: str) -> None:
    folder = Path(os.path.normpath(quarters.home / place))
    wide = Quarters(around=quarters.around, home=quarters.home, writable=(folder,))
    with pytest.raises(NoSandbox, match="holds your home"):
        view(wide, {}, root=False, as_user=True)
