"""How far ahead a worker claims."""

from __future__ import annotations

_HORIZON = 0.25  # seconds of work to hold in advance


class Pace:
    """Claims ahead what the handlers will get through in a quarter of a second, never more than two batches:
    one to be worked on while the other is on its way.

    Fast handlers so always find work waiting, while slow ones (an agent that runs for minutes) do not sit on events
    that another worker could start now.

    A worker that has just started takes one event and waits until a handler has ended, or :meth:`warmed_up` is called.
    An event that kills its worker comes first again after each restart: it then dies alone, and does not spend the
    attempts of others that were merely held with it.
    """

    def __init__(self, concurrency: int, batch: int) -> None:
        self._concurrency = concurrency
        self._batch = batch
        self._mean: float | None = None  # seconds per handled event, exponentially weighted
        self._cold = True

    def handled(self, seconds: float) -> None:
        """Note how long one handler took."""
        self._cold = False
        self._mean = seconds if self._mean is None else self._mean * 0.9 + seconds * 0.1

    def warmed_up(self) -> None:
        """The worker has been alive for a while."""
        self._cold = False

    def ask(self, unfinished: int) -> int:
        """How many events to claim now, with this many waiting or running; 0 when it is too early."""
        if self._cold:
            return 0 if unfinished else 1
        ahead = 0
        if self._mean is not None:
            ahead = min(2 * self._batch, int(_HORIZON * self._concurrency / max(self._mean, 1e-9)))
        room = self._concurrency + ahead - unfinished
        # A whole batch at a time, or as much as there will ever be room for: refilling by ones would cost a statement
        # for each event.
        if room >= min(self._batch, max(1, ahead)) or unfinished < self._concurrency:
            return max(0, min(self._batch, room))
        return 0
