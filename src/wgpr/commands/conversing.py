"""`wgpr stream`: a conversation that is saved, reported on, and ended in order."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from wgpr.commands.console import counted, interruptible, say
from wgpr.commands.learning import save
from wgpr.commands.live import Answer, Conversation, Line, LineError, Reader, arriving
from wgpr.storage.atomic import require_place


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
    require_place(output)
    n_reported, n_saved, last_saved = 0, 0, time.monotonic()
    is_begun = hasattr(conversation.model, "_state")
    with interruptible():
        try:
            for lines in _lines_read(conversation.reader, descriptor, strict):
                _answer_aloud(conversation.hear(lines))
                if not is_begun and conversation.n_rows:
                    is_begun = True
                    say(f"learning {conversation.reader.target} from {', '.join(conversation.reader.inputs or ())}")
                if conversation.n_rows >= n_reported + report_every:
                    n_reported = conversation.n_rows
                    _report(conversation)
                if conversation.n_rows > n_saved and time.monotonic() > last_saved + save_every:
                    n_saved, last_saved = conversation.n_rows, time.monotonic()
                    conversation.model.save(output)
        except KeyboardInterrupt:
            say("interrupted")
        finally:
            if conversation.n_rows:
                save(conversation.model, output)
    if conversation.n_rows > n_reported or not conversation.n_rows:
        _report(conversation)


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
