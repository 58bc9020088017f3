"""What a run may be gone on with."""

import dataclasses

from training.config.keys import SECTIONS, Config

MAY_CHANGE = {
    "data.cache", "train.updates", "train.save_every", "train.keep_checkpoints", "train.keep_best",
    "train.patience", "train.profile_updates",
    "train.max_left_out", "train.max_minutes", "train.accumulate", "train.strategy",
    "scoring.samples",
}  # fmt: skip
"""Keys that a run may go on with other values of."""


def differences(old: Config, new: Config) -> list[str]:
    """Where a run that goes on would be another: each key with both values."""
    found = []
    for section in SECTIONS:
        for key in dataclasses.fields(SECTIONS[section]):
            before, after = (getattr(getattr(config, section), key.name) for config in (old, new))
            name = f"{section}.{key.name}"
            # A run knows what `auto` became.
            same = before == after or (name == "train.precision" and after == "auto")
            if not same and name not in MAY_CHANGE:
                found.append(f"{name} {before!r}, here {after!r}")
    return found
