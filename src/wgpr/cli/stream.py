"""`wgpr stream`: a conversation that is saved, reported on, and ended in order."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from wgpr.cli.console import counted, interruptible, say
from wgpr.cli.learn import save
from wgpr.cli.lines import Answer, Conversation, Line, LineError, Reader, arriving
from wgpr.io.files import check_destination


def converse(
    conversation: Conversation,
    descriptor: int,
    output: Path,
    *,
    save_every: float,
    report_every: int,
    strict: bool,
) -> None:
    """Learn and answer what arrives until it ends or is interrupted; save to `output` now and then, and at the end.

    Parameters
    ----------
    descriptor : of the pipe that lines come from.
    save_every : seconds between two savings; report_every : rows between two reports.
    strict : stop at the first line that cannot be read; otherwise it is reported and left out.
    """
    check_destination(output)
    keeper = _Keeper(conversation, output, save_every, report_every)
    with interruptible():
        try:
            for lines in _lines_read(conversation.reader, descriptor, strict):
                _answer_aloud(conversation.hear(lines))
                keeper.look()
        except KeyboardInterrupt:
            say("interrupted")
        finally:
            keeper.finish()


class _Keeper:
    """Saves and reports while a conversation goes on, when it is time for it."""

    def __init__(self, conversation: Conversation, output: Path, save_every: float, report_every: int) -> None:
        self._conversation, self._output = conversation, output
        self._save_every, self._report_every = save_every, report_every
        self._is_named = hasattr(conversation.model, "_state")
        self._n_reported = self._n_saved = 0
        self._last_saved = time.monotonic()

    def look(self) -> None:
        n_rows = self._conversation.n_rows
        if n_rows and not self._is_named:
            self._is_named = True
            reader = self._conversation.reader
            say(f"learning {reader.target} from {', '.join(reader.inputs or ())}")
        if n_rows >= self._n_reported + self._report_every:
            self._n_reported = n_rows
            _report(self._conversation)
        if n_rows > self._n_saved and time.monotonic() > self._last_saved + self._save_every:
            self._n_saved, self._last_saved = n_rows, time.monotonic()
            self._conversation.model.save(self._output)

    def finish(self) -> None:
        if self._conversation.n_rows:
            save(self._conversation.model, self._output)
        if self._conversation.n_rows > self._n_reported or not self._conversation.n_rows:
            _report(self._conversation)


def _answer_aloud(answers: Iterable[Answer]) -> None:
    """Whoever asks waits for the answer: it must not stay in a buffer."""
    for answer in answers:
        sys.stdout.write(answer.text() + "\n")
    sys.stdout.flush()


def _lines_read(reader: Reader, descriptor: int, strict: bool) -> Iterator[list[Line]]:
    number = 0
    for texts in arriving(descriptor):
        lines: list[Line] = []
        for text in texts:
            number += 1
            try:
                line = reader.read(text)
            except LineError as error:
                if strict:
                    yield lines
                    raise LineError(f"standard input, line {number} {error}; correct it") from error
                say(f"standard input, line {number} {error}; it is left out")
                continue
            if line is not None:
                lines.append(line)
        yield lines


def _report(conversation: Conversation) -> None:
    words = f"{counted(conversation.n_rows, 'row')} learned, {counted(conversation.n_answers, 'question')} answered"
    if conversation.scores.n_rows:
        scores = conversation.scores.result()
        words += (
            f"; predicted before learned: RMSE {scores.rmse:.4g}, NLPD {scores.nlpd:.4g}, "
            f"{scores.coverage:.1%} within the 95 % interval; {counted(conversation.model.n_models_, 'model')}"
        )
    say(words)
