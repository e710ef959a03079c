"""O-29 and O-62: cells that take longer than other people's limits. `long_cells` runs them beside the other cases."""

from conftest import LongCells


def test_o29_no_hidden_limit(long_cells: LongCells):
    cell = long_cells.plain.result()
    assert (cell.status, cell.text) == (200, "'done'")


def test_o62_a_quiet_stream_is_kept_alive(long_cells: LongCells):
    """A proxy on the way cuts connections that are silent for 30 s; the cell is silent for 75 s."""
    lines = long_cells.streamed.result().splitlines()
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert events == ["result", "end"], "a comment is no event"
    assert any("'done'" in line for line in lines if line.startswith("data: "))
    assert sum(line.startswith(":") for line in lines) >= 5, "at most 15 s apart"
