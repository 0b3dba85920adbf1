"""Folds the lines of one iteration into events to tell and, at its end, an Outcome. Pure; never raises."""

from collections.abc import Callable, Mapping
from typing import Any

from untildone.agents.asking import Asking
from untildone.agents.books import Books
from untildone.agents.file_changes import EDITING_TOOLS, file_edited
from untildone.agents.prices import count
from untildone.agents.shown import bounded, fingerprint
from untildone.agents.stream import Line, Malformed, Parsed
from untildone.agents.tool_detail import REPORT_TOOL, tool_detail
from untildone.agents.transcripts import transcript_path
from untildone.agents.trouble import Trouble, quota_windows
from untildone.core.claims import Report, report_from
from untildone.core.events import Event
from untildone.core.outcome import FaultEvidence, Outcome
from untildone.core.permissions import telling_line
from untildone.core.secrets import redact
from untildone.core.trace import (
    TOOL_RESULT_CAP,
    AgentMessage,
    AgentQuota,
    AgentSession,
    AgentStreamError,
    AgentSystem,
    AgentThinking,
    AgentToolResult,
    AgentToolUse,
    AgentWoken,
    QuotaWindow,
)

ERROR_TEXT_CAP = 8192
MOST_DENIALS = 50
SYNTHETIC_MODEL = "<synthetic>"
# These carry the report or the answer itself; calling them is no evidence of work.
_NO_WORK = frozenset({REPORT_TOOL, "StructuredOutput"})
_SHOWN_SYSTEM = frozenset({
    "api_retry", "compact_boundary", "informational", "mirror_error", "model_fallback", "model_refusal_fallback",
    "model_refusal_no_fallback", "notification", "permission_denied", "session_writes_lost", "task_notification",
    "worker_shutting_down",
})  # fmt: skip


class Conversation:
    """One iteration, as its lines come in."""

    def __init__(
        self, iteration_num: int, *, cwd: str = "", config_dir: str | None = None, baseline_usd: float = 0.0
    ) -> None:
        """`baseline_usd` is what a resumed session had cost before, for streams that only tell totals."""
        self.session_id: str | None = None
        self.model: str | None = None
        self.result_seen = False
        """The answer to our own prompt is complete; a task's notification may still start another turn."""
        self.live_tasks: tuple[str, ...] = ()
        """Ids of background tasks that still run."""
        self._known_tasks: set[str] = set()
        self._new_tasks = 0
        """Background tasks started since the last result."""
        self._iteration_num = iteration_num
        self._cwd = cwd
        self._config_dir = config_dir
        self._books = Books(iteration_num, baseline_usd=baseline_usd)
        self._asking = Asking()
        self._trouble = Trouble()
        self._given_up: FaultEvidence | None = None
        self._open_tools: set[str] = set()
        self._quota: tuple[QuotaWindow, ...] = ()
        self._result: Line | None = None
        self._in_turn = True
        self._settled = False
        self._num_turns = 0
        self._final_id: str | None = None
        self._final_texts: list[str] = []
        self._output_chars = 0
        self._reports: dict[str, Report] = {}
        self._activity: list[str] = []
        self._tools: dict[str, str] = {}
        self._edits: dict[str, tuple[str, dict[str, Any]]] = {}
        self._denied: dict[str, str] = {}
        self._errors: list[str] = []
        self._error_room = ERROR_TEXT_CAP

    @property
    def over(self) -> bool:
        """Nothing more can come by itself.

        The third part matters: when a task ends, the empty task list comes before the turn it starts.
        Without session-state events this stays False, and the end of the stream decides.
        """
        return self.result_seen and not self.live_tasks and self._settled

    @property
    def resting(self) -> bool:
        """The agent has had its last word, unless a background task that still runs wakes it.

        Judged by turns: in print mode the session state stays `running` while any task lives.
        """
        return self.result_seen and not self._in_turn

    @property
    def own_wait(self) -> float | None:
        """Seconds Claude said it waits before it tries a failed request again; None: it does not."""
        return self._trouble.own_wait

    @property
    def waits_too_long(self) -> bool:
        """Whether Claude announced a wait that is for the loop to decide about: the turn should be given up."""
        return self._given_up is None and self._trouble.is_for_the_loop(alone=not self._open_tools | {*self.live_tasks})

    def give_up(self) -> None:
        """The turn is being ended because of such a wait: whatever its result says, that is why it failed."""
        self._given_up = self._trouble.given_up()

    def feed(self, line: Parsed) -> list[Event]:
        """Take a line in; returns the events to tell, in order."""
        if isinstance(line, Malformed):
            error = f"{line.error}: {line.preview}" if line.preview else line.error
            self._trouble.unreadable(error)
            return [AgentStreamError(iteration_num=self._iteration_num, error=error)]
        self._asking.hear(line)
        handle = self._HANDLERS.get(line.type) if isinstance(line.type, str) else None
        return handle(self, line) if handle else []

    def outcome(
        self, *, exit_code: int | None = None, stderr: str = "", interrupted: bool = False, starved: bool = False
    ) -> Outcome:
        """What the iteration came to. `starved`: memory ran out on the machine meanwhile."""
        ended_badly = self._result is None or self._has_failed(self._result)
        given_up = None if interrupted or not ended_badly else self._given_up
        aborted = self._result is not None and str(self._result.terminal_reason).startswith("aborted_")
        interrupted = given_up is None and (aborted or (interrupted and ended_badly))
        was_cut = interrupted or self._result is None
        failure = given_up
        if failure is None and ended_badly and not interrupted:
            failure = self._trouble.evidence(self._result, exit_code=exit_code, stderr=stderr, starved=starved)
        return Outcome(
            session_id=self.session_id,
            final_text="\n".join(self._final_texts),
            report=next(reversed(self._reports.values()), None),
            cost_usd=self._books.cost_usd,
            estimated_usd=self._books.estimated_usd,
            cut_replies=self._books.cut_replies,
            unseen_requests=int(was_cut and self._asking.awaits_reply is True),
            usage=self._books.usage,
            num_turns=self._num_turns,
            failure=failure,
            interrupted=interrupted,
            denials=tuple(self._denied.values())[:MOST_DENIALS],
            activity=tuple(self._activity),
            error_text="\n".join(self._errors),
            output_chars=self._output_chars,
            model=self.model,
        )

    @staticmethod
    def _has_failed(result: Line) -> bool:
        # The subtype says "success" for every API failure too. Whatever does not say both is broken: no success.
        return result.is_error is not False or result.subtype != "success"

    # --- system lines ----------------------------------------------------------------------------------

    def _on_system(self, line: Line) -> list[Event]:
        if line.subtype == "init":
            return self._on_init(line)
        data = line.data if isinstance(line.data, dict) else {}
        self._track_state(str(line.subtype), data)
        if line.subtype == "api_retry":
            self._trouble.retry(data)
        elif line.subtype == "permission_denied":
            self._deny(data)
        shown = isinstance(line.subtype, str) and line.subtype in _SHOWN_SYSTEM
        return [self._system(line.subtype, data)] if shown else []

    def _on_init(self, line: Line) -> list[Event]:
        """Comes once per turn; only a new session is news."""
        self._in_turn = True
        session_id = _text(line.session_id)
        self.model = _text(line.model) or self.model
        self._cwd = self._cwd or _text(line.cwd)
        if not session_id or session_id == self.session_id:
            return []
        self.session_id = session_id
        cwd = _text(line.cwd) or self._cwd
        transcript = transcript_path(self._config_dir, cwd, session_id) if self._config_dir else None
        return [
            AgentSession(
                iteration_num=self._iteration_num,
                session_id=session_id,
                transcript=str(transcript) if transcript else None,
                model=self.model,
                version=_text(line.claude_code_version) or None,
                lane=_text(line.api_key_source) or None,
            )
        ]

    def _track_state(self, subtype: str, data: dict[str, Any]) -> None:
        if subtype == "session_state_changed":
            self._settled = data.get("state") == "idle"
        elif subtype == "background_tasks_changed":
            self._settled = False
            tasks = data.get("tasks")
            found = (_text(_get(task, "task_id")) for task in tasks) if isinstance(tasks, list) else ()
            self.live_tasks = tuple(task_id for task_id in found if task_id)
            self._new_tasks += len({*self.live_tasks} - self._known_tasks)
            self._known_tasks.update(self.live_tasks)
        elif subtype.startswith("task_"):
            self._settled = False

    def _on_rate_limit(self, line: Line) -> list[Event]:
        self._trouble.limit(line.rate_limit_info)
        info = line.rate_limit_info if isinstance(line.rate_limit_info, dict) else {}
        return [*self._news_of_quota(info), self._system("rate_limit_event", info)]

    def _news_of_quota(self, info: dict[str, Any]) -> list[Event]:
        windows = quota_windows(info)
        if not windows or windows == self._quota:
            return []
        self._quota = windows
        return [AgentQuota(iteration_num=self._iteration_num, windows=windows)]

    def _system(self, subtype: str, data: dict[str, Any]) -> Event:
        return AgentSystem(iteration_num=self._iteration_num, subtype=subtype, data=bounded(data))

    # --- replies ---------------------------------------------------------------------------------------

    def _on_stream_event(self, line: Line) -> list[Event]:
        event = line.event if isinstance(line.event, dict) else {}
        message_id = _text(line.api_message_id) or None
        match event.get("type"):
            case "message_start":
                self._trouble = Trouble()
                message = event.get("message")
                model = _text(_get(message, "model")) or self.model or ""
                name = _text(_get(message, "id")) or message_id or ""
                return self._books.start(name, model, _get(message, "usage"))
            case "message_delta":
                # Not `message_stop`: that one is sent for a reply cut in mid-air too.
                self._books.progress(message_id, event.get("usage"))
                ended = _get(event.get("delta"), "stop_reason") is not None
                return self._books.finish(message_id) if ended else []
            case _:
                return []

    def _on_assistant(self, line: Line) -> list[Event]:
        message = line.message if isinstance(line.message, dict) else {}
        content = message.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        model = _text(message.get("model"))
        if line.is_api_error_message is True or model == SYNTHETIC_MODEL:
            return self._on_synthetic(line, blocks)
        message_id = _text(message.get("id"))
        is_subagent = line.parent_tool_use_id is not None
        is_whole = message.get("stop_reason") is not None
        events = self._books.mention(message_id, model or self.model or "", message.get("usage"), is_whole=is_whole)
        if not is_subagent:
            self._trouble = Trouble()
            self._turn_to_message(message_id)
        for block in blocks:
            events += self._on_block(block, is_subagent=is_subagent)
        return events

    def _turn_to_message(self, message_id: str) -> None:
        """Each block of a message comes as a line of its own; the text of earlier messages is not final."""
        if message_id != self._final_id or not message_id:
            self._final_id, self._final_texts = message_id, []

    def _on_synthetic(self, line: Line, blocks: list[dict[str, Any]]) -> list[Event]:
        text = "\n".join(_text(block.get("text")) for block in blocks)
        if line.parent_tool_use_id is None and (line.is_api_error_message is True or line.error is not None):
            self._trouble.synthetic(line, text)
        told = {"text": text, "error": line.error, "api_error_status": line.api_error_status}
        return [self._system("api_error" if line.error is not None else "synthetic_message", told)]

    def _on_block(self, block: dict[str, Any], *, is_subagent: bool) -> list[Event]:
        kind, number = _text(block.get("type")), self._iteration_num
        if kind == "text" and (text := _text(block.get("text"))):
            if not is_subagent:
                self._final_texts.append(text)
                self._output_chars += len(text)
            return [AgentMessage(iteration_num=number, text=text, subagent=is_subagent)]
        if kind in {"thinking", "redacted_thinking"}:
            return [AgentThinking(iteration_num=number, chars=len(_text(block.get("thinking"))))]
        if kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
            return [self._on_tool_use(block, is_subagent=is_subagent)]
        return []

    # --- tools -----------------------------------------------------------------------------------------

    def _on_tool_use(self, block: dict[str, Any], *, is_subagent: bool) -> Event:
        name, tool_use_id = _text(block.get("name")), _text(block.get("id"))
        raw = block.get("input")
        given = raw if isinstance(raw, dict) else {}
        detail = tool_detail(name, given, self._cwd)
        self._tools[tool_use_id] = f"{name}({detail})"
        if name in EDITING_TOOLS:
            self._edits[tool_use_id] = name, given
        if name == REPORT_TOOL and not is_subagent:
            self._reports[tool_use_id] = report_from(given)
        if block.get("type") == "tool_use" and not is_subagent:
            self._open_tools.add(tool_use_id)
        if name not in _NO_WORK:
            self._activity.append(fingerprint(name, given))
        return AgentToolUse(
            iteration_num=self._iteration_num,
            tool=name,
            tool_use_id=tool_use_id,
            detail=detail,
            subagent=is_subagent,
        )

    def _on_user(self, line: Line) -> list[Event]:
        content = _get(line.message, "content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        events: list[Event] = []
        for block in blocks:
            if block.get("type") == "tool_result":
                events += [self._on_tool_result(block), *self._on_edit(block, line.patch)]
        return events

    def _on_edit(self, block: dict[str, Any], patch: Any) -> list[Event]:
        tool_use_id = _text(block.get("tool_use_id"))
        called = self._edits.pop(tool_use_id, None)
        if called is None or block.get("is_error") is True:
            return []
        answer = _text(block.get("content"))
        told = file_edited(
            *called, iteration_num=self._iteration_num, tool_use_id=tool_use_id, result=patch, answer=answer
        )
        return [] if told is None else [told]

    def _on_tool_result(self, block: dict[str, Any]) -> Event:
        tool_use_id, text = _text(block.get("tool_use_id")), _text(block.get("content"))
        is_error = block.get("is_error") is True
        self._open_tools.discard(tool_use_id)
        if is_error:
            self._reports.pop(tool_use_id, None)  # refused by its schema: the agent never reported
            if self._error_room > 0 and text:
                self._errors.append(text[: self._error_room])
                self._error_room -= len(text)
        return AgentToolResult(
            iteration_num=self._iteration_num,
            tool_use_id=tool_use_id,
            is_error=is_error,
            text=redact(text)[:TOOL_RESULT_CAP],  # before the cut: half a key is still half a key
            full_length=count(block.get("full_length")) or len(text),
        )

    def _deny(self, denial: Any) -> None:
        """The event and the result both tell; the result also has the input."""
        name, tool_use_id = _text(_get(denial, "tool_name")), _text(_get(denial, "tool_use_id"))
        given = _get(denial, "tool_input")
        if isinstance(given, dict) and isinstance(command := given.get("command"), str):
            given = {**given, "command": telling_line(command)}
        detail = tool_detail(name, given, self._cwd) if isinstance(given, dict) else ""
        told = f"{name}({detail})" if detail else self._tools.get(tool_use_id) or f"{name}({detail})"
        self._denied[tool_use_id or told] = told

    # --- results ---------------------------------------------------------------------------------------

    def _on_result(self, line: Line) -> list[Event]:
        """There can be several: a background task that ends starts a turn by itself."""
        self._result, self._in_turn = line, False
        was_woken = _get(line.origin, "kind") == "task-notification"
        self.result_seen = self.result_seen or not was_woken
        self.session_id = self.session_id or _text(line.session_id) or None
        self._num_turns += count(line.num_turns)
        self._books.book_result(line)
        for denial in line.permission_denials if isinstance(line.permission_denials, list) else []:
            self._deny(denial)
        if isinstance(line.structured_output, dict):
            self._reports.pop("structured_output", None)
            self._reports["structured_output"] = report_from(line.structured_output)
        started, self._new_tasks = self._new_tasks, 0
        return [AgentWoken(iteration_num=self._iteration_num, tasks_started=started)] if was_woken else []

    _HANDLERS: Mapping[str, Callable[["Conversation", Line], list[Event]]] = {
        "system": _on_system,
        "stream_event": _on_stream_event,
        "assistant": _on_assistant,
        "user": _on_user,
        "result": _on_result,
        "rate_limit_event": _on_rate_limit,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None
