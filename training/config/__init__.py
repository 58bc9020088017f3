"""What a run is made of, and the YAML files that say so."""

from training.config.checks import check, foreign_keys
from training.config.differences import MAY_CHANGE, differences
from training.config.files import (
    DEFAULT_PRESET,
    PRESETS,
    add_sections,
    config_file,
    explain,
    load_config,
    nearest,
    read_config,
    to_yaml,
)
from training.config.keys import (
    SECTIONS,
    CleaningConfig,
    Config,
    DataConfig,
    ModelConfig,
    ScoringConfig,
    TokenizerConfig,
    TrainConfig,
)

__all__ = [
    "DEFAULT_PRESET",
    "MAY_CHANGE",
    "PRESETS",
    "SECTIONS",
    "CleaningConfig",
    "Config",
    "DataConfig",
    "ModelConfig",
    "ScoringConfig",
    "TokenizerConfig",
    "TrainConfig",
    "add_sections",
    "check",
    "config_file",
    "differences",
    "explain",
    "foreign_keys",
    "load_config",
    "nearest",
    "read_config",
    "to_yaml",
]
