"""
The cluster's metadata as a source of settings: finds it, checks that it means this topic, reads broker settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from cleaner.config.table import TOPIC_SETTINGS
from cleaner.errors import CleanerError, ConfigError
from cleaner.format.metadata import MetadataImage
from cleaner.settings.file_state import FileState, file_state
from cleaner.settings.given import Given
from cleaner.settings.layers import Layer, LayerScope
from cleaner.settings.metadata_log import METADATA_LOG, find_metadata_log, newest_segment, read_metadata_log
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.meta_properties import read_meta_properties
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import META_PROPERTIES


class MetadataLook:
    """
    The directories where a metadata log may be.

    A new snapshot or segment changes its directory, and records are appended to the newest segment only; so these two
    are checked, and the directory is listed only after it changed.

    Args:
        fs: the file system.
        named: directories that may be a metadata log or contain one, in the order of search.
        log_dirs: directories that may only contain one, searched after them. They change all the time.
        directory: the metadata log that was found; None: none.
    """

    def __init__(self, fs: FileSystem, named: Sequence[Path], log_dirs: Sequence[Path], directory: Path | None) -> None:
        self._fs = fs
        self._directory = directory
        self._candidates = [path for place in named for path in (place / METADATA_LOG, place)]
        self._candidates += [place / METADATA_LOG for place in log_dirs]
        self._listed_as: FileState | None = None
        self._newest: str | None = None

    def states(self) -> tuple[object, ...]:
        """Return the current state: equal as long as the same metadata log is found and has not changed."""
        states: list[object] = []
        for candidate in self._candidates:
            states.append(file_state(self._fs, candidate))
            if candidate == self._directory:
                break
        if self._directory is not None:
            states.append(self._newest_state(self._directory))
        return tuple(states)

    def _newest_state(self, directory: Path) -> tuple[object, ...]:
        state = file_state(self._fs, directory)
        if state is None:
            return (None,)
        if state != self._listed_as:
            try:
                self._newest = newest_segment(self._fs.list_dir(directory))
            except (OSError, CleanerError):
                return (state, None)
            self._listed_as = state
        return (state, None if self._newest is None else file_state(self._fs, directory / self._newest))


# Broker settings that a cluster may change at run time; for others only the file counts.
DYNAMIC_BROKER_KEYS = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.backoff.ms",
    "message.max.bytes",
    "producer.id.expiration.ms",
)
_METADATA_VERSION = "metadata.version"
# A topic's broker setting is dynamic under the first of its names.
_DYNAMIC_TOPIC_KEYS = frozenset(setting.synonyms[0].name for setting in TOPIC_SETTINGS.values() if setting.synonyms)


class Cluster:
    """
    The available metadata; without any it knows no topic and has no settings.

    Args:
        fs: the file system.
        log_dir: the log dir, which may contain a metadata log and has the node id; None: no log dir.
        given: `--metadata-dir`: the metadata log, or the directory it is in.
        broker: the broker settings of the command, for `metadata.log.dir` and the node id.
    Raises:
        ConfigError: no metadata log is in `given`.
        CorruptCheckpointError: the metadata log or `meta.properties` is damaged.
    """

    def __init__(self, fs: FileSystem, log_dir: Path | None, given: Path | None, broker: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        self.image = MetadataImage()
        configured = broker.get("metadata.log.dir", "").strip()
        # Without `metadata.log.dir` a broker keeps it in the first of its log dirs.
        first = next((broker[key].split(",")[0].strip() for key in ("log.dirs", "log.dir") if key in broker), "")
        named = [given] if given is not None else [Path(configured)] if configured else []
        log_dirs = [] if given is not None else [path for path in (log_dir, Path(first) if first else None) if path]
        found = (find_metadata_log(fs, place) for place in (*named, *log_dirs))
        directory = next((place for place in found if place is not None), None)
        # Before reading: a write during the read is then seen as a change.
        self._look = MetadataLook(fs, named, log_dirs, directory)
        self.read_states = self._look.states()
        if given is not None and directory is None:
            raise ConfigError("--metadata-dir", given, "there is no metadata log in it")
        if given is None and configured and find_metadata_log(fs, Path(configured)) is None:
            self.warnings.append(f"metadata.log.dir={configured}: there is no metadata log in it")
        self.is_known = directory is not None
        self.dynamic_layers: list[Layer] = []
        if directory is not None:
            reading = read_metadata_log(fs, directory)
            self.image = reading.image
            self.warnings += reading.warnings
            self.dynamic_layers = self._read_dynamic(_node_id(fs, log_dir, broker))

    def topic_layer(self, topic: str) -> Layer:
        """Return the settings of a topic; call `is_same_topic` first."""
        return Layer("cluster metadata", LayerScope.TOPIC, self.image.topic_configs.get(topic, {}))

    def replicas(self, topic_id: UUID) -> int | None:
        """Return the largest number of replicas of a topic's partitions; None: unknown."""
        return max(self.image.replicas.get(topic_id, {}).values(), default=None)

    @property
    def metadata_level(self) -> int | None:
        """The finalized level of `metadata.version`; None: unknown."""
        return self.image.feature_levels.get(_METADATA_VERSION)

    def dynamic_broker_settings(self) -> dict[str, Given]:
        """Return the process's settings that the cluster sets; this node's settings win over those of all nodes."""
        merged: dict[str, Given] = {}
        for layer in reversed(self.dynamic_layers):
            merged |= {
                key: Given(text, layer.origin) for key, text in layer.values.items() if key in DYNAMIC_BROKER_KEYS
            }
        return merged

    def is_same_topic(self, topic: str, topic_id: UUID | None, warnings: list[str]) -> bool:
        """Tell whether the metadata means this topic, not another one that had the same name."""
        known_id = self.image.topic_ids.get(topic)
        if known_id is not None and known_id == topic_id:
            return True
        if known_id is not None:
            mine = "none" if topic_id is None else format_uuid(topic_id)
            warnings.append(
                f"the cluster metadata has topic id {format_uuid(known_id)}, partition.metadata {mine}: "
                "its settings there are not used"
            )
        elif self.is_known:
            warnings.append("the cluster metadata does not have this topic")
        return False

    def states(self) -> tuple[object, ...]:
        """Return the current state of the metadata log; `read_states` is its state when it was read."""
        return self._look.states()

    def _read_dynamic(self, node_id: str | None) -> list[Layer]:
        """Return the broker settings in the metadata: this node's, then those of all nodes."""
        resources = [("", "cluster metadata (all brokers)")]
        if node_id is not None:
            resources.insert(0, (node_id, f"cluster metadata (broker {node_id})"))
        layers = []
        for resource, origin in resources:
            given = self.image.broker_configs.get(resource, {})
            dynamic = {k: v for k, v in given.items() if k in _DYNAMIC_TOPIC_KEYS or k in DYNAMIC_BROKER_KEYS}
            layers.append(Layer(origin, LayerScope.BROKER, dynamic, names_topic_settings=False))
        return layers


def _node_id(fs: FileSystem, log_dir: Path | None, broker: Mapping[str, str]) -> str | None:
    meta = read_meta_properties(fs, log_dir / META_PROPERTIES) if log_dir is not None else None
    if meta is not None and meta.node_id is not None:
        return str(meta.node_id)
    return next((broker[key].strip() for key in ("node.id", "broker.id") if key in broker), None)
