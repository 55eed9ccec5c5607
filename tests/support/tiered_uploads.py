"""
Moves segments of a partition's directory away as Aiven's tiered-storage plugin lays them out.

The plugin itself is in no package registry, so this writes the objects by its public source: names, chunks in zstd, the
`.indexes`, and the manifest's JSON with packed chunk sizes.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cramjam

from tests.support.batch_reader import batch_info, split_batches
from tests.support.log_builder import TOPIC_ID, LogBuilder
from tests.support.segment_builder import offset_name

SEGMENT_ID = "tqimKeZwStOEOwRzT3L5oQ"
_KINDS = (("offset", ".index"), ("timestamp", ".timeindex"), ("producerSnapshot", ""), ("leaderEpoch", ""))


def pack_sizes(sizes: list[int]) -> str:
    """Pack the sizes of chunks for a manifest."""
    data = len(sizes).to_bytes(4, "big")
    if len(sizes) > 1:
        least = min(sizes[:-1])
        width = max(1, -(-(max(sizes[:-1]) - least).bit_length() // 8))
        data += least.to_bytes(4, "big") + bytes([width])
        data += b"".join((size - least).to_bytes(width, "big") for size in sizes[:-1])
    data += sizes[-1].to_bytes(4, "big") if sizes else b""
    return base64.b64encode(bytes(cramjam.zstd.compress(data))).decode()


def segment_objects(
    files: Mapping[str, bytes], base: int, *, chunk_bytes: int = 300, compressed: bool = True, **changed: object
) -> dict[str, bytes]:
    """
    Return the three objects of one segment, by suffix.

    Args:
        files: of the partition's directory, by name.
        base: base offset of the segment.
        chunk_bytes: before compression.
        changed: other values in the manifest.
    """
    log = files[f"{offset_name(base)}.log"]
    infos = [batch_info(batch) for batch in split_batches(log)]
    end = infos[-1].last_offset
    lines = files["leader-epoch-checkpoint"].decode().split("\n")[2:-1]
    lineage = [(int(epoch), int(start)) for epoch, start in map(str.split, lines) if int(start) <= end]
    before = [each for each in lineage if each[1] <= base]
    epochs = [(before[-1][0], base)] * bool(before) + [each for each in lineage if each[1] > base]
    chunks = [log[at : at + chunk_bytes] for at in range(0, len(log), chunk_bytes)]
    packed = [bytes(cramjam.zstd.compress(each)) for each in chunks] if compressed else chunks
    sizes: dict[str, object] = {"originalChunkSize": chunk_bytes, "originalFileSize": len(log)}
    if compressed:
        sizes |= {"type": "variable", "transformedChunks": pack_sizes([len(each) for each in packed])}
    else:
        final = {"transformedChunkSize": chunk_bytes, "finalTransformedChunkSize": len(packed[-1])}
        sizes |= {"type": "fixed", **final}
    content = {kind: files.get(f"{offset_name(base)}{suffix}", b"") for kind, suffix in _KINDS if suffix}
    content["producerSnapshot"] = files.get(f"{offset_name(end + 1)}.snapshot", b"")
    head = f"0\n{len(lineage)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in lineage)
    content["leaderEpoch"] = head.encode()
    if f"{offset_name(base)}.txnindex" in files:
        content["transaction"] = files[f"{offset_name(base)}.txnindex"]
    indexes: dict[str, dict[str, int] | None] = {"transaction": None}
    at = 0
    for kind, data in content.items():
        indexes[kind] = {"position": at, "size": len(data)}
        at += len(data)
    manifest: dict[str, Any] = {
        "version": "1",
        "chunkIndex": sizes,
        "segmentIndexes": indexes,
        "compression": compressed,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {"topicId": TOPIC_ID, "topicPartition": {"topic": "topic", "partition": 0}},
                "id": SEGMENT_ID,
            },
            "startOffset": base,
            "endOffset": end,
            "maxTimestampMs": max(each.max_timestamp_ms for each in infos),
            "brokerId": 1,
            "eventTimestampMs": 1_700_000_000_000,
            "segmentLeaderEpochs": {str(epoch): start for epoch, start in epochs},
        },
    }
    manifest |= changed
    return {
        ".log": b"".join(packed),
        ".indexes": b"".join(content.values()),
        ".rsm-manifest": json.dumps(manifest).encode(),
    }


def move(
    log: LogBuilder, target: Path, bases: list[int], segment_id: str = SEGMENT_ID, topic_id: str = TOPIC_ID, **how: Any
) -> Path:
    """Write the objects of some segments of a log below a directory; returns the partition's."""
    topic, partition = log.topic_partition
    directory = target / f"{topic}-{topic_id}" / str(partition)
    directory.mkdir(parents=True, exist_ok=True)
    files = log.files()
    for base in bases:
        for suffix, data in segment_objects(files, base, **how).items():
            (directory / f"{offset_name(base)}-{segment_id}{suffix}").write_bytes(data)
    return directory


def remove_local(directory: Path, bases: list[int]) -> None:
    """Remove segments from a partition's directory, as a broker does when they are moved and expired locally."""
    for path in directory.iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) in bases and path.suffix != ".snapshot":
            path.unlink()


def copy_of(directory: Path, target: Path) -> Path:
    """Copy a directory."""
    return Path(shutil.copytree(directory, target))
