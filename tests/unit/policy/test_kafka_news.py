"""Which releases of Kafka are reported as new."""

from __future__ import annotations

from tools.kafka_news import releases_in, unknown

METADATA = """\
<metadata><groupId>org.apache.kafka</groupId><artifactId>kafka-storage</artifactId>
  <versioning><latest>4.5.0</latest><release>4.5.0</release><versions>
    <version>3.9.2</version> <version>4.3.0</version> <version>4.3.1</version> <version>4.3.2</version>
    <version>4.4.0</version> <version>4.5.0-rc1</version> <version>4.5.0</version> <version>4.10.0</version>
  </versions></versioning></metadata>
"""


def test_releases_are_read_from_the_metadata_without_candidates() -> None:
    """`latest` and `release` name one of the list; a candidate is no release."""
    assert sorted(releases_in(METADATA)) == [
        (3, 9, 2),
        (4, 3, 0),
        (4, 3, 1),
        (4, 3, 2),
        (4, 4, 0),
        (4, 5, 0),
        (4, 10, 0),
    ]
    assert releases_in("<html>not found</html>") == set()


def test_news_are_releases_above_those_compared() -> None:
    """News are patches of a known line, and every newer line; not older lines, nor what was compared."""
    assert unknown(releases_in(METADATA), ["4.3.1", "4.4.0"]) == ["4.3.2", "4.5.0", "4.10.0"]
    assert unknown([(3, 9, 2), (4, 2, 7), (4, 3, 1), (4, 4, 0)], ["4.3.1", "4.4.0"]) == []
