"""Datasets of Hugging Face: from the Hub, from files, or as `save_to_disk` left them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kformer.errors import InputError
from training.data.reading.names import Names, sides
from training.data.reading.texts import is_text, malformed, one_line
from training.data.rows import Row

PREFIX = "hf:"
_FORMS = "hf:NAME:SPLIT, hf:NAME:CONFIG:SPLIT, hf:FOLDER or hf:FOLDER:SPLIT"


class Columns:
    """The columns of a dataset that hold the two sides.

    Args:
        spec: `hf:NAME[:CONFIG]:SPLIT` or `hf:FOLDER[:SPLIT]`.
        names: The columns; a dot goes down into an object.

    Raises:
        InputError: `datasets` is not installed, the dataset cannot be loaded, the split has to be
            named, or a column is not there.
    """

    def __init__(self, spec: str, names: Names):
        self.spec = spec
        self.names = names
        self.dataset = _asked(spec, lambda: _load(spec))
        there = self.dataset.column_names
        needed = []
        for name in (names.source or "source", names.target or "target"):
            column = name if name in there else name.partition(".")[0]
            if column not in there:
                raise InputError(
                    f"{spec}: has no column {name!r}; name them: data.source_key, data.target_key. "
                    f"There are: {', '.join(_described(self.dataset.features))}"
                )
            needed.append(column)
        # Without what a dataset may turn its rows into, such as tensors.
        self.dataset = self.dataset.with_format(None).select_columns(sorted(set(needed)))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files the rows are in; none for a dataset in memory."""
        return tuple(Path(file["filename"]) for file in self.dataset.cache_files)

    def rows(self) -> Iterator[Row]:
        """The rows, numbered from 1; one without two strings is malformed.

        Raises:
            InputError: The dataset's files cannot be read.
        """
        source_of, target_of = sides(self.names)
        batches = self.dataset.iter(batch_size=1000)  # one by one is fifty times slower
        number = 0
        while (batch := _asked(self.spec, lambda: next(batches, None))) is not None:
            for values in zip(*batch.values(), strict=True):
                number += 1
                item = dict(zip(batch, values, strict=True))
                source, target = source_of(item), target_of(item)
                if is_text(source) and is_text(target):
                    yield Row(number, one_line(source), one_line(target))
                else:
                    yield malformed(number, repr(item))


def _asked(spec: str, ask: Callable[[], Any]) -> Any:
    """Whatever goes wrong in the library, network, disk or data, is for the user to put right."""
    try:
        return ask()
    except InputError:
        raise
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{spec}: cannot be read ({what[:300]})") from error


def _load(spec: str):
    try:
        import datasets  # second-long, and an extra
    except ImportError:
        raise InputError(
            f"{spec}: needs Hugging Face datasets; install it: pip install 'kformer[data]'"
        ) from None
    what = spec.removeprefix(PREFIX)
    folder, split = (what, None) if Path(what).is_dir() else what.rpartition(":")[::2]
    if folder and Path(folder).is_dir():
        try:
            dataset = datasets.load_from_disk(folder)
        except FileNotFoundError:  # it was not saved as a dataset, but may hold files of data
            dataset = datasets.load_dataset(folder)
        return _one_split(spec, dataset, split)
    name, *config, split = what.split(":") if ":" in what else (what, "")
    if not name or not split or len(config) > 1:
        raise InputError(f"{spec}: no such folder, and no dataset without a split; give {_FORMS}")
    if name.startswith((".", "/", "~")):
        raise InputError(f"{spec}: no such folder as {name}")
    return datasets.load_dataset(name, *config, split=split)


def _one_split(spec: str, dataset, split: str | None):
    if not isinstance(dataset, dict):
        if split is not None:
            raise InputError(f"{spec}: has no splits; leave out :{split}")
        return dataset
    if split is None and len(dataset) == 1:
        return next(iter(dataset.values()))
    if split not in dataset:
        raise InputError(f"{spec}: name one of its splits as hf:FOLDER:SPLIT: {', '.join(dataset)}")
    return dataset[split]


def _described(features: dict) -> Iterator[str]:
    """Names to choose from, those within objects with their dots."""
    for name, feature in features.items():
        inner = getattr(feature, "languages", None) or (
            feature if isinstance(feature, dict) else ()
        )
        yield from (f"{name}.{key}" for key in inner) if inner else (name,)
