import keras
import numpy as np
import pytest
import tensorflow as tf

from kformer.schedules import InverseSqrtSchedule, LinearSchedule, NoamSchedule

WARMUP, TOTAL = 40, 200
# Steps count from 0: step WARMUP - 1 is update WARMUP.
STEPS = [0, 1, 2, WARMUP // 2, WARMUP - 2, WARMUP - 1, WARMUP, WARMUP + 1, 3 * WARMUP, TOTAL - 1]


def noam(update):
    return 2.0 * 512**-0.5 * min(update**-0.5, update * WARMUP**-1.5)


def inverse_sqrt(update):
    return 7e-4 * min(update / WARMUP, (WARMUP / update) ** 0.5)


def linear(update):
    # From the peak at update WARMUP to 0 at the update after the last.
    return np.interp(update, [0, WARMUP, TOTAL + 1], [0.0, 7e-4, 0.0])


SCHEDULES = {
    "noam": (NoamSchedule(512, WARMUP, scale=2.0), noam, 2.0 * (512 * WARMUP) ** -0.5),
    "inverse_sqrt": (InverseSqrtSchedule(7e-4, WARMUP), inverse_sqrt, 7e-4),
    "linear": (LinearSchedule(7e-4, WARMUP, TOTAL), linear, 7e-4),
}


@pytest.fixture(params=SCHEDULES)
def case(request):
    return SCHEDULES[request.param]


def rates(schedule, steps):
    return np.array([float(schedule(tf.constant(step, tf.int64))) for step in steps])


def test_rate_follows_its_formula(case):
    schedule, formula, _ = case
    expected = [formula(float(step + 1)) for step in STEPS]
    np.testing.assert_allclose(rates(schedule, STEPS), expected, rtol=1e-5)


def test_the_peak_is_at_the_last_update_of_the_warm_up(case):
    schedule, _, peak = case
    all_rates = rates(schedule, range(TOTAL))
    assert all_rates.argmax() == WARMUP - 1
    assert all_rates.max() == pytest.approx(peak, rel=1e-5)


def test_no_update_of_the_run_has_a_rate_of_zero_or_infinity(case):
    all_rates = rates(case[0], range(TOTAL))
    assert np.isfinite(all_rates).all() and (all_rates > 0).all()


def test_linear_stays_at_zero_past_the_end():
    assert rates(LinearSchedule(1.0, 2, 10), [10, 11, 1000]).tolist() == [0, 0, 0]


def test_a_warm_up_of_one_update_starts_at_the_peak():
    for schedule in (InverseSqrtSchedule(0.5, 1), LinearSchedule(0.5, 1, 3)):
        assert rates(schedule, [0])[0] == pytest.approx(0.5)


def test_a_schedule_comes_back_from_its_config_the_same(case):
    schedule = case[0]
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(restored) is type(schedule)
    np.testing.assert_array_equal(rates(restored, STEPS), rates(schedule, STEPS))


def test_a_schedule_counts_the_updates_of_its_optimizer(case):
    schedule, formula, _ = case
    optimizer = keras.optimizers.SGD(schedule)
    weight = keras.Variable(0.0)
    optimizer.build([weight])
    for update in (1, 2, 3):
        before = float(weight)
        optimizer.apply([tf.constant(1.0)], [weight])
        assert before - float(weight) == pytest.approx(formula(update), rel=1e-3)


@pytest.mark.parametrize(
    "build",
    [
        lambda: NoamSchedule(512, 0),
        lambda: InverseSqrtSchedule(1e-3, 0),
        lambda: LinearSchedule(1e-3, 0, 5),
    ],
)
def test_a_warm_up_of_no_update_is_refused(build):
    with pytest.raises(ValueError, match=r"`warmup_updates` must be at least 1\. Received: .*0"):
        build()


@pytest.mark.parametrize("total", [9, 10])
def test_a_linear_schedule_without_a_way_down_is_refused(total):
    with pytest.raises(ValueError, match=rf"`total_updates` must be more than.*={total}"):
        LinearSchedule(1e-3, 10, total)
