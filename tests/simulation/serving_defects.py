"""Planted defects of resumed producers, stored places and transactions over partitions; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner.format.coordinator_records import TransactionStatus
from cleaner.log import group_offsets, log_producer
from cleaner.log.coordinator import Coordinator
from cleaner.log.group_offsets import OffsetStore
from cleaner.log.manager_producer import ManagerProducer
from cleaner.log.transactional_ids import Identity, TransactionalIds, new_producer_id
from tests.simulation.planting import breaks


@breaks(TransactionalIds, "resume")
def resume_forgets_the_sequence(_real: Any, *_args: Any) -> Any:
    """A producer that is resumed is a new one."""
    return Identity(new_producer_id(), 0), True


@breaks(log_producer.LogProducer, "append")
def resumed_appends_are_always_new(real: Any, producer: Any, records: Any, *, sequence: Any = None) -> Any:
    """What is sent again after a restart is appended again."""
    return real(producer, records, sequence=sequence if producer.name is None else None)


@breaks(OffsetStore, "commit")
def offset_commit_is_outside_of_the_transaction(real: Any, store: Any, *args: Any) -> Any:
    """It counts at once, however the transaction ends."""
    return real(store, *args[:-1], None)


@breaks(ManagerProducer, "on_commit")
def offset_counts_before_its_transaction_is_committed(_real: Any, _producer: Any, call: Any) -> None:
    """In memory, for this process."""
    call()


@breaks(Coordinator, "decide")
def markers_are_written_before_the_decision_is_durable(_real: Any, coordinator: Any, record: Any) -> None:
    """A power cut may leave a marker in one partition, and no decision for the others."""
    coordinator._note(record)
    coordinator._decided[record.producer_id] = record


@breaks(Coordinator, "verdict")
def the_marker_of_one_partition_is_forgotten_after_a_crash(
    real: Any, coordinator: Any, partition: Any, *args: Any
) -> Any:
    """What is decided is aborted in the last partition."""
    found = [max(each.partitions) for each in coordinator._decided.values() if each.partitions]
    return real(coordinator, partition, *args) and partition not in found


@breaks(Coordinator, "load")
def decisions_are_not_read_at_the_opening(_real: Any, _coordinator: Any) -> None:
    """All that is open is aborted, though one partition may have its marker."""


@breaks(Coordinator, "end")
def the_end_is_noted_before_the_markers_are_on_disk(real: Any, coordinator: Any, record: Any, *, commit: bool) -> Any:
    """A power cut may then lose a marker whose decision nobody looks for."""
    noted = coordinator._note(replace(record, status=TransactionStatus.COMPLETE_COMMIT, partitions=frozenset()))
    noted.durable.result()
    return real(coordinator, record, commit=commit)


@breaks(ManagerProducer, "_force_to_disk")
def a_commit_is_decided_before_its_records_are_on_disk(_real: Any, _producer: Any) -> None:
    """The decision survives a power cut, and some of the records do not."""


@breaks(group_offsets, "_remember")
def committed_offset_goes_backwards(real: Any, places: Any, group: Any, partition: Any, place: Any) -> None:
    """The first one stays."""
    if (group, partition) not in places:
        real(places, group, partition, place)
