"""Learning-rate schedules with a warm-up. `step` counts updates, from 0."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("kformer")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The paper's: scale * d_model^-0.5 * min(n^-0.5, n * warmup^-1.5), n the update from 1.

    Args:
        d_model: width of the model.
        warmup_updates: updates until the peak, scale / sqrt(d_model * warmup_updates).
        scale: factor on the whole.

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 5.3.
    """

    def __init__(self, d_model: int, warmup_updates: int = 4000, scale: float = 1.0):
        _check_positive("warmup_updates", warmup_updates)
        self.d_model = d_model
        self.warmup_updates = warmup_updates
        self.scale = scale

    def __call__(self, step):
        update = _update(step)
        rate = tf.minimum(tf.math.rsqrt(update), update * self.warmup_updates**-1.5)
        return self.scale * self.d_model**-0.5 * rate

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_updates": self.warmup_updates,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable("kformer")
class InverseSqrtSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Up in a line to the peak, then down with the inverse square root of the update.

    The same curve as `NoamSchedule`, by the rate at its peak.

    Args:
        peak: highest rate, reached at update `warmup_updates`.
        warmup_updates: updates until the peak.
    """

    def __init__(self, peak: float, warmup_updates: int = 4000):
        _check_positive("warmup_updates", warmup_updates)
        self.peak = peak
        self.warmup_updates = warmup_updates

    def __call__(self, step):
        share = _update(step) / self.warmup_updates
        return self.peak * tf.minimum(share, tf.math.rsqrt(share))

    def get_config(self):
        return {"peak": self.peak, "warmup_updates": self.warmup_updates}


@keras.saving.register_keras_serializable("kformer")
class LinearSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Up in a line to the peak, then down in a line to nothing at the end of training.

    Made for runs whose length is known: the small steps at the end are worth more than an
    average of checkpoints.

    Args:
        peak: highest rate, reached at update `warmup_updates`.
        warmup_updates: updates until the peak.
        total_updates: updates of the whole run; the last one has a rate just above 0.
    """

    def __init__(self, peak: float, warmup_updates: int, total_updates: int):
        _check_positive("warmup_updates", warmup_updates)
        if total_updates <= warmup_updates:
            raise ValueError(
                "`total_updates` must be more than `warmup_updates`. Received: "
                f"total_updates={total_updates}, warmup_updates={warmup_updates}"
            )
        self.peak = peak
        self.warmup_updates = warmup_updates
        self.total_updates = total_updates

    def __call__(self, step):
        update = _update(step)
        left = (self.total_updates + 1 - update) / (self.total_updates + 1 - self.warmup_updates)
        return self.peak * tf.maximum(0.0, tf.minimum(update / self.warmup_updates, left))

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_updates": self.warmup_updates,
            "total_updates": self.total_updates,
        }


def _update(step):
    # Keras hands over an int64 variable that counts from 0, where no rate may be 0 or infinite.
    return tf.cast(step, tf.float32) + 1


def _check_positive(name, value):
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")
