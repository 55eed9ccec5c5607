"""
Estimates what packing batches in another way saves, and how long it takes (`plan --estimate --recompress`).

A few long runs of adjacent batches, spread over the log, are packed in memory, superseded records too:
what stays is taken to be as easily packed as what goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.estimate.cells import Cell, Cells
from cleaner.cleaning.recopy.recompress import Recompressor
from cleaner.cleaning.recopy.retained import Output
from cleaner.config.forms import Recompression
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.format.batch import ReadBuffer, SegmentReader
from cleaner.policy.estimate import PackingEstimate
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE
from cleaner.storage.segment.segment import Segment

_STRETCHES, _STRETCH_BYTES = 8, 4 << 20
_MOST_SECONDS = 5.0


def estimate_packing(
    segments: Sequence[Segment],
    bytes_before: int,
    target: Recompression,
    topic: TopicConfig,
    config: CleanerConfig,
    context: RoundContext,
) -> PackingEstimate:
    """
    Estimate what packing does to the batches of a log.

    Args:
        segments: those that a round recopies, at least one.
        bytes_before: of the batches that stay.
        target: codec and level.
        topic, config: the settings.
        context: gives the clock, and `check_done`, which is called before each part and may raise to stop.
    Raises:
        CorruptLogError: damage in a part that was read.
        FileNotFoundError: a segment is gone.
    """
    limit_bytes, clock = config.batch_limit_bytes(topic), context.clock
    packer = Recompressor(target, topic.max_message_bytes, limit_bytes)
    read = after = seconds = 0.0
    with closing(Cells(segments, limit_bytes, context.now_ms, _STRETCHES * _STRETCH_BYTES)) as cells:
        # They do not overlap in a small log.
        count = max(1, min(_STRETCHES, cells.total_bytes // _STRETCH_BYTES))
        stretches = cells.stretches(count, _STRETCH_BYTES)
    # The first part is packed twice: kernels and libraries are loaded at their first call.
    for number, cell in enumerate(stretches[:1] + stretches):
        context.check_done()
        outputs = _outputs(segments[cell.segment], cell)
        began_ns, written = clock.monotonic_ns(), 0
        packer.begin(cell.end - cell.start)
        for output in outputs:
            written += len(packer.add(segments[cell.segment].log_path, output, is_equal=False).data)
        written += len(packer.end().data)
        if not number:
            continue
        seconds += (clock.monotonic_ns() - began_ns) / 1e9
        read, after = read + cell.end - cell.start, after + written
        if seconds > _MOST_SECONDS:
            break
    part = bytes_before / max(1, read)
    return PackingEstimate(str(target), int(read), bytes_before, round(after * part), seconds * part)


def _outputs(segment: Segment, cell: Cell) -> list[Output]:
    """Read the batches of a cell, as a round gives them to the packer."""
    outputs = []
    with segment.open_log() as file:
        drops = not file.is_cached(cell.start)
        reader = SegmentReader(file, size=cell.end, start=cell.start, check_order_from=segment.base_offset)
        while (chunk := reader.next_chunk(ReadBuffer())) is not None:
            written = np.zeros(len(chunk.batches), WRITTEN_DTYPE)
            for name in WRITTEN_DTYPE.names or ():
                written[name] = chunk.batches[name]
            last = int(written["last_offset"].max(initial=-1))
            outputs.append(Output(chunk.data.data[: chunk.length], chunk.data, written, last))
        if drops:
            file.drop_cache(cell.start, cell.end - cell.start)
    return outputs
