"""Documents beside the steps of a checkpoint: each is written as a whole, and the last one counts.

extra.json    the last step without a batch that was announced: its kind, its clean-up, its number among these
run.json      the record of the last run: settings, streams, queries, sinks
orders.json   the costs of orders of joins when they were measured last; for people
"""

from __future__ import annotations

from pathlib import Path

from anabranch.checkpoint.step import Announced, Delivery, End, Step, clean_up_from_json, clean_up_to_json
from anabranch.errors import CheckpointError
from anabranch.state.store import Json, encode_document, read_document, write_file

EXTRA = "extra.json"
RUN = "run.json"
ORDERS = "orders.json"


class Records:
    """The documents of one checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        """The records of the checkpoint in this folder."""
        self._folder = folder

    def announce(self, step: Announced, epoch: int) -> None:
        """Announce a step without a batch, before it is begun."""
        body = {
            "number": step.number,
            "ending": isinstance(step, End),
            "plan": step.plan,
            "clean_up": clean_up_to_json(step.clean_up),
            "epoch": epoch,
        }
        write_file(self._folder / EXTRA, encode_document(body))

    def announced(self, last: Step | None) -> Announced | None:
        """The step without a batch that was announced and not committed, by the last committed step."""
        path = self._folder / EXTRA
        if last is None or not path.exists():
            return None
        body = read_document(path)
        kind = End if body["ending"] else Delivery
        step = kind(body["number"], clean_up_from_json(body["clean_up"]), body["plan"])
        # If a newer driver made the last step, a step that an older one announced after it must not be made.
        return step if last.extra < step.number and last.epoch <= body["epoch"] else None

    def write_run(self, body: Json) -> None:
        """Write the record of the run."""
        write_file(self._folder / RUN, encode_document(body))

    def has_run(self) -> bool:
        """Whether there is a record of a run."""
        return (self._folder / RUN).exists()

    def run(self) -> Json:
        """The record of the last run."""
        if not self.has_run():
            raise CheckpointError(f"{self._folder} has no record of what its run was made of; start its program again")
        return read_document(self._folder / RUN)

    def write_orders(self, body: Json) -> None:
        """Write the costs of orders of joins."""
        write_file(self._folder / ORDERS, encode_document(body))

    def orders(self) -> Json | None:
        """The costs of orders of joins when they were measured last; None if they never were."""
        path = self._folder / ORDERS
        return read_document(path) if path.exists() else None
