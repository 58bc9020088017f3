import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import docstring_parser
import pytest
import yaml

from kformer.errors import InputError
from training.config import (
    DEFAULT_PRESET,
    PRESETS,
    SECTIONS,
    CleaningConfig,
    Config,
    DataConfig,
    ModelConfig,
    ScoringConfig,
    TokenizerConfig,
    TrainConfig,
    check,
    config_file,
    load_config,
    to_yaml,
)
from training.run import main

ROOT = Path(__file__).resolve().parents[2]
KEYS = [
    (section, key.name) for section, kind in SECTIONS.items() for key in dataclasses.fields(kind)
]


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Runs `training.run` in an empty folder; gives its exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        status = main(list(arguments))
        return status, *capsys.readouterr()

    return command


@pytest.fixture
def refusal(command, tmp_path):
    """The one line that `training.run` refuses a command line with, having made nothing."""

    def refusal(*arguments):
        before = sorted(tmp_path.rglob("*"))
        status, out, err = command(*arguments)
        assert (status, out) == (2, "")
        assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n")
        assert sorted(tmp_path.rglob("*")) == before
        return err.removeprefix("error: ").strip()

    return refusal


def write(path, content):
    path.write_text(content)
    return path


@pytest.mark.parametrize("preset", sorted(path.stem for path in PRESETS.glob("*.yaml")))
def test_every_preset_can_be_trained(preset):
    config = load_config(config_file(preset))
    assert isinstance(config, Config)
    assert check(config) is config


def test_the_default_preset_exists():
    assert config_file(DEFAULT_PRESET).is_file()


def test_the_help_names_the_presets_that_exist(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    presets = capsys.readouterr().out.split("Presets:")[1].split("positional arguments:")[0]
    for preset in {"tiny", "small", "base", "big", *(path.stem for path in PRESETS.glob("*.yaml"))}:
        named = re.search(rf"\b{preset}\b", presets) is not None
        assert named == (PRESETS / f"{preset}.yaml").is_file(), preset


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_explained_where_it_is_defined(section):
    kind = SECTIONS[section]
    explained = {
        param.arg_name: param.description for param in docstring_parser.parse(kind.__doc__).params
    }
    assert list(explained) == [key.name for key in dataclasses.fields(kind)]
    assert all(explained.values())


# A value of each key that differs from its default.
OTHER = Config(
    DataConfig(
        train=["a b.tsv", "c*.tsv"], valid="v: #1.tsv", test="t.tsv", weights=[1.0, 0.5],
        source_key="translation.en", target_key="de", max_length=80, strict=True,
        static_shapes=True, cache="c d",
    ),
    CleaningConfig(
        max_characters=None, max_length_ratio=3.5, identical=False, duplicates="source",
        max_symbols=None, source_script="Latin", target_script=["Han", "Hiragana"], min_script=0.7,
        numbers=True, placeholders=True, held_out=False,
    ),
    TokenizerConfig(
        kind="bpe", vocab_size=5000, joint=False, min_frequency=3, sample=1000, sampling=0.1,
        file="a.model,b.model",
    ),
    ModelConfig(
        d_model=96, num_heads=3, d_ff=100, num_encoder_layers=1, num_decoder_layers=2,
        norm="post", activation="gelu", positions="learned", max_length=90, attention_bias=True,
        scale_embedding=False, tie="target", output_bias=True, dropout=0.0, attention_dropout=0.2,
        activation_dropout=0.3, attention="additive",
    ),
    TrainConfig(
        updates=700, batch_tokens=333, optimizer="adam", learning_rate=1e-7, schedule="noam",
        warmup_updates=17, label_smoothing=0.0, weight_decay=0.3, clip_norm=1.5,
        frozen=["a", "b"], accumulate=2, strategy="mirrored", validate_every=9,
        save_every=4, keep_checkpoints=5, best_by="chrf", max_left_out=6, deterministic=True,
        patience=3, max_minutes=2.5,
        precision="mixed_float16", seed=1234567890, keep_best=2, ema=0.9,
        profile_updates=5, source_vectors="v.npy,w.txt", target_vectors="v.gz",
    ),
    ScoringConfig(bleu_tokenize="zh", samples=0, beam_size=4, length_penalty=0.6),
)  # fmt: skip
# Keys that not every kind of model has.
RECURRENT = Config(
    data=DataConfig(static_shapes=True),
    train=TrainConfig(jit_compile=True, init_from="r"),
    model=ModelConfig(
        kind="recurrent", cell="gru", bidirectional=True, input_feeding=True, tie="none",
        embedding_dim=50,
    ),
)  # fmt: skip


def test_the_other_configs_differ_in_every_key():
    for section, key in KEYS:
        default, *others = (
            getattr(getattr(config, section), key) for config in (Config(), OTHER, RECURRENT)
        )
        assert any(other != default for other in others), f"{section}.{key}"


@pytest.mark.parametrize("config", [Config(), OTHER, RECURRENT])
def test_yaml_gives_back_the_configuration(config, tmp_path):
    assert load_config(write(tmp_path / "config.yaml", to_yaml(config))) == config


def test_yaml_gives_back_a_long_path_with_spaces(tmp_path):
    config = Config(DataConfig("/home/someone/" + "a folder with a name/" * 10 + "train.tsv"))
    assert load_config(write(tmp_path / "config.yaml", to_yaml(config))) == config


def test_yaml_explains_every_key_above_it():
    lines = to_yaml(OTHER).split("\n")
    for section, key in KEYS:
        start = lines.index(f"{section}:")
        place = next(i for i in range(start, len(lines)) if lines[i].startswith(f"  {key}:"))
        assert lines[place - 1].startswith("  # "), f"{section}.{key}"
    assert max(map(len, lines)) <= 100


def test_print_config_prints_what_would_be_trained_and_makes_nothing(command, tmp_path):
    status, out, err = command("tiny", "--print_config", "--train.updates", "77")
    assert (status, err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    config = load_config(write(tmp_path / "printed.yaml", out))
    tiny = load_config(config_file("tiny"))
    assert config == dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, updates=77))


def test_a_file_of_some_keys_leaves_the_others_at_their_defaults(command, tmp_path):
    write(
        tmp_path / "mine.yaml", "train:\n  learning_rate: 1e-4\n  updates: 300\nmodel: {d_ff: 9}\n"
    )
    _, out, _ = command("mine.yaml", "--print_config")
    config = load_config(write(tmp_path / "printed.yaml", out))
    assert config == Config(
        model=ModelConfig(d_ff=9), train=TrainConfig(learning_rate=1e-4, updates=300)
    )


def test_the_command_line_wins_over_the_file(command, tmp_path):
    write(tmp_path / "mine.yaml", "train: {updates: 300, seed: 5}\n")
    _, out, _ = command("mine.yaml", "--print_config", "--train.updates", "400")
    printed = yaml.safe_load(out)["train"]
    assert (printed["updates"], printed["seed"]) == (400, 5)


def test_a_wrong_command_line_is_refused_before_tensorflow_loads():
    script = (
        "import sys\nfrom training.run import main\n"
        "assert main(['tiny', '--train.updates', '0']) == 2\nassert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_preset_is_refused_with_the_nearest_and_all(refusal):
    text = refusal("tinny")
    assert "unknown preset 'tinny', did you mean tiny?" in text and "small" in text
    assert "did you mean" not in refusal("qqqqqq")


def test_a_configuration_file_that_is_not_there_is_named(refusal):
    assert refusal("mine.yaml") == "mine.yaml: no such configuration file"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--model.d_modle", "64"],
            "unknown option --model.d_modle, did you mean --model.d_model?",
        ),
        (["--trian.updates=5"], "unknown option --trian.updates, did you mean --train.updates?"),
        (["--overwirte"], "unknown option --overwirte, did you mean --overwrite?"),
        (["--train.updates", "many"], "--train.updates: Expected a int. Got value: many"),
        (["--train.updates", "2.5"], "--train.updates: Expected a int. Got value: 2.5"),
        (["--train.updates", "null"], "--train.updates"),
        (["--train", '{"updates": null}'], "train.updates must not be null"),
        (["--tokenizer.vocab_size", "1000000000000"], "tokenizer.vocab_size must be below"),
        (["--overw"], "unknown option --overw, did you mean --overwrite?"),
        (["--train.learning_rate", "fast"], "--train.learning_rate: Expected a float"),
        (["--tokenizer.joint", "maybe"], "--tokenizer.joint: Expected a bool"),
        (["--model.norm", "middle"], "--model.norm must be pre or post. Received: middle"),
        (["--train.updates"], "--train.updates: expected one argument"),
        (["small"], "small"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(refusal, arguments, expected):
    assert expected in refusal("tiny", *arguments)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("trian:\n  updates: 5\n", "unknown section trian, did you mean train?"),
        ("model:\n  d_modle: 5\n", "unknown key model.d_modle, did you mean d_model?"),
        ("train: 5\n", "section train must hold keys. Received: 5"),
        ("- train\n", "must hold sections"),
        ("train: {\n", "not YAML"),
        ("train:\n  updates: many\n", "train.updates: Expected a int. Got value: many"),
        ("train:\n  updates: 2.5\n", "train.updates: Expected a int. Got value: 2.5"),
        ("train:\n  seed: null\n", "train.seed"),
        ("[" * 5000, "too deeply"),
        ("model:\n  norm: middle\n", "model.norm must be pre or post. Received: middle"),
        ("model:\n  output_bias: 3\n", "model.output_bias: Expected a bool"),
        ("data:\n  train: 5\n", "data.train: Expected a str"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(refusal, tmp_path, content, expected):
    write(tmp_path / "mine.yaml", content)
    text = refusal("mine.yaml")
    assert expected in text and "mine.yaml" in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("train:\n  updates: many\n", "train.updates: Expected a int. Got value: many"),
        ("model:\n  norm: middle\n", "model.norm must be pre or post. Received: middle"),
    ],
)
def test_the_configuration_of_a_run_is_checked_like_one_to_train(tmp_path, content, expected):
    with pytest.raises(InputError, match=f"config.yaml.*{expected}"):
        load_config(write(tmp_path / "config.yaml", content))


def test_a_file_that_is_not_utf8_is_refused_by_name(refusal, tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"data:\n  train: caf\xe9.tsv\n")
    assert refusal("mine.yaml").startswith("mine.yaml: cannot be read")


AT_LEAST_ONE = [
    "data.max_length", "tokenizer.vocab_size", "tokenizer.min_frequency", "model.d_model",
    "model.num_heads", "model.d_ff", "model.num_encoder_layers", "model.num_decoder_layers",
    "train.updates", "train.batch_tokens", "train.warmup_updates", "train.validate_every",
    "train.patience", "train.profile_updates", "scoring.beam_size", "model.embedding_dim",
]  # fmt: skip
SHARES = [
    "model.dropout", "model.attention_dropout", "model.activation_dropout",
    "train.label_smoothing", "train.ema",
]  # fmt: skip
ABOVE_ZERO = ["train.learning_rate", "train.clip_norm", "train.max_minutes"]


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [(key, value, "must be at least 1") for key in AT_LEAST_ONE for value in ("0", "-3")]
    + [(key, value, "must be at least 0 and below 1") for key in SHARES for value in ("-0.1", "1")]
    + [(key, value, "must be above 0") for key in ABOVE_ZERO for value in ("0", "-1")]
    + [(key, "-1", "must not be negative") for key in ("train.seed", "train.keep_best")]
    + [("train.seed", "4294967296", "must be below 2**32")],
)
def test_a_value_out_of_range_is_refused_by_its_key(refusal, key, value, rule):
    text = refusal("tiny", f"--{key}={value}")
    assert text.startswith(key) and rule in text
    assert float(text.rpartition("Received: ")[2]) == float(value)


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"model.d_model": 66, "model.num_heads": 4}, ["model.d_model", "model.num_heads"]),
        ({"model.d_model": 63, "model.num_heads": 3}, ["model.d_model", "sinusoidal"]),
        (
            {"model.d_model": 63, "model.num_heads": 3, "model.positions": "sinusoidal_halves"},
            ["model.d_model", "sinusoidal"],
        ),
        ({"model.positions": "learned"}, ["model.max_length", "data.max_length"]),
        (
            {"model.positions": "learned", "model.max_length": 50, "data.max_length": 50},
            ["model.max_length", "data.max_length"],
        ),
        ({"tokenizer.joint": "false"}, ["model.tie", "tokenizer.joint"]),
        ({"train.updates": 20}, ["train.updates", "train.warmup_updates"]),
        ({"scoring.bleu_tokenize": "14a"}, ["scoring.bleu_tokenize"]),
        ({"model.activation": "rleu"}, ["model.activation"]),
        ({"model.cell": "gru"}, ["model.cell", "recurrent", "transformer"]),
        ({"model.attention": "none"}, ["model.attention", "recurrent"]),
        ({"model.kind": "recurrent", "model.norm": "post"}, ["model.norm", "transformer or"]),
        (
            {"model.kind": "recurrent", "model.attention": "none", "model.input_feeding": "true"},
            ["model.input_feeding", "model.attention"],
        ),
        ({"model.kind": "language_model", "tokenizer.joint": "false"}, ["tokenizer.joint"]),
        ({"model.embedding_dim": 50}, ["model.embedding_dim", "model.tie"]),
        ({"model.d_model": 62, "model.positions": "rotary"}, ["model.num_heads", "rotary"]),
        (
            {"model.positions": "rotary", "model.attention": "additive"},
            ["model.positions", "model.attention"],
        ),
        ({"train.source_vectors": "glove.txt"}, ["train.source_vectors", "model.tie"]),
        (
            {"train.source_vectors": "glove.txt", "model.kind": "language_model"},
            ["train.source_vectors", "language_model", "train.target_vectors"],
        ),
        (
            {
                "train.jit_compile": "true",
                "data.static_shapes": "true",
                "train.strategy": "mirrored",
            },
            ["train.jit_compile", "train.strategy"],
        ),
        (
            {"train.init_from": "r", "train.source_vectors": "v", "model.tie": "none"},
            ["train.init_from", "train.source_vectors"],
        ),
        ({"scoring.length_penalty": 0.6}, ["scoring.length_penalty", "scoring.beam_size"]),
    ],
)
def test_a_contradiction_is_refused_by_its_keys(refusal, options, keys):
    text = refusal("tiny", *(f"--{key}={value}" for key, value in options.items()))
    for key in keys:
        assert key in text


@pytest.mark.parametrize(
    "options",
    [
        {"model.positions": "learned", "model.max_length": 52, "data.max_length": 50},
        {"model.d_model": 63, "model.num_heads": 3, "model.positions": "none"},
        {"tokenizer.joint": "false", "model.tie": "target"},
        {"tokenizer.joint": "false", "model.tie": "none"},
        {"train.updates": 20, "train.schedule": "noam"},
        {"train.updates": 21},
        {"model.kind": "recurrent"},
        {"model.kind": "language_model"},
        {"model.positions": "rotary"},
        {"model.dropout": 0, "train.label_smoothing": 0, "scoring.samples": 0, "train.seed": 0},
        {"train.clip_norm": "null", "train.patience": "null", "train.max_minutes": "null"},
    ],
)
def test_what_does_not_contradict_is_accepted(command, options):
    arguments = (f"--{key}={value}" for key, value in options.items())
    status, _, err = command("tiny", "--print_config", *arguments)
    assert (status, err) == (0, "")


def test_a_file_of_ones_own_starts_from_the_default_preset():
    """So `--help`, which shows the defaults, shows what a run without options does."""
    assert load_config(config_file("small")) == Config()
