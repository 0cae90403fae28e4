"""Tables of a page for people: columns that shrink, or are left out, where the page is narrower than they are."""

from __future__ import annotations

from scheduler.cli.say import fill, page_width, paint

TYPE_CHECKING = False
if TYPE_CHECKING:
    Cell = str | tuple[str, str]
    """What stands in a column: text, or text and its colour."""


LEAST = 4
"""The columns that a text keeps of which a number beside it needs the room."""


class Column:
    """One column: its head, its width, and `before`, the blanks in front of it. `right`: it ends at its right edge.

    It may shrink to `least` columns. Where all that may shrink has shrunk, the column with the lowest `drop` is left
    out first; 0 never is.
    """

    __slots__ = ("before", "drop", "head", "least", "right", "width")

    def __init__(
        self, head: str, width: int, *, before: int = 0, right: bool = False, least: int = 0, drop: int = 0
    ) -> None:
        self.head, self.width, self.before, self.right = head, width, before, right
        self.least, self.drop = least or width, drop


class Table:
    """Columns as they fit into `room`, the page's width unless given."""

    def __init__(self, *columns: Column, room: int | None = None) -> None:
        room = page_width() if room is None else room
        self._columns = columns
        kept = list(columns)
        while sum(each.before + each.least for each in kept) > room and any(each.drop for each in kept):
            kept.remove(min((each for each in kept if each.drop), key=lambda each: each.drop))
        self._widths = {id(each): each.width for each in kept}
        while sum(each.before + self._widths[id(each)] for each in kept) > room:
            widest = max(kept, key=lambda each: self._widths[id(each)] - each.least)
            if self._widths[id(widest)] <= widest.least:
                break
            self._widths[id(widest)] -= 1

    def left_out(self) -> list[str]:
        """The heads of the columns that the page has no room for."""
        return [each.head for each in self._columns if id(each) not in self._widths]

    def head(self) -> str:
        """The line above the rows."""
        return paint(self._line([each.head for each in self._columns]), "bold")

    def row(self, *cells: Cell) -> str:
        """One line; a cell for each column, those that are left out too."""
        return self._line(list(cells))

    def _line(self, cells: list[Cell]) -> str:
        texts = [cell if isinstance(cell, tuple) else (cell, "") for cell in cells]
        told = []
        for column, (text, colour), width in zip(self._columns, texts, self._in_row(texts), strict=True):
            if width is not None:
                told.append(" " * column.before + paint(_filled(column, text, width), colour))
        return "".join(told).rstrip()

    def _in_row(self, texts: list[tuple[str, str]]) -> list[int | None]:
        """How wide each cell is; a number that needs more than its column takes it from texts, those after it first."""
        widths = [self._widths.get(id(each)) for each in self._columns]
        for at, column in enumerate(self._columns):
            own = widths[at]
            over = len(texts[at][0]) - own if column.right and own is not None else 0
            for other in (*range(at + 1, len(widths)), *range(at)):
                beside, taken = widths[other], self._columns[other]
                if over > 0 and own is not None and beside is not None and not taken.right:
                    given = min(over, beside - min(beside, LEAST))
                    widths[other], over, own = beside - given, over - given, own + given
            widths[at] = own
        return widths


def _filled(column: Column, text: str, width: int) -> str:
    return f"{text:>{width}}" if column.right else fill(text, width)
