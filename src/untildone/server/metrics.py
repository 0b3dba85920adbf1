"""Numbers about the server, for Prometheus."""

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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
        self.lagged = Gauge("untildone_followers_lagged_total", "Times a follower lagged", registry=self.registry)
        self.dropped = Counter(
            "untildone_streams_dropped", "Streams that were ended because nobody read them", registry=self.registry
        )
        self.runs = Gauge("untildone_runs", "Runs, by status", ["status"], registry=self.registry)
        self.behind = Gauge(
            "untildone_projector_backlog", "Runs whose projection lacks events", registry=self.registry
        )
        self.memory = Gauge("untildone_resident_bytes", "Memory of this process", registry=self.registry)
