"""A sequence that never changes, and of which a changed copy costs next to nothing however long it is."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

Item = TypeVar("Item")

# Items on a board. A copy copies one board and the list of boards.
_WIDTH = 256


class Shelf(Sequence[Item]):
    """Items in boards of fixed width."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        items = tuple(items)
        self._boards = tuple(items[first : first + _WIDTH] for first in range(0, len(items), _WIDTH))
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        board, within = divmod(range(self._length)[place], _WIDTH)
        return self._boards[board][within]

    def __iter__(self) -> Iterator[Item]:
        for board in self._boards:
            yield from board

    def with_item(self, place: int, item: Item) -> "Shelf[Item]":
        """The same with this item at `place`, in place of one or behind the last."""
        if not 0 <= place <= self._length:
            raise IndexError(f"there is no place {place} on a shelf of {self._length}")
        number, within = divmod(place, _WIDTH)
        board = self._boards[number] if number < len(self._boards) else ()
        changed: Shelf[Item] = Shelf()
        changed._boards = (
            *self._boards[:number],
            (*board[:within], item, *board[within + 1 :]),
            *self._boards[number + 1 :],
        )
        changed._length = max(self._length, place + 1)
        return changed
