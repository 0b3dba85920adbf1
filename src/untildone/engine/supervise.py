"""A driver's whole life: prepare the folder, mend what was left broken, drive, and leave in order whatever happens."""

import asyncio
from collections.abc import Sequence

from untildone.core import events as ev
from untildone.core.decide import Stop
from untildone.core.faults import CRASH, STOPPED
from untildone.core.prompt import rights_line
from untildone.core.stopping import Reason
from untildone.engine.journal import Journal
from untildone.engine.loop import drive
from untildone.engine.parts import Parts
from untildone.engine.recover import abandon, recover
from untildone.errors import LeaseLost


async def supervise(journal: Journal, parts: Parts, opening: Sequence[ev.Event]) -> None:
    """Drive a run to its next stop. Cancelled, it still books, keeps the work and writes down why."""
    try:
        await journal.open()
        told = await parts.workspace.prepare()
        await journal.record(*opening)
        for line in (*told, rights_line(journal.state.spec.options)):
            await journal.tell(ev.ContinuousWarning(message=line))
        await recover(journal, parts)
        await drive(journal, parts)
    except asyncio.CancelledError:
        await asyncio.shield(abandon(journal, parts, STOPPED, Stop(Reason.SHUTDOWN_SIGNAL, "asked twice")))
    except LeaseLost:
        raise
    except Exception as trouble:
        if journal.state.run_id:
            stop = Stop(Reason.INTERNAL_ERROR, f"{type(trouble).__name__}: {trouble}")
            await abandon(journal, parts, CRASH, stop)
        raise
    finally:
        await parts.agent.close()
