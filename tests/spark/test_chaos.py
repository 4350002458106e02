"""Ten kills of the campaign that ``scripts/chaos`` runs: every kind of victim, two of the moments."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import line_of
from tests.chaos.campaign import Campaign

pytestmark = [pytest.mark.spark, pytest.mark.campaign]


def test_ten_kills_lose_nothing_and_repeat_nothing() -> None:
    campaign = Campaign(seed=1, kills=10, tell=lambda event: print(line_of(event)))
    outcome = campaign.run()
    assert not outcome.wrong, f"{outcome.wrong}; logs and checkpoint are in {campaign.directory}"
    assert outcome.kills == 10
    assert outcome.settled == 2
    assert {"worker", "daemon", "planner", "driver", "jvm"} <= set(outcome.victims)
    assert outcome.moments.keys() == {"staged", "committed"}
    assert outcome.starts >= 4
