"""Access control in the tour: a broker that serves signed requests, and a user that may send to one topic alone."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orbitlog.access.credentials import Credentials
from orbitlog.cli.tour.tour_servers import PROGRAM, Server, TourFailed
from orbitlog.client.connection.connect import connect
from orbitlog.errors import ClientError, RemotingError

_PASSWORD = "shown-in-the-tour"  # noqa: S105 - a password of a broker that ends with the tour
_SETTINGS = ("authenticationEnabled=true", "authorizationEnabled=true")
ADMIN, USER, TOPIC, OTHER_TOPIC = "ann", "shop", "Orders", "Salaries"
_SEND_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Decisions:
    """Whether sends were accepted: of the user to its topic and to another one, with a wrong password, unsigned."""

    own_topic: bool
    other_topic: bool
    wrong_password: bool
    unsigned: bool

    @property
    def are_right(self) -> bool:
        return self.own_topic and not (self.other_topic or self.wrong_password or self.unsigned)


class TourAccess:
    """A broker with access control and one user; leaving the block ends it."""

    def __init__(self, directory: Path) -> None:
        self.store, users = directory / "secured", directory / "access.json"
        self.commands = (
            f"access user add {ADMIN} --super --password-stdin --file {users}",
            f"access user add {USER} --password-stdin --file {users}",
            f"access policy allow {USER} Topic:{TOPIC} Pub --file {users}",
        )
        for command in self.commands:
            _run(command.split())
        settings = [word for setting in (*_SETTINGS, f"accessFile={users}") for word in ("--set", setting)]
        words = ("up", "--store", str(self.store), "--name-server-port", "0", "--broker-port", "0", *settings)
        self._server = Server("broker with access control", words, directory / "secured.log")
        self._address = str(self._server.facts["name-server"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def decide(self) -> Decisions:
        """Send with and without permission, and return what was accepted."""
        asyncio.run(self._create_topics())
        known, wrong = Credentials(USER, _PASSWORD), Credentials(USER, "guessed")
        return Decisions(
            self._accepts(known, TOPIC), self._accepts(known, OTHER_TOPIC), self._accepts(wrong, TOPIC),
            self._accepts(None, TOPIC),
        )  # fmt: skip

    async def _create_topics(self) -> None:
        async with connect(f"rocketmq://{self._address}", credentials=Credentials(ADMIN, _PASSWORD)) as mq:
            for topic in (TOPIC, OTHER_TOPIC):
                await mq.admin.create_topic(topic)

    def _accepts(self, credentials: Credentials | None, topic: str) -> bool:
        async def send() -> bool:
            async with connect(f"rocketmq://{self._address}", credentials=credentials) as mq:
                try:
                    await mq.send(topic, "one", timeout=_SEND_SECONDS)
                except (RemotingError, ClientError):
                    return False
            return True

        return asyncio.run(send())


def _run(words: list[str]) -> None:
    done = subprocess.run([*PROGRAM, *words], input=_PASSWORD, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if done.returncode != 0:
        raise TourFailed(f"orbitlog {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
