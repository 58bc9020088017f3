"""How an experiment is read, and what is refused of one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kformer.errors import InputError
from training.compare.experiment import option_words, parse_words, read_experiment, slug
from training.compare.files import EXPERIMENTS, experiment_file
from training.config import load_config

WORDS = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=8)


def refusal(read, text, /, **given):
    with pytest.raises(InputError) as raised:
        read(text, **given)
    assert "\n" not in str(raised.value)
    return str(raised.value).partition(": ")[2]


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_experiments_can_be_read(file):
    given = {"vectors": "vectors.txt"} if "needs:" in file.read_text("utf-8") else {}
    experiment = read_experiment(file, given)
    assert experiment.title and experiment.question.endswith("?")
    assert all(len(variant.config.data.train) for variant in experiment.variants)
    # Variants that are the same would be trained for nothing.
    configs = [variant.config for variant in experiment.variants]
    assert all(configs.count(config) == 1 for config in configs)


def test_a_shipped_experiment_is_found_by_its_name_and_another_by_its_path(tmp_path):
    assert experiment_file("positions") == EXPERIMENTS / "positions.yaml"
    own = tmp_path / "own.yaml"
    own.write_text("")
    assert experiment_file(str(own)) == own
    with pytest.raises(InputError, match="unknown experiment 'position', did you mean positions"):
        experiment_file("position")
    with pytest.raises(InputError, match="nowhere.yaml: no such experiment file"):
        experiment_file("nowhere.yaml")


def test_a_variant_is_the_base_with_the_common_settings_and_its_own(read):
    text = """
    base: tiny
    settings: {train.updates: 100, model.dropout: 0.3}
    variants: {as it is:, other: {model.dropout: 0, model.norm: post}}
    """
    first, second = read(text).variants
    assert (first.name, second.name) == ("as it is", "other")
    tiny = load_config(EXPERIMENTS.parent / "presets" / "tiny.yaml")
    assert first.config.tokenizer == tiny.tokenizer
    assert (first.config.train.updates, first.config.model.dropout) == (100, 0.3)
    assert (second.config.train.updates, second.config.model.dropout) == (100, 0)
    assert (first.config.model.norm, second.config.model.norm) == ("pre", "post")


def test_what_is_left_out_has_defaults(read):
    experiment = read("base: tiny")
    assert (experiment.title, experiment.question, experiment.seeds) == ("widths", "", (1,))
    (variant,) = experiment.variants
    assert variant.name == "tiny" and list(variant.searches) == [""]
    assert variant.searches[""].words == ()


@settings(deadline=None, max_examples=30)
@given(
    updates=st.integers(100, 10**6),
    rate=st.floats(1e-12, 1e3),
    smoothing=st.floats(0, 0.99),
    cleaned=st.booleans(),
    frozen=st.lists(WORDS, min_size=1, max_size=3) | st.none(),
)
def test_values_mean_on_the_command_line_what_they_are(updates, rate, smoothing, cleaned, frozen):
    changed = {
        "train.updates": updates,
        "train.learning_rate": rate,
        "train.label_smoothing": smoothing,
        "cleaning.identical": cleaned,
        "train.frozen": frozen,
        "data.train": "some file.tsv",
    }
    config = parse_words(("tiny", *option_words(changed)))
    for name, value in changed.items():
        section, _, key = name.partition(".")
        assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold keys (title, "),
        ("[a]", "must hold keys (title, "),
        ("a: [", "not YAML ("),
        ("varients: {}", "unknown key varients, did you mean variants?"),
        ("seeds: 3", "seeds must be a list. Received: 3"),
        ("variants: {}", "variants must name at least one"),
        ("variants: {a: {}, a: {}}", "not YAML (a is given twice, again in line 1)"),
        ("variants: {no: {}}", "variants: a name must be text"),
        ("variants: {a: 3}", "variants: a must hold keys. Received: 3"),
        ("variants: {a b: {}, a  b: {}}", "variants: 'a b' and 'a  b' are too alike"),
        ("variants: {A: {}, a: {}}", "variants: 'A' and 'a' are too alike"),
        ("base: tinny", "base: unknown preset 'tinny', did you mean tiny?"),
        (
            "variants: {a: {model.positons: none}}",
            "variants: a: unknown key model.positons, did you mean model.positions?",
        ),
        ("settings: {updates: 3}", "settings: unknown key updates, did you mean train.updates?"),
        ("settings: {train.seed: 3}", "settings: train.seed is of each run: put it in seeds"),
        ("variants: {a: {model.d_model: x}}", "variants: a: model.d_model: Expected a int."),
        ("variants: {a: {model.d_model: {}}}", "variants: a: model.d_model must be a number,"),
        ("variants: {a: {model.dropout: 2}}", "variants: a: model.dropout must be at least 0"),
        (
            "variants: {a: {model.norm: null}}",
            "variants: a: model.norm must be pre or post. Rec",
        ),
        ("variants: {a: {data.test: b.tsv}}", "variants: a: data.test must be the same for all"),
        ("variants: {a: {data.train: $text}}", "variants: a: data.train: $text is not in needs."),
        ("needs: {text: 3}", "needs: text must say what it is. Received: 3"),
        ("seeds: []", "seeds must be different numbers. Received: []"),
        ("seeds: [1, 1]", "seeds must be different numbers. Received: [1, 1]"),
        ("seeds: [-1]", "seeds must be whole numbers from 0 to 2**31. Received: -1"),
        ("seeds: [true]", "seeds must be whole numbers from 0"),
        ("lengths: [0]", "lengths must be whole numbers from 1"),
        (
            "searches: {a: {beem_size: 4}}",
            "searches: a: unknown option beem_size, did you mean beam_size?",
        ),
        ("searches: {a: {n_best: 4}}", "searches: a: unknown option n_best"),
        ("searches: {a: {beam_size: x}}", "searches: a: argument --beam-size: invalid int"),
        ("searches: {a: {sample: 1}}", "searches: a: sample must be true or false. Received: 1"),
        (
            "searches: {a: {length_penalty: 1}}",
            "searches: a: --length-penalty needs --beam-size of at least 2",
        ),
    ],
)
def test_mistakes_are_told_in_one_line_that_names_where_they_are(read, text, message):
    assert refusal(read, text).startswith(message)


def test_what_an_experiment_needs_is_put_where_it_is_named(read):
    text = """
    base: tiny
    needs: {text: pairs to train on.}
    variants: {a: {data.train: $text}, b: {}}
    """
    message = refusal(read, text)
    assert message == "needs pairs to train on. Give --set text=..."
    first, second = read(text, text="my pairs.tsv").variants
    assert first.config.data.train == "my pairs.tsv" != second.config.data.train
    assert first.settings == {"data.train": "my pairs.tsv"}


def test_settings_of_the_command_line_are_for_all_variants(read):
    text = "{base: tiny, settings: {train.updates: 100}, variants: {a: {}, b: {model.dropout: 0}}}"
    experiment = read(text, **{"train.updates": "200"})
    assert [variant.config.train.updates for variant in experiment.variants] == [200, 200]
    message = refusal(read, text, **{"model.dropout": "0.1"})
    assert message.startswith("--set model.dropout: is what the variant b is about")
    with pytest.raises(InputError, match="--set: unknown key train.update, did you mean"):
        read(text, **{"train.update": "1"})


def test_searches_are_those_of_the_translating_command(read):
    text = """
    base: tiny
    searches: {greedy: {}, beam 4: {beam_size: 4, length_penalty: 0.6}, drawn: {sample: true}}
    """
    searches = read(text).variants[0].searches
    assert list(searches) == ["greedy", "beam 4", "drawn"]
    assert searches["beam 4"].words == ("--beam-size=4", "--length-penalty=0.6")
    assert (searches["beam 4"].parsed.beam_size, searches["beam 4"].parsed.length_penalty) == (
        4, 0.6,
    )  # fmt: skip
    assert searches["drawn"].parsed.sample


def test_without_searches_a_run_translates_as_it_is_scored(read):
    (variant,) = read("{base: tiny, settings: {scoring.beam_size: 3}}").variants
    assert variant.searches[""].parsed.beam_size == 3


@given(WORDS)
def test_names_of_files_have_only_what_all_systems_take(name):
    assert slug(name) and not set(slug(name)) & set(' ,/\\:*?"<>|') and slug(name)[0] not in "-."
