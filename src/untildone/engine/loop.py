"""The loop: ask the core what comes next, let it happen, write down what came of it."""

from untildone.core.decide import Baseline, Iterate, Land, Stop, Verify, Wait, decide
from untildone.engine.attend import attending
from untildone.engine.effects import finish, read_tasks, rest
from untildone.engine.folder import still_visits
from untildone.engine.iteration import iterate
from untildone.engine.journal import Journal
from untildone.engine.landing import land
from untildone.engine.parts import Parts
from untildone.engine.review import review
from untildone.engine.settle import look_again
from untildone.engine.verify import take_baseline, verify


async def drive(journal: Journal, parts: Parts, *, visits: bool = False) -> Stop:
    """Drive a run from where it stands to its next stop. `visits`: the folder is not ours before it is needed."""
    async with journal.watching(), attending(journal, parts) as attention:
        if not visits:
            await read_tasks(journal, parts)
        while True:
            await attention.look()
            due = decide(journal.state, parts.clock.now())
            visits = visits and await still_visits(journal, parts, due)
            match due:
                case Iterate(review=True) as order:
                    await review(journal, parts, order)
                case Iterate() as order:
                    await iterate(journal, parts, order)
                case Baseline():
                    await take_baseline(journal, parts)
                case Land() as work:
                    await land(journal, parts, work)
                case Verify() as claim:
                    await verify(journal, parts, claim)
                case Wait() as wait:
                    await rest(journal, parts, wait)
                    await look_again(journal, parts)
                case Stop() as stop:
                    await finish(journal, parts, stop)
                    return stop
