"""The relocation protocol: eight messages in order, one owner at any time, and a story when it is broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.manager.actions import RelocateGroups
from anabranch.manager.relocation import MOST_TURNS, Message, Relocation
from tests.oracle.profiles import examples

MOVE = RelocateGroups(family=0, groups=(3, 4), sender=1, receiver=2, bytes=2_500, reason="of a test")


def said(*messages: Message) -> Relocation:
    relocation = Relocation(MOVE)
    for n, message in enumerate(messages):
        relocation = relocation.say(message, float(n))
    return relocation


def test_a_move_has_the_eight_messages_of_the_paper() -> None:
    relocation = said(*Message)
    assert [message.value for message, _ in relocation.sent] == list(range(1, 9))
    assert relocation.is_done


@examples(50)
@given(st.lists(st.sampled_from(list(Message)), max_size=10))
def test_only_the_next_message_is_accepted(messages: list[Message]) -> None:
    relocation = Relocation(MOVE)
    for message in messages:
        if message == len(relocation.sent) + 1:
            relocation = relocation.say(message, 1.0)
        else:
            with pytest.raises(AnabranchError, match="a relocation cannot"):
                relocation.say(message, 1.0)


def test_a_broken_move_tells_its_story() -> None:
    relocation = said(Message.COMPUTE, Message.CHOSEN)
    with pytest.raises(AnabranchError, match=r"compute partitions to move at 0\.000, partitions to move at 1\.000"):
        relocation.say(Message.RECEIVED, 9.0)


def test_the_owner_changes_when_the_receiver_is_sent_the_state() -> None:
    order = list(Message)
    owners = [said(*order[:n]).owner for n in range(9)]
    assert owners == [1] * 6 + [2] * 3


def test_rows_are_held_back_from_the_deactivation_to_the_reactivation() -> None:
    order = list(Message)
    assert [said(*order[:n]).holds_back for n in range(9)] == [False] * 4 + [True] * 4 + [False]


@pytest.mark.parametrize(("pace", "steps"), [(None, 0), (2_500, 1), (1_000, 3), (1, MOST_TURNS), (10_000, 1)])
def test_a_pace_says_for_how_many_steps_the_receiver_reads_ahead(pace: int | None, steps: int) -> None:
    move = RelocateGroups(0, (1,), 0, 1, 2_500, "of a test", pace)
    relocation = Relocation.begin(move, 1.0, 2.0).deactivate(3.0)
    assert relocation.left == relocation.turns == steps
    for left in range(steps - 1, -1, -1):
        relocation = relocation.wait()
        assert relocation.left == left
    assert relocation.wait().left == 0


def test_a_move_under_way_survives_its_json() -> None:
    move = RelocateGroups(0, (1, 5), 0, 1, 2_500, "of a test", 1_000)
    relocation = Relocation.begin(move, 1.0, 2.0).deactivate(3.0)
    assert Relocation.from_json(json.loads(json.dumps(relocation.to_json()))) == relocation
