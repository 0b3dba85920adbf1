"""Writes the generated parts of the docs from the code itself: `./dev docs`. With --check it only compares.

Everything between `<!-- generated: NAME -->` and `<!-- end of NAME -->` belongs to this program.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import click
from fastapi.routing import APIRoute

import untildone
from untildone.cli import serving
from untildone.cli.documentation import field_docs, meaning
from untildone.cli.looping import loop
from untildone.cli.options import SettingOption
from untildone.core import events, faults, judges, secrets, trace, worker_table
from untildone.core.decide import STOP_RULES
from untildone.core.permissions import DANGERS
from untildone.core.settings import GROUPS, PROFILES, SETTINGS, Setting, as_typed
from untildone.core.settings_delivery import OLDER_FLAGS
from untildone.core.stopping import ENDINGS, EXITS, Reason
from untildone.hook import templates
from untildone.server import access, app, parcels_api, sandboxes
from untildone.server.metrics import Metrics

DOCS = Path(__file__).resolve().parent
PLUGIN = Path(untildone.__file__).parent / "plugin"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(heads)]
    lines += [["---"] * len(lines[0]), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(words: Iterable[str]) -> str:
    """Words as code, separated by spaces."""
    return " ".join(f"`{word}`" for word in words)


def shown(setting: Setting, value: object) -> str:
    """A value the way a person writes it."""
    if value is None:
        return "none"
    if value in ("", ()):
        return "empty"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f"`{as_typed(setting, value)}`"


def settings_tables() -> str:
    """One table of settings for each theme."""
    parts = []
    for group, title in GROUPS.items():
        rows = [
            (
                f"`{s.name}`" + (" 🔓" if s.untrusted else ""),
                code([*s.flags, *s.off_flags]) or "after `--`",
                code(s.env),
                shown(s, s.default),
                meaning(s),
            )
            for s in SETTINGS
            if s.group == group
        ]
        parts += [f"### {title}", table(["key", "flags", "environment", "default", "meaning"], rows)]
    return "\n\n".join(parts)


def profiles_table() -> str:
    """What each profile sets."""
    by_name = {s.name: s for s in SETTINGS}
    rows = [
        (f"`{profile}`", f"`{name}`", shown(by_name[name], value))
        for profile, values in PROFILES.items()
        for name, value in values.items()
    ]
    return table(["profile", "setting", "value"], rows)


def older_names_table() -> str:
    """Names from elsewhere, and what they are here: variables that are still read, and flags."""
    flags = [(f"`{there}`", f"`{here}`", about) for there, here, about in OLDER_FLAGS]
    variables = [(f"`{older}`", f"`{s.name}`", "read as before") for s in SETTINGS for older in s.older_env]
    variables = [row for row in variables if "UNTILDONE" not in row[0]]
    return table(["there", "here", ""], [*flags, *variables])


def event_types() -> list[type[events.Event]]:
    """Every event that is stored under a name of its own."""
    found = [
        value
        for module in (events, trace)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, events.Event) and "TYPE" in vars(value)
    ]
    return [event for event in found if event is not events.Unknown]


def events_pages() -> str:
    """Each event with its fields."""
    parts = []
    for event in event_types():
        docs = field_docs(event)
        rows = [(f"`{name}`", f"`{kind}`", docs.get(name, "")) for name, kind in described(event)]
        about = f"{event.KIND}, from the {event.SOURCE}, version {event.VERSION}"
        parts += [f"### `{event.TYPE}`", f"{event.__doc__} *({about})*", table(["field", "type", "meaning"], rows)]
    return "\n\n".join(parts)


def described(event: type[events.Event]) -> list[tuple[str, str]]:
    """Names and types of an event's fields; the shared counters come last."""
    counters = {field.name for field in fields(events.Progress)}
    ordered = sorted(fields(event), key=lambda field: field.name in counters)
    return [(field.name, type_name(field.type)) for field in ordered]


def type_name(annotation: object) -> str:
    """A type as it is written in the source, without its modules."""
    written = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", written)


def exits_table() -> str:
    """Exit codes and what they say."""
    return table(["exit code", "meaning"], ((f"`{code}`", meaning) for code, meaning in EXITS))


def rules_table() -> str:
    """Every stop rule, in the order in which they are asked; then the stop that no rule asks for."""
    asked = [rule.reason for rule in STOP_RULES]
    numbered = [(str(number), reason) for number, reason in enumerate(asked, 1)]
    numbered += [("", reason) for reason in Reason if reason not in asked]
    rows = (
        (number, f"`{reason}`", f"`{ENDINGS[reason].exit_code}`", ENDINGS[reason].meaning)
        for number, reason in numbered
    )
    return table(["", "reason", "exit code", "it stops because"], rows)


def faults_table() -> str:
    """Every named cause of a failed iteration, and what the loop does about it."""
    rows = ((f"`{fault.name}`", fault.meaning, fault.remedy.value) for fault in faults.FAULTS.values())
    return table(["fault", "meaning", "what the loop does"], rows)


def signs_table() -> str:
    """Every piece of evidence, in the order in which it is looked for; then what the loop knows by itself."""
    judged = [(str(number), sign.words, f"`{sign.fault.name}`") for number, sign in enumerate(faults.SIGNS, 1)]
    known = [("", words, f"`{name}`") for name, words in faults.BY_THE_LOOP.items()]
    return table(["", "evidence", "fault"], judged + known)


def guarded_table() -> str:
    """Which files judge a run, in the order in which they are recognised."""
    rows = ((rule.judge, rule.what, code(rule.examples)) for rule in judges.RULES)
    return table(["kind", "what", "such as"], rows)


def secrets_table() -> str:
    """Every kind of secret that is looked for."""
    rows = ((form.name, "yes" if form.everywhere else "no") for form in secrets.FORMS)
    return table(["kind", "also in tests, examples and docs"], rows)


def plugin_commands_table() -> str:
    """The slash commands, as their own files describe them."""
    rows = []
    for path in sorted((PLUGIN / "commands").glob("*.md")):
        settings = dict(
            re.findall(r"^([a-z-]+): (.*)$", path.read_text(encoding="utf-8").split("---")[1], re.MULTILINE)
        )
        rows.append((f"`/untildone:{path.stem}`", settings["description"]))
    return table(["command", "what it does"], rows)


def loop_commands_table() -> str:
    """The commands of `untildone loop` and their options."""
    ctx = click.Context(loop)
    rows = []
    for name in loop.list_commands(ctx):
        command = loop.commands[name]
        options = [p for p in command.params if isinstance(p, click.Option)]
        own = [p for p in options if not isinstance(p, SettingOption) and p.name not in {"store", "cwd", "as_json"}]
        flags = code(next(flag for flag in p.opts if flag.startswith("--")) for p in own)
        settings = ", all [settings](settings.md)" if any(isinstance(p, SettingOption) for p in options) else ""
        first = (command.help or "").split("\n\n", 1)[0]
        rows.append((f"`untildone loop {name}`", first, flags + settings))
    return table(["command", "what it does", "options"], rows)


def loop_templates_table() -> str:
    """The goals that come along."""
    nobody = {"HOME": "/nonexistent"}
    found = (templates.template(name, nobody) for name in templates.names(nobody))
    rows = ((f"`{t.name}`", t.about, f"`{' | '.join(t.promises)}`", str(t.max_iterations)) for t in found)
    return table(["template", "what it is for", "promise", "turns"], rows)


def hooks_table() -> str:
    """Which events the plugin listens to, and for what."""
    listened = json.loads((PLUGIN / "hooks.json").read_text(encoding="utf-8"))["hooks"]
    said = {
        "Stop": "go on, or let go", "StopFailure": "a turn that broke off is recorded",
        "UserPromptSubmit": "open work beside your prompt",
        "SessionStart": "goal and progress after a resume or compaction",
        "UserPromptExpansion": "our own commands", "PreToolUse": "the guard, and the limits on time",
        "PostToolUse": "one line of progress; Claude's own todos", "PostToolUseFailure": "one line of progress",
    }  # fmt: skip
    rows = ((f"`{event}`", said[event], f"{groups[0]['hooks'][0]['timeout']} s") for event, groups in listened.items())
    return table(["event", "what for", "at most"], rows)


def worker_tables() -> str:
    """Every variable of a worker, by theme."""
    parts = []
    for theme, title in worker_table.THEMES.items():
        rows = (
            (
                f"`{one.name}`",
                one.default and f"`{one.default}`" if " " not in one.default else one.default,
                one.meaning,
            )
            for one in worker_table.VARIABLES
            if one.theme == theme
        )
        parts += [f"### {title}", table(["variable", "default", "meaning"], rows)]
    unread = ((f"`{name}`", why[0].upper() + why[1:] + ".") for name, why in worker_table.NOT_READ.items())
    parts += ["### Published, and not read", table(["variable", "why not"], unread)]
    return "\n\n".join(parts)


@cache
def described_api() -> dict[str, Any]:
    """The OpenAPI description. Nobody is asked anything, so there is no database behind it."""
    nowhere: Any = SimpleNamespace(archive=SimpleNamespace(keys=None), clock=None)
    return app.make_app(nowhere).openapi()


def needed_scopes() -> dict[tuple[str, str], str]:
    """What a token must allow, by method and path: the route's own dependencies say so."""
    modules = [part for part in vars(app).values() if isinstance(part, ModuleType) and hasattr(part, "router")]
    routes = [route for module in modules for route in module.router.routes if isinstance(route, APIRoute)]
    by_guard = {getattr(access, scope): scope for scope in get_args(access.Scope)}
    # A worker as well, but being on the machine is not enough.
    by_guard[parcels_api.reader] = "worker"
    found = {}
    for route in routes:
        asked = [by_guard[one.call] for one in route.dependant.dependencies if one.call in by_guard]
        # This one comes a thousand times a second, and asks by itself.
        asked += ["worker"] if route.endpoint is sandboxes.post_events else []
        found |= {(method.lower(), route.path_format): asked[0] if asked else "" for method in route.methods}
    return found


def routes_table() -> str:
    """Every route of the API."""
    scopes = needed_scopes()
    rows = []
    for path, operations in described_api()["paths"].items():
        for method, operation in operations.items():
            named = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            scope = scopes[method, path]
            rows.append(
                (
                    f"`{method.upper()} {path}`",
                    f"`{scope}`" if scope else "none",
                    operation["description"],
                    code(named),
                )
            )
    return table(["route", "token", "what", "parameters"], rows)


def orders_table() -> str:
    """What can be asked of a run."""
    body = described_api()["paths"]["/api/v1/runs/{run_id}/orders"]["post"]["requestBody"]
    rows = []
    for one in body["content"]["application/json"]["schema"]["oneOf"]:
        order = described_api()["components"]["schemas"][one["$ref"].rpartition("/")[2]]
        kind = order["properties"]["kind"]
        taken = [name for name in order["properties"] if name != "kind"]
        rows.append((code(kind.get("enum") or [kind["const"]]), code(taken), order["description"]))
    return table(["`kind`", "fields", "what"], rows)


def refusals_table() -> str:
    """Every status that is no success."""
    answers = (
        answer
        for operations in described_api()["paths"].values()
        for operation in operations.values()
        for answer in operation["responses"].items()
    )
    said = {status: answer["description"] for status, answer in answers if status >= "400"}
    return table(["status", "what"], ((f"`{status}`", said[status]) for status in sorted(said)))


def metrics_table() -> str:
    """Every number that Prometheus is told."""
    rows = []
    for metric in Metrics().registry.collect():
        # Without a status there is no sample of a counter by status: the name of a counter ends the same all the time.
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        rows.append((f"`{name}`", metric.type, metric.documentation))
    return table(["metric", "type", "what"], rows)


def serve_options_table() -> str:
    """The options of `untildone serve`, and their variables."""
    rows = []
    for option in serving.serve.params:
        assert isinstance(option, click.Option)
        assert option.name is not None
        variable = option.name.upper()
        known = [f"{serving.PREFIX}{variable}"] if variable in serving.VARIABLES else []
        rows.append((code([*option.opts, *option.secondary_opts]), code(known), option.help or ""))
    return table(["option", "variable", "meaning"], rows)


def dangers_list() -> str:
    """What the agent is denied by default, by what it reaches."""
    return "\n".join(f"- **{what}**: {', '.join(f'`{one.words}`' for one in dangers)}" for what, dangers in DANGERS)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("settings.md", settings_tables),
    "dangers": ("permissions.md", dangers_list),
    "profiles": ("settings.md", profiles_table),
    "older names": ("settings.md", older_names_table),
    "events": ("events.md", events_pages),
    "exit codes": ("stopping.md", exits_table),
    "stop rules": ("stopping.md", rules_table),
    "faults": ("faults.md", faults_table),
    "guarded files": ("guard.md", guarded_table),
    "secrets": ("guard.md", secrets_table),
    "evidence": ("faults.md", signs_table),
    "plugin commands": ("plugin.md", plugin_commands_table),
    "loop commands": ("plugin.md", loop_commands_table),
    "loop templates": ("plugin.md", loop_templates_table),
    "hooks": ("plugin.md", hooks_table),
    "worker variables": ("worker.md", worker_tables),
    "serve options": ("server.md", serve_options_table),
    "routes": ("api.md", routes_table),
    "orders": ("api.md", orders_table),
    "refusals": ("api.md", refusals_table),
    "metrics": ("api.md", metrics_table),
}


def filled(page: str, name: str, text: str) -> str:
    """The page with one generated part replaced."""
    start, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    if page.count(start) != 1 or page.count(end) != 1:
        sys.exit(f"docs: the markers of {name!r} are missing: {start} ... {end}")
    before, _, rest = page.partition(start)
    return f"{before}{start}\n\n{text}\n\n{end}{rest.partition(end)[2]}"


def main() -> int:
    """Write, or compare."""
    pages: dict[Path, str] = {}
    for name, (file, part) in PARTS.items():
        path = DOCS / file
        pages[path] = filled(pages.get(path) or path.read_text(encoding="utf-8"), name, part())
    stale = [path for path, page in pages.items() if path.read_text(encoding="utf-8") != page]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"docs/{path.name} is not what the code says: run ./dev docs")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
        print(f"docs/{path.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
