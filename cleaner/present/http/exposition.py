"""
A registry as text for Prometheus: what `prometheus_client.generate_latest` writes, byte for byte, and faster.

A scrape of thousands of topics is tens of thousands of samples, written under the interpreter's lock; prometheus_client
checks each name of each sample letter by letter. Names are known here (`families.py`), so only values of labels are
escaped. prometheus_client still negotiates the format and handles rare cases.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

OPENMETRICS = "application/openmetrics-text"

Encoder = Callable[[CollectorRegistry], bytes]

number: Callable[[float], str] = floatToGoString  # as Go prints it; prometheus_client does not type it


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """
    Return the registry's metrics and their content type.

    Args:
        registry: counters, gauges and histograms without `_created` samples, exemplars or time stamps.
        accept: the request's `Accept`, may be empty.
    """
    encoder, content_type = negotiate(accept)
    if "escaping=dots" in content_type or "escaping=values" in content_type:
        return encoder(registry), content_type
    return encode(registry, is_openmetrics=content_type.startswith(OPENMETRICS)), content_type


def negotiate(accept: str) -> tuple[Encoder, str]:
    """
    Return the encoder of the format that an `Accept` asks for, and its content type.

    There are only a few, whatever is asked for: prometheus_client would repeat any version above 1.
    """
    try:
        encoder, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is not a number
        encoder, content_type = choose_encoder("")
    if content_type.startswith(OPENMETRICS):
        _, named, escaping = content_type.partition("; escaping=")
        content_type = f"{OPENMETRICS}; version=1.0.0; charset=utf-8{named}{escaping}"
    return encoder, content_type


def encode(registry: CollectorRegistry, *, is_openmetrics: bool) -> bytes:
    """Return the text format 0.0.4, or OpenMetrics 1.0."""
    lines: list[str] = []
    for metric in registry.collect():
        _add_lines(lines, metric, is_openmetrics=is_openmetrics)
    if is_openmetrics:
        lines.append("# EOF")
    lines.append("")
    return "\n".join(lines).encode()


def _add_lines(lines: list[str], metric: Metric, *, is_openmetrics: bool) -> None:
    is_counter = metric.type == "counter"
    name = metric.name + "_total" if is_counter and not is_openmetrics else metric.name
    help_text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
    lines.append(f"# HELP {name} {help_text.replace(chr(34), chr(92) + chr(34)) if is_openmetrics else help_text}")
    lines.append(f"# TYPE {name} {metric.type}")
    for sample in metric.samples:
        labels = sample.labels
        if not labels:
            lines.append(f"{sample.name} {number(sample.value)}")
            continue
        written = ",".join([f'{label}="{_escaped(labels[label])}"' for label in sorted(labels)])
        lines.append(f"{sample.name}{{{written}}} {number(sample.value)}")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
