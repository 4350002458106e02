"""The campaign on Kafka that ``scripts/chaos --topology kafka`` runs, with few messages."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import kafka_line_of
from tests.chaos.kafka_campaign import POISON, KafkaCampaign

pytestmark = [pytest.mark.service, pytest.mark.campaign]

MESSAGES = 20_000


def test_kills_of_driver_and_broker_lose_nothing_and_no_offset_passes_unfinished_messages() -> None:
    campaign = KafkaCampaign(1, MESSAGES, 2, 1, lambda event: print(kafka_line_of(event)), stops=["anew"])
    outcome = campaign.run()
    assert not outcome.wrong, f"{outcome.wrong}; logs and checkpoint are in {campaign.directory}"
    assert (outcome.driver_kills, outcome.broker_kills, outcome.clean_stops) == (2, 1, 1)
    assert outcome.processed + outcome.dead_letters == outcome.messages
    assert (outcome.dead_letters, outcome.lag) == (POISON, 0)
    assert outcome.checks > 20
