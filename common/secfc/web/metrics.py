"""Metrics for Prometheus, drawn from the same view as the page at every scrape; and those of the process.

deploy/grafana/secfc.json draws them; a test compares the names.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from secfc.protocol.jobs.record import State
from secfc.protocol.messages import Phase
from secfc.web.view import View

BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
PARTS = ("compute", "transport", "waiting", "decode")
_COUNTED = {"refused": "refusals", "connection lost": "connections_lost", "cannot reach a client": "broken_links"}


class Exporter:
    """A registry of its own, so that nothing else of the process is exported."""

    def __init__(self, look: Callable[[], View]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(Job(look, Noticed()))

    def render(self) -> tuple[bytes, str]:
        """The text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class Noticed(logging.Handler):
    """Counts log lines of some events: what was refused, and which connections broke."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        logging.getLogger("secfc").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if name := _COUNTED.get(record.getMessage()):
            self.counts[name] += 1


class Job(Collector):
    """The job as families of metrics."""

    def __init__(self, look: Callable[[], View], noticed: Noticed) -> None:
        self._look, self._noticed = look, noticed

    def describe(self) -> Iterator[Metric]:
        return iter(())  # else registering would collect once, before there is anything to see

    def collect(self) -> Iterator[Metric]:
        view = self._look()
        yield from _state(view)
        yield from _requests(view)
        yield from _given(view)
        if view.stays:
            yield _jobs(view)
        for name in _COUNTED.values():
            yield CounterMetricFamily(f"secfc_{name}", f"Log lines about it: {name}.", self._noticed.counts[name])


def _state(view: View) -> Iterator[Metric]:
    phase = GaugeMetricFamily("secfc_phase", "1 for the phase the job is in, 0 for others.", labels=["phase"])
    for one in Phase:
        phase.add_metric([one.value], one.value == view.phase)
    yield phase
    spent = GaugeMetricFamily("secfc_phase_seconds", "Seconds that a phase which is over took.", labels=["phase"])
    for name, seconds in view.phase_seconds.items():
        spent.add_metric([name], seconds)
    yield spent
    yield GaugeMetricFamily("secfc_clients", "Clients of the federation.", len(view.parties))
    connected = sum(party.ok for party in view.parties)
    yield GaugeMetricFamily("secfc_connected_clients", "Clients with which all is well.", connected)
    yield GaugeMetricFamily("secfc_waited_for", "Parties that the job waits for.", len(view.waits_for))
    yield GaugeMetricFamily("secfc_rows", "Rows of the job as far as this party knows.", view.rows)
    uploaded = CounterMetricFamily("secfc_uploaded_bytes", "Bytes that a client has uploaded.", labels=["client"])
    for party in view.parties:
        uploaded.add_metric([party.name], party.uploaded_bytes)
    yield uploaded


def _requests(view: View) -> Iterator[Metric]:
    done = view.requests
    yield CounterMetricFamily("secfc_requests", "Requests that are answered, since the job began.", len(done))
    attempts = sum(one.attempts for one in done)
    yield CounterMetricFamily("secfc_attempts", "Attempts at these requests; more than those: repeated.", attempts)
    rounds = max((run.rounds for run in view.runs), default=0)
    yield GaugeMetricFamily("secfc_rounds", "Lloyd rounds of the run that has most.", rounds)
    yield GaugeMetricFamily("secfc_moved_rows", "Rows that the last request moved.", done[-1].changed if done else 0)
    known = [one.inertia for one in done if one.inertia is not None]
    if known:
        yield GaugeMetricFamily("secfc_inertia", "Inertia as last known here.", known[-1])
    whole = HistogramMetricFamily("secfc_request_seconds", "Seconds per request.")
    whole.add_metric([], *_buckets([one.seconds for one in done if one.seconds is not None]))
    yield whole
    parts = HistogramMetricFamily("secfc_request_part_seconds", "Seconds per request, by part.", labels=["part"])
    for part in PARTS:
        values = [value for one in done if (value := getattr(one, part)) is not None]
        parts.add_metric([part], *_buckets(values))
    yield parts


def _buckets(values: Sequence[float]) -> tuple[list[tuple[str, float]], float]:
    """How many are at most as large as each bound, and the sum of all."""
    counts = [0] * (len(BUCKETS) + 1)
    for value in values:
        counts[next((b for b, bound in enumerate(BUCKETS) if value <= bound), len(BUCKETS))] += 1
    bounds = [*map(str, BUCKETS), "+Inf"]
    return [(bound, float(count)) for bound, count in zip(bounds, accumulate(counts), strict=True)], sum(values)


def _jobs(view: View) -> Metric:
    jobs = GaugeMetricFamily("secfc_jobs", "Submitted jobs that are remembered, by state.", labels=["state"])
    counts = Counter(one.state for one in view.jobs)
    for state in State:
        jobs.add_metric([state.value], counts[state.value])
    return jobs


def _given(view: View) -> Iterator[Metric]:
    given = GaugeMetricFamily("secfc_given_away", "How much is given away.", labels=["what"])
    limits = GaugeMetricFamily("secfc_given_away_limit", "How much this site's policy allows.", labels=["what"])
    for one in view.given:
        given.add_metric([one.what], one.count)
        if one.limit is not None:
            limits.add_metric([one.what], one.limit)
    yield given
    yield limits
