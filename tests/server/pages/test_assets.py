"""Files the browser loads: all of them ours or written down, and nothing from anywhere else."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

from untildone.server.pages.assets import asset_url, assets

STATIC = Path(str(files("untildone.server") / "static"))
TEMPLATES = Path(str(files("untildone.server") / "templates"))
LISTED = re.findall(
    r"\| `([\w.]+)` \| [\w.]+ \| ([\d.]+) \|.*`([0-9a-f]{64})` \|", (STATIC / "vendor/README.md").read_text()
)


def test_files_of_others_are_those_that_were_written_down() -> None:
    sums = {name: hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() for name, _, _ in LISTED}
    assert sums == {name: digest for name, _, digest in LISTED}
    there = {path.name for path in (STATIC / "vendor").iterdir() if path.suffix in {".js", ".css"}}
    assert there == {*sums}


def test_their_versions_are_those_that_were_written_down() -> None:
    htmx, plot, _ = (version for _, version, _ in LISTED)
    assert f'version:"{htmx}"' in (STATIC / "vendor/htmx.min.js").read_text()
    assert f"v{plot}" in (STATIC / "vendor/uPlot.iife.min.js").read_text()[:400]


def test_every_file_is_served_under_an_address_of_its_content() -> None:
    there = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".svg"}}
    assert there == {*assets()}
    assert len({asset_url(name) for name in there}) == len(there)


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda path: path.name)
def test_templates_hold_no_inline_script_or_style_and_trust_no_value(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|\|\s*safe|autoescape|hx-on|https?://", text)


def test_our_scripts_never_make_html_of_values() -> None:
    for name in ("app.js", "live.js", "plots.js", "theme.js"):
        assert not re.search(
            r"innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\b", (STATIC / name).read_text()
        )
