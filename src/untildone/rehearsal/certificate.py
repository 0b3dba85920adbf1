"""What a rehearsed night proved: one verdict per act, as Markdown and as JSON. No I/O."""

from collections.abc import Mapping
from dataclasses import asdict
from shlex import quote
from typing import Any, Literal

from untildone.core.dataclass import dataclass
from untildone.core.figures import clock, count
from untildone.core.printable import one_line

Verdict = Literal["green", "red", "not rehearsed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One act as it was played."""

    name: str
    staged: str
    expected: str
    verdict: Verdict
    happened: str = ""
    """What the loop did, from its own events."""
    why: tuple[str, ...] = ()
    """What was wrong, or why it could not be staged."""
    seconds: float = 0.0
    evidence: str = ""
    """Where the log of a red act is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """All acts of a night."""

    at: float
    seconds: float
    version: str
    claude: str | None
    """Version of the Claude Code that played; None: it never came so far."""
    repository: str
    scenes: tuple[Scene, ...]
    changed: Mapping[str, str]
    """What was not as the user's own settings say, and how it was instead."""

    @property
    def passed(self) -> bool:
        """Nothing is red and something is green. What could not be staged proves nothing; it is named."""
        return self.count("green") > 0 and not self.count("red")

    def count(self, verdict: Verdict) -> int:
        """How many acts ended so."""
        return sum(scene.verdict == verdict for scene in self.scenes)


def as_json(certificate: Certificate) -> dict[str, Any]:
    """The certificate for programs."""
    verdicts: tuple[Verdict, ...] = ("green", "red", "not rehearsed")
    return {
        "passed": certificate.passed,
        **{verdict.replace(" ", "_"): certificate.count(verdict) for verdict in verdicts},
        **asdict(certificate),
    }


def headline(certificate: Certificate) -> str:
    """The verdict in one line."""
    red, missed = certificate.count("red"), certificate.count("not rehearsed")
    green = f"{count(certificate.count('green'), 'act')} green"
    parts = [green, f"{red} red", *([f"{missed} not rehearsed"] if missed else [])]
    nothing = " (nothing was proved)" if not certificate.passed and not red else ""
    return f"{'passed' if certificate.passed else 'NOT passed'}: {', '.join(parts)}{nothing}"


def markdown(certificate: Certificate) -> str:
    """The certificate for people."""
    players = f"untildone {certificate.version}, Claude Code {certificate.claude or 'unknown'}"
    lines = [
        "# Night rehearsal",
        "",
        f"**{headline(certificate)}** in {certificate.seconds:.0f} s, {clock(certificate.at)}",
        "",
        f"{players}, in a scratch clone of {_cell(certificate.repository)}, on a scripted model.",
        "",
        "| act | verdict | what was staged | what the loop did |",
        "| --- | --- | --- | --- |",
        *(
            f"| {scene.name} | {scene.verdict} | {_cell(scene.staged)} | {_cell(scene.happened) or '-'} |"
            for scene in certificate.scenes
        ),
    ]
    troubled = [scene for scene in certificate.scenes if scene.verdict != "green"]
    if troubled:
        lines += ["", "## What is not green", ""]
        for scene in troubled:
            lines.append(f"- **{scene.name}** ({scene.verdict}); expected: {scene.expected}")
            lines += [f"  - {_cell(reason)}" for reason in (*scene.why, *_evidence(scene))]
    lines += ["", "## Not as in your settings", ""]
    lines += [f"- {name}: {how}" for name, how in certificate.changed.items()]
    return "\n".join(lines) + "\n"


def _evidence(scene: Scene) -> list[str]:
    if not scene.evidence:
        return []
    return [f"what is kept of it: {scene.evidence} (`untildone log night-{scene.name} --store {_store(scene)}`)"]


def _store(scene: Scene) -> str:
    return quote(f"{scene.evidence}/state")


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|").replace("<", "&lt;")
