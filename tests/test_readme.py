"""The README is the first thing somebody with a clone sees, and the page that package indexes show."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_first_commands_need_nothing_but_the_clone() -> None:
    first = README[README.index("```sh\n") :].split("```")[1]
    assert re.findall(r"^(\S+ \S+)", first.removeprefix("sh\n"), re.MULTILINE) == ["./dev rehearse", "./dev test"]


def test_images_are_shown_wherever_the_page_is() -> None:
    images = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert images
    home = PROJECT["urls"]["Homepage"].replace("https://github.com/", "https://raw.githubusercontent.com/") + "/main/"
    assert [image for image in images if not image.startswith(home)] == []
    assert [image for image in images if not (ROOT / image.removeprefix(home)).is_file()] == []
