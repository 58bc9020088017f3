"""What ends a training: enough updates, no time left, no progress, a signal, broken numbers."""

import hashlib
import signal
import time
from collections.abc import Callable, Sequence

import keras
import numpy as np

from kformer.errors import InputError
from training.callbacks.best import Best
from training.callbacks.keep import Keeper


class UpdateLimit(keras.callbacks.Callback):
    """Ends training, after a last validation, at a number of updates.

    Args:
        updates: of the optimizer, which skips steps that overflow in float16.
    """

    def __init__(self, updates: int):
        super().__init__()
        self.updates = updates

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations.numpy()) >= self.updates:
            self.model.stop_training = True


class TimeLimit(keras.callbacks.Callback):
    """Ends training early enough that the last validation and the test are done in time.

    Args:
        seconds: wall time from `began` to the end of the run.
        began: when the run started, by `time.perf_counter`.
        measure: what is done to the texts of a validation, and in the end to those of the test.
        valid: the texts of the validation.
        test: those of the test.
    """

    # Texts measured before the first round to learn how long a validation takes.
    TRIED = 64

    def __init__(
        self,
        seconds: float,
        began: float,
        measure: Callable[[Sequence[str]], object],
        valid: Sequence[str],
        test: Sequence[str],
    ):
        super().__init__()
        self.deadline = began + seconds
        self.measure = measure
        self.valid = valid
        # Validation and test by the work they are; a tenth for loading the best model.
        share = _characters(test) / max(_characters(valid), 1)
        self._closings = 1.1 + share
        self._validation = 0.0

    def on_train_begin(self, logs=None):
        # An untrained model translates up to the limit of length: longer than it ever will.
        spread = self.valid[:: max(1, len(self.valid) // self.TRIED)]
        self.measure(spread)  # Traces, which happens once.
        began = time.perf_counter()
        self.measure(spread)
        each = (time.perf_counter() - began) / len(spread)
        self._validation = each * len(self.valid)

    def on_test_begin(self, logs=None):
        self._validation_began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self._validation = time.perf_counter() - self._validation_began

    def on_train_batch_end(self, batch, logs=None):
        if time.perf_counter() + self._closings * self._validation > self.deadline:
            self.model.stop_training = True


class PatienceLimit(keras.callbacks.Callback):
    """Ends training when so many rounds in a row brought no better model.

    Args:
        rounds: how many.
        best: what knows.
    """

    def __init__(self, rounds: int, best: Best):
        super().__init__()
        self.rounds = rounds
        self.best = best

    def on_epoch_end(self, epoch, logs=None):
        if self.best.rounds_since_best >= self.rounds:
            self.model.stop_training = True


class TrainingInterrupt(Exception):  # noqa: N818  (like KeyboardInterrupt, no error)
    """A signal ended training, and a checkpoint is saved."""

    def __init__(self, signal_number: int):
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class Signals(keras.callbacks.Callback):
    """Saves a checkpoint and ends training when the process is asked to end, or another worker is.

    An update or a validation that is under way is finished first; the second time the signal does
    what it usually does. Comes last among the callbacks, and is used in a `with` statement around
    `fit`.

    Args:
        keeper: what saves.
        any_of: tells of each flag whether any worker has it set.
    """

    CAUGHT = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, keeper: Keeper, any_of: Callable[..., list[bool]]):
        super().__init__()
        self.keeper = keeper
        self.any_of = any_of
        self._received: int | None = None

    def __enter__(self):
        self._usual = {number: signal.signal(number, self._note) for number in self.CAUGHT}
        return self

    def __exit__(self, *error):
        self._give_back()

    def on_train_batch_end(self, batch, logs=None):
        self._agree()
        # The last batch of a round, or of training, is followed by a validation.
        ends = self.model.stop_training or not self.keeper.batches % self.keeper.round_batches
        if self._received is not None and not ends:
            self.keeper.save()
            raise TrainingInterrupt(self._received)

    def on_epoch_end(self, epoch, logs=None):
        self._agree()
        if self._received is not None:
            raise TrainingInterrupt(self._received)

    def _agree(self) -> None:
        """What one worker was told, all do: else some would wait for the others for ever."""
        stop, interrupted, terminated = self.any_of(
            bool(self.model.stop_training),
            self._received == signal.SIGINT,
            self._received == signal.SIGTERM,
        )
        self.model.stop_training = stop
        if interrupted or terminated:
            self._received = signal.SIGINT if interrupted else signal.SIGTERM

    def _note(self, number, frame):
        self._received = number
        self._give_back()
        print("\nsaving a checkpoint; again stops at once", flush=True)

    def _give_back(self):
        for number, usual in self._usual.items():
            signal.signal(number, usual)


class FiniteGuard(keras.callbacks.Callback):
    """Ends training when so many updates in a row had a gradient that is no number.

    Such updates never reach the weights: the optimizer leaves them out.

    Args:
        limit: how many.
        batch_at: gives the batch of a number, as training used it.
        to_text: gives the texts of source ids, int (batch, length); where the source of a line
            is empty, those of its labels.
        keeper: what knows the number of the batch.
    """

    def __init__(
        self,
        limit: int,
        batch_at: Callable[[int], tuple],
        to_text: Callable[[np.ndarray], Sequence[str]],
        keeper: Keeper,
    ):
        super().__init__()
        self.limit = limit
        self.batch_at = batch_at
        self.to_text = to_text
        self.keeper = keeper

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        if int(optimizer.left_out_in_a_row.numpy()) < self.limit:
            return
        number = self.keeper.batches
        (source, _), labels = self.batch_at(number - 1)
        digest = hashlib.blake2b(source.tobytes() + labels.tobytes(), digest_size=8).hexdigest()
        longest = int((labels != 0).sum(axis=1).argmax())
        row = slice(longest, longest + 1)
        text = self.to_text(source[row])[0] or self.to_text(labels[row])[0]
        raise InputError(
            f"training diverged: {self.limit} updates in a row had a gradient that is no number "
            f"and were left out. The last was of batch {number} ({digest}), whose longest "
            f"sentence is {text[:80]!r}, at the learning rate "
            f"{float(optimizer.learning_rate):.3g}. Lower train.learning_rate or set "
            f"train.clip_norm; the last checkpoint is good"
        )


def _characters(texts: Sequence[str]) -> int:
    return sum(map(len, texts))
