"""The checkpoint never passes a row that is not settled, in whatever order rows are settled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.campaigns.checkpoint import Checkpoint, PendingRow, RowEnd
from producer.campaigns.contract import RunPlace


@given(st.data(), st.integers(min_value=0, max_value=60), st.integers(min_value=0, max_value=9))
def test_the_checkpoint_is_the_longest_settled_beginning(
    data: st.DataObject, rows: int, before: int
) -> None:
    start = RunPlace(place=before * 10, line=before, done=before, sent=before)
    checkpoint = Checkpoint(start)
    pending = [PendingRow(before + n, before + n, (before + n) * 10) for n in range(1, rows + 1)]
    for row in pending:
        checkpoint.take_up(row)
    for row in data.draw(st.permutations(pending)):
        row.end = data.draw(st.sampled_from(RowEnd))
        if data.draw(st.booleans()):
            checkpoint.advance()
            settled = 0
            for one in pending:
                if one.end is None:
                    break
                settled += 1
            reached = checkpoint.reached
            assert reached.done == before + settled
            assert reached.place == reached.line * 10 == reached.done * 10
            assert reached.sent + reached.bad + reached.repeated == reached.done
            assert len(checkpoint) == rows - settled
    checkpoint.advance()
    assert checkpoint.reached.done == before + rows
    for end in RowEnd:
        of_end = sum(one.end is end for one in pending)
        assert getattr(checkpoint.reached, end) - getattr(start, end) == of_end


@given(st.data(), st.integers(min_value=1, max_value=40))
def test_every_record_after_the_checkpoint_lies_behind_its_positions(
    data: st.DataObject, rows: int
) -> None:
    """A row that was published again has a later offset than rows after it."""
    checkpoint = Checkpoint(RunPlace(), {0: 0, 1: 0})
    pending = [PendingRow(n, n, n) for n in range(1, rows + 1)]
    for row in pending:
        checkpoint.take_up(row)
    offsets = {0: 0, 1: 0}
    some = data.draw(st.permutations(pending))[: data.draw(st.integers(0, rows))]
    for row in some:
        partition = data.draw(st.sampled_from([0, 1]))
        row.record, row.end = (partition, offsets[partition]), RowEnd.SENT
        offsets[partition] += 1
    checkpoint.advance()
    positions = checkpoint.positions()
    for row in pending[checkpoint.reached.done :]:
        if row.record is not None:
            assert positions[row.record[0]] <= row.record[1]


def test_a_row_out_of_turn_is_refused() -> None:
    checkpoint = Checkpoint(RunPlace(done=4))
    with pytest.raises(ValueError, match="row 6 does not follow row 4"):
        checkpoint.take_up(PendingRow(6, 6, 60))
