"""Which policies are trusted enough to clean by."""

from __future__ import annotations

import pytest

from cleaner.app.trust import PolicyStanding, standing
from cleaner.config.values import TopicConfig
from cleaner.policy.reasons import Reason
from cleaner.settings import ResolvedTopic
from cleaner.settings.sources import SetOption, Sources


def resolved(policy: str, *, trusted: bool = False, unscoped_set: bool = False) -> ResolvedTopic:
    config = TopicConfig.from_mapping({"cleanup.policy": policy})
    return ResolvedTopic(config, {"cleanup.policy": "somewhere"}, trusted, unscoped_set, ())


@pytest.mark.parametrize(
    ("topic", "is_named", "trust_default", "expected"),
    [
        pytest.param(resolved("compact", trusted=True), False, False, PolicyStanding(), id="said-of-this-topic"),
        pytest.param(resolved("compact"), True, False, PolicyStanding(), id="named"),
        pytest.param(resolved("compact,delete"), True, False, PolicyStanding(), id="compact-and-delete"),
        pytest.param(
            resolved("compact"), False, True, PolicyStanding(refuses_keyless=True), id="default-trusted-if-keyed"
        ),
        pytest.param(
            resolved("compact"), False, False, PolicyStanding(Reason.POLICY_NOT_TRUSTED), id="default-not-trusted"
        ),
        pytest.param(
            resolved("compact", unscoped_set=True),
            False,
            True,
            PolicyStanding(Reason.POLICY_NOT_TRUSTED),
            id="unscoped-set-never",
        ),
        pytest.param(resolved("compact", unscoped_set=True), True, False, PolicyStanding(), id="unscoped-set-named"),
        pytest.param(
            resolved("delete", trusted=True), True, True, PolicyStanding(Reason.NOT_COMPACTED), id="delete-never"
        ),
        pytest.param(
            resolved("", trusted=True), True, True, PolicyStanding(Reason.NOT_COMPACTED), id="empty-policy-never"
        ),
    ],
)
def test_topic_is_cleaned_as_its_policy_is_known(
    topic: ResolvedTopic, is_named: bool, trust_default: bool, expected: PolicyStanding
) -> None:
    """A topic that is not allowed says why and where its policy comes from."""
    found = standing(topic, is_named=is_named, trust_default=trust_default)
    assert (found.why, found.refuses_keyless) == (expected.why, expected.refuses_keyless)
    assert found.is_allowed or "somewhere" in found.reason


def test_settings_of_a_call_are_parted_into_the_topic_s_and_the_broker_s() -> None:
    """The topic's own names count as `--set` for it; everything else as a `server.properties`."""
    sources = Sources.of_call("t", {"cleanup.policy": "compact", "log.cleaner.threads": "2"}, None, "/m")
    assert list(sources.sets) == [SetOption("t", "cleanup.policy", "compact")]
    assert sources.config == {"log.cleaner.threads": "2"}
    assert str(sources.metadata_dir) == "/m"
