"""A driver's whole life: prepare the folder, mend what was left broken, drive, and leave in order whatever happens."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress

from untildone.core import events as ev
from untildone.core.decide import Stop
from untildone.core.faults import CRASH, STOPPED, SURROUNDINGS
from untildone.core.prompt import rights_line
from untildone.core.stopping import Reason
from untildone.engine.folder import doubts, prepared_event, resumption
from untildone.engine.journal import Journal
from untildone.engine.loop import drive
from untildone.engine.parts import Parts
from untildone.engine.pulls import check_way
from untildone.engine.recover import abandon, recover
from untildone.errors import AgentError, StoreError, WorkspaceError


async def supervise(journal: Journal, parts: Parts, opening: Sequence[ev.Event]) -> None:
    """Drive a run to its next stop. Cancelled, it still books, keeps the work and writes down why."""
    is_ours = False
    try:
        await journal.open()
        known = resumption(journal.state, opening, parts.clock.now())
        place = await parts.workspace.prepare(known)
        await journal.record(*opening, prepared_event(place, await parts.lander.remote_place()))
        is_ours = True
        check_way(journal.state)
        for line in (*place.lines, *doubts(journal.state, place), rights_line(journal.state.spec)):
            await journal.tell(ev.ContinuousWarning(message=line))
        await recover(journal, parts)
        await drive(journal, parts, visits=known.visits)
    except asyncio.CancelledError:
        if not journal.state.run_id:
            raise
        await _see_through(abandon(journal, parts, STOPPED, Stop(Reason.SHUTDOWN_SIGNAL, "asked twice")))
    except (WorkspaceError, AgentError) as trouble:
        # A run that had stopped before is left as it was: its old stop would hide why it is not taken up now.
        if not is_ours and journal.state.phase != "running":
            raise
        await abandon(journal, parts, SURROUNDINGS, Stop(Reason.SURROUNDINGS, str(trouble)))
    except StoreError:
        raise  # nothing can be written down any more
    except Exception as bug:
        if journal.state.run_id:
            await abandon(journal, parts, CRASH, Stop(Reason.INTERNAL_ERROR, f"{type(bug).__name__}: {bug}"))
        raise
    finally:
        await parts.close_agents()


async def _see_through(leaving: Coroutine[None, None, None]) -> None:
    """Leaving in order is not called off by a third Ctrl+C: it is bounded in time anyway."""
    task = asyncio.ensure_future(leaving)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
