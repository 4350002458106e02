"""A Prometheus of the tests, from Debian's package: it reads one address every second.

It is no server of all tests' own, since what it reads is the test's: each makes one.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.services.server import HOST, Server, free_port, need

CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: sparkbolt
    authorization: {{credentials: {token}}}
    static_configs:
      - targets: ["{target}"]
"""


class Prometheus(Server):
    """Reads ``http://TARGET/metrics``; its address is host:port."""

    def __init__(self, directory: str | Path, target: str, token: str) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._target, self._token = target, token

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        (self.directory / "prometheus.yml").write_text(CONFIG.format(target=self._target, token=self._token))

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = {
            "config.file": str(self.directory / "prometheus.yml"),
            "storage.tsdb.path": str(self.directory / "data"),
            "web.listen-address": self.address,
            "enable-feature": "exemplar-storage",
            "log.level": "warn",
        }
        return [need("prometheus", "prometheus"), *(f"--{name}={value}" for name, value in options.items())], {}

    def answers(self) -> bool:
        with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)

    def ask(self, what: str, **parameters: str) -> Any:
        """The data that its interface answers: ``query``, ``query_exemplars``, ``targets`` ..."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{what}?{query}", timeout=30) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]
