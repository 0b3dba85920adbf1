"""Numbers about the server, for Prometheus."""

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from untildone.server.context import Context

_BATCH_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The server's counters, in a registry of their own: two servers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.stored = Counter("untildone_events_stored", "Events that were new", registry=self.registry)
        self.duplicates = Counter(
            "untildone_events_duplicate", "Events that were there already", registry=self.registry
        )
        self.refused = Counter(
            "untildone_requests_refused", "Requests of workers that were not taken", ["status"], registry=self.registry
        )
        self.batch_seconds = Histogram(
            "untildone_batch_seconds",
            "From a batch's last byte to its receipt",
            buckets=_BATCH_BUCKETS,
            registry=self.registry,
        )
        self.followers = Gauge("untildone_followers", "Streams and waiting workers", registry=self.registry)
        self.lagged = Counter("untildone_followers_lagged", "Times a follower lagged", registry=self.registry)
        self._lagged = 0
        """How many of these are counted."""
        self.dropped = Counter(
            "untildone_streams_dropped",
            "Streams that were ended because their client did not read",
            registry=self.registry,
        )
        self.runs = Gauge("untildone_runs", "Runs, by status", ["status"], registry=self.registry)
        self.behind = Gauge(
            "untildone_projector_backlog", "Runs that wait for their projection", registry=self.registry
        )
        self.memory = Gauge("untildone_resident_bytes", "Memory of this process", registry=self.registry)

    async def collected(self, context: "Context") -> bytes:
        """All numbers, as Prometheus reads them."""
        self.followers.set(context.fanout.followers)
        lagged, self._lagged = context.fanout.lagged - self._lagged, context.fanout.lagged
        self.lagged.inc(lagged)
        self.memory.set(resident_bytes())
        self.runs.clear()
        for status, count in (await context.archive.runs.counts(now=context.clock.now())).items():
            self.runs.labels(status).set(count)
        self.behind.set(context.projector.backlog)
        return generate_latest(self.registry)


def resident_bytes() -> int:
    """The memory this process holds; where the system does not tell, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return pages * resource.getpagesize()
