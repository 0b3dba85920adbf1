"""The tools we offer to the agent: a server of the Model Context Protocol, spoken over the control channel."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from untildone import __version__
from untildone.core.dataclass import dataclass

SERVER = "untildone"
# Without alwaysLoad the model would see only a tool's name and would have to search for its schema.
MCP_CONFIG: dict[str, Any] = {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER, "alwaysLoad": True}}}
_NO_SUCH_METHOD = -32601
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "array": list,
    "object": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """A tool, and what becomes of a call."""

    name: str
    about: str
    schema: Mapping[str, Any]
    """JSON Schema of an object: only what `wrong_in` looks at means anything."""
    call: Callable[[Mapping[str, Any]], Awaitable[str]]
    """Returns what the agent is told. ToolRefused for a call that cannot be."""


class ToolRefused(Exception):
    """A call cannot be done; the text is told to the agent."""


class OwnTools:
    """Answers what Claude Code asks a server of tools."""

    def __init__(self, tools: Iterable[OwnTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one message in JSON-RPC; one that asks nothing gets an empty one."""
        asked = message.get("params")
        params: Mapping[str, Any] = asked if isinstance(asked, Mapping) else {}
        about: dict[str, Any] = {"jsonrpc": "2.0"} | ({"id": message["id"]} if "id" in message else {})
        match message.get("method"):
            case "initialize":
                return about | {"result": _introduction(params)}
            case "tools/list":
                return about | {"result": {"tools": [_shown(tool) for tool in self._tools.values()]}}
            case "tools/call":
                return about | {"result": await self._called(params)}
            case method if "id" in message and method != "ping":
                said = {"code": _NO_SUCH_METHOD, "message": f"there is no method {str(method)[:100]}"}
                return about | {"error": said}
        return about | {"result": {}}

    async def _called(self, params: Mapping[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(str(params.get("name")))
        given = params.get("arguments") or {}
        if tool is None:
            return _told(f"there is no tool {str(params.get('name'))[:100]!r}", wrong=True)
        if complaint := wrong_in(given, tool.schema):
            return _told(f"Input validation error: {complaint}", wrong=True)
        try:
            return _told(await tool.call(given))
        except ToolRefused as refused:
            return _told(str(refused), wrong=True)


def wrong_in(given: Any, schema: Mapping[str, Any]) -> str:
    """What is wrong with the input of a tool, in one line; "" where nothing is."""
    if not isinstance(given, Mapping):
        return "the input is no object"
    known = schema["properties"]
    lacking = [name for name in schema.get("required", ()) if name not in given]
    if lacking:
        return f"{lacking[0]!r} is a required property"
    for name, value in given.items():
        if name not in known:
            if schema.get("additionalProperties", True) is False:
                return f"{name[:100]!r} was unexpected: there are {', '.join(known)}"
        elif complaint := _wrong_value(value, known[name]):
            return f"{name}: {complaint}"
    return ""


def _wrong_value(value: Any, schema: Mapping[str, Any]) -> str:
    kind, shown = schema["type"], repr(value)[:100]
    # In Python a bool is a number; in JSON it is not.
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        return f"{shown} is not of type {kind!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{shown} is not one of {', '.join(schema['enum'])}"
    if "minimum" in schema and value < schema["minimum"]:
        return f"{shown} is less than {schema['minimum']}"
    items = value if isinstance(value, list) else ()
    if len(items) > schema.get("maxItems", len(items)):
        return f"{len(items)} items are more than {schema['maxItems']}"
    return next((wrong for item in items if (wrong := _wrong_value(item, schema["items"]))), "")


def _introduction(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params.get("protocolVersion"),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER, "version": __version__},
    }


def _shown(tool: OwnTool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.about, "inputSchema": tool.schema}


def _told(text: str, *, wrong: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": wrong}
