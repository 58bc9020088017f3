import sys

import pytest

from training.data.reading.sources import resolve

datasets = pytest.importorskip("datasets")

SIDES = {"source": ["a", "b\nc"], "target": ["x", "y"]}


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


@pytest.fixture
def save(tmp_path):
    def save(columns, name="saved", features=None) -> str:
        dataset = datasets.Dataset.from_dict(columns, features=features)
        dataset.save_to_disk(tmp_path / name)
        return f"hf:{tmp_path / name}"

    return save


@pytest.fixture
def splits(tmp_path):
    dataset = datasets.Dataset.from_dict(SIDES)
    both = datasets.DatasetDict(train=dataset, test=dataset.select([1]))
    both.save_to_disk(tmp_path / "splits")
    return f"hf:{tmp_path / 'splits'}"


def test_a_saved_dataset_is_read_and_its_files_are_known(save, rows, tmp_path):
    spec = save(SIDES)
    assert rows(spec) == [(1, "a", "x"), (2, "b c", "y")]
    found = resolve(spec)
    assert found.name == spec and found.parts[0].unit == "row"
    assert found.files and all(file.parent == tmp_path / "saved" for file in found.files)


def test_columns_can_be_named_down_into_objects(save, pairs, error):
    languages = datasets.Features(id=datasets.Value("int64"), t=datasets.Translation(["en", "de"]))
    columns = {"id": [1, 2], "t": [{"en": "a", "de": "b"}, {"en": "c", "de": None}]}
    spec = save(columns, features=languages)
    whole, half = pairs(spec, "t.en", "t.de")
    assert whole == ("a", "b")
    assert half[1] is None and half[0].startswith("{'t': {") and "'en': 'c'" in half[0]
    assert pairs(spec, "t.de", "id")[0][1] is None
    message = error(spec)
    assert "has no column 'source'" in message and "id, t.en, t.de" in message


def test_a_row_without_two_strings_is_malformed(save, rows):
    spec = save({"source": ["a", None, "c"], "target": ["x", "y", None], "other": [1, 2, 3]})
    assert [(row[0], row[2]) for row in rows(spec)] == [(1, "x"), (2, None), (3, None)]


def test_more_than_a_batch_is_numbered_through(save, rows):
    texts = [str(i) for i in range(2500)]
    spec = save({"source": texts, "target": texts})
    assert rows(spec) == [(i + 1, str(i), str(i)) for i in range(2500)]


def test_a_format_that_was_saved_with_it_is_set_aside(tmp_path, rows):
    dataset = datasets.Dataset.from_dict(SIDES).with_format("numpy")
    dataset.save_to_disk(tmp_path / "saved")
    assert rows(f"hf:{tmp_path / 'saved'}")[0] == (1, "a", "x")


def test_a_split_is_named_when_there_are_several(splits, rows, error):
    assert rows(f"{splits}:test") == [(1, "b c", "y")]
    for spec in (splits, f"{splits}:dev"):
        assert "name one of its splits" in error(spec) and "train, test" in error(spec)


def test_a_split_of_what_has_none_is_refused(save, error):
    assert "has no splits; leave out :train" in error(save(SIDES) + ":train")


def test_a_folder_of_data_files_is_read(write, tmp_path, rows):
    write("data/train.jsonl", '{"source": "a", "target": "b"}\n')
    write("data/test.jsonl", '{"source": "c", "target": "d"}\n')
    assert rows(f"hf:{tmp_path / 'data'}:test") == [(1, "c", "d")]


@pytest.mark.parametrize(
    ("spec", "called"),
    [
        ("hf:opus100:train", [("opus100",), "train"]),
        ("hf:Helsinki-NLP/opus-100:de-en:train[:1%]", None),
        ("hf:Helsinki-NLP/opus-100:de-en:test", [("Helsinki-NLP/opus-100", "de-en"), "test"]),
    ],
)
def test_a_name_goes_to_the_hub(monkeypatch, rows, error, spec, called):
    calls = []

    def load_dataset(*args, split):
        calls.extend([args, split])
        return datasets.Dataset.from_dict(SIDES)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    if called is None:
        assert "give hf:NAME:SPLIT" in error(spec)
    else:
        assert rows(spec) == [(1, "a", "x"), (2, "b c", "y")] and resolve(spec).files == ()
        assert calls[:2] == called


def test_whatever_fails_in_the_library_is_one_line(monkeypatch, error):
    def load_dataset(*args, **options):
        raise ConnectionError("Couldn't reach 'no/such'\non the Hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    message = error("hf:no/such:train")
    assert "hf:no/such:train: cannot be read (ConnectionError: Couldn't reach" in message


def test_damaged_files_are_one_line(save, error, tmp_path):
    spec = save(SIDES)
    [data] = (tmp_path / "saved").glob("*.arrow")
    data.write_bytes(data.read_bytes()[:100])
    assert f"{spec}: cannot be read (" in error(spec)


@pytest.mark.parametrize("what", ["", ":", "name", "name:", ":train", "a:b:c:d", "./no:train"])
def test_what_is_no_dataset_is_refused_without_asking_the_hub(error, what):
    assert f"hf:{what}: no such folder" in error(f"hf:{what}")


def test_the_extra_is_named_when_it_is_missing(monkeypatch, error):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'kformer[data]'" in error("hf:name:train")
