"""From a configuration to all that training needs of its text, made once and kept in the cache.

Nothing here loads TensorFlow, so that the memory is there for the text, and a second run is told
in a moment what it has.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from kformer.errors import InputError
from kformer.quiet import import_tensorflow
from kformer.subwords.adopt import adopt
from kformer.subwords.learn import byte_model, learn
from kformer.vocabulary_files import SUFFIXES, vocabulary_files
from training.config import Config, TokenizerConfig
from training.data import cleaning, store
from training.data.cache import Cache, default_cache
from training.data.corpus import CleanCorpus, Sources, clean_corpus, find_sources
from training.data.encoding import Encoders, load_encoders
from training.data.progress import say, shown
from training.data.rows import Pair
from training.data.splits import PARTS
from training.data.store import TokenStore
from training.data.tokenising import build_store

# Validation pairs are not left out for their length; this only bounds a line gone wrong, whose
# attention weights would fill the memory.
_LONGEST_SCORED = 2_000


@dataclass(frozen=True)
class PreparedText:
    """The corpus as training uses it.

    Args:
        corpus: its cleaned text.
        folder: its vocabularies in `tokenizer/` and its tokens in `train/` and `valid/`.
        reused: whether all of it was there already.
    """

    corpus: CleanCorpus
    folder: Path
    reused: bool

    @property
    def tokenizer(self) -> Path:
        """The folder of the vocabularies."""
        return self.folder / "tokenizer"

    @cached_property
    def train(self) -> TokenStore:
        return TokenStore.open(self.folder / "train")

    @cached_property
    def valid(self) -> TokenStore:
        return TokenStore.open(self.folder / "valid")

    def load_encoders(self) -> Encoders:
        return load_encoders(self.tokenizer)


def prepare_text(config: Config) -> PreparedText:
    """Reads and cleans the corpus, learns the vocabulary and tokenises, as far as this was not
    done before for the same text and the same settings.

    Raises:
        InputError: the corpus or a vocabulary cannot be read, nothing is left of it, or the cache
            cannot be written.
    """
    cache = Cache(config.data.cache or default_cache())
    sources = find_sources(config.data, lines_too=config.model.kind == "language_model")
    if sources.of_lines and config.train.best_by not in (None, "loss"):
        raise InputError(
            f"train.best_by {config.train.best_by}: lines of one language have no translations; "
            "give loss, or null"
        )
    hashes = {
        file: cache.file_hash(file)
        for part in PARTS
        for source in getattr(sources, part) or ()
        for file in source.files
    }
    corpus_folder, _ = cache.folder(
        "corpus",
        _causes_of_corpus(config, sources, hashes),
        partial(_clean, config, sources, cache, hashes),
    )
    corpus = CleanCorpus(corpus_folder)
    files = _vocabulary_files(config.tokenizer)
    folder, reused = cache.folder(
        "tokens",
        {
            "corpus": corpus_folder.name,
            "tokenizer": asdict(replace(config.tokenizer, sampling=None)),
            "files": [cache.file_hash(file) for file in files],
            "max_length": config.data.max_length,
            "longest_scored": _LONGEST_SCORED,
            "format": store.FORMAT,
        },
        partial(_tokenize, config, corpus, files),
    )
    prepared = PreparedText(corpus, folder, reused)
    if config.tokenizer.sampling is not None:
        if not all(encoder.can_sample for encoder in prepared.load_encoders()):
            raise InputError(
                "tokenizer.sampling needs unigram or bpe vocabularies: others cut a text in one "
                "way only"
            )
    if config.model.positions == "learned":
        _refuse_too_long(config, prepared)
    return prepared


def _clean(
    config: Config, sources: Sources, cache: Cache, hashes: dict[Path, str], folder: Path
) -> None:
    say("reading and cleaning ...")
    clean_corpus(sources, config.cleaning, config.data.strict, folder)
    for file, known in hashes.items():
        if cache.file_hash(file) != known:
            raise InputError(f"{file}: changed while it was read; start again when it is done")


def _causes_of_corpus(config: Config, sources: Sources, hashes: dict[Path, str]) -> dict:
    """All that the cleaned text depends on."""

    def content(source) -> list:
        # What lies in no files is read anew each time.
        return [
            [part.name, [hashes[file] for file in part.files] or secrets.token_hex(8)]
            for part in source.parts
        ]

    return {
        "version": cleaning.VERSION,
        "sources": {
            part: [[source.name, content(source)] for source in getattr(sources, part) or ()]
            for part in PARTS
        },
        "keys": [config.data.source_key, config.data.target_key],
        "cleaning": asdict(config.cleaning),
        "strict": config.data.strict,
    }


def _tokenize(config: Config, corpus: CleanCorpus, files: list[Path], folder: Path) -> None:
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    if files:
        names = ("joint",) if len(files) == 1 else ("source", "target")
        for name, file in zip(names, files, strict=True):
            _use(file, tokenizer / f"{name}{file.suffix}")
    else:
        say("learning the vocabulary ...")
        _learn(config.tokenizer, corpus, tokenizer)
    say("tokenising ...")
    load = partial(load_encoders, tokenizer)
    build_store(
        shown(corpus.pairs("train"), "tokenising"),
        load,
        folder / "train",
        config.data.max_length,
        corpus_pairs=corpus.report.corpus_pairs,
    )
    try:
        build_store(corpus.pairs("valid"), load, folder / "valid", _LONGEST_SCORED)
    except InputError as error:
        raise InputError(f"validation text: {error}") from error


def _vocabulary_files(config: TokenizerConfig) -> list[Path]:
    if config.file is None:
        return []
    names = [config.file]
    if not config.joint and not Path(config.file).is_dir():
        names = config.file.split(",")
    files = [Path(name.strip()) for name in names]
    if files[0].is_dir():
        files = _files_of_run(files[0], config.joint)
    for file in files:
        if not file.is_file():
            hint = "; two files need tokenizer.joint false" if "," in str(file) else ""
            raise InputError(f"tokenizer.file: {file}: no such file{hint}")
        if file.suffix not in SUFFIXES:
            raise InputError(
                f"tokenizer.file: {file}: must be a .model of SentencePiece or a .txt of words"
            )
    return files


def _files_of_run(folder: Path, joint: bool) -> list[Path]:
    """The vocabularies in a run folder, or in its `tokenizer`."""
    places = [place for place in (folder / "tokenizer", folder) if place.is_dir()]
    try:
        files = vocabulary_files(places[0])
    except InputError as error:
        raise InputError(f"tokenizer.file: {error}") from error
    if joint != ("joint" in files):
        names = " and ".join(path.name for path in files.values())
        raise InputError(
            f"tokenizer.file: {folder}: holds {names}, so tokenizer.joint must be "
            f"{str(not joint).lower()}"
        )
    return list(files.values())


def _use(file: Path, target: Path) -> None:
    """Takes over a vocabulary that was learned elsewhere."""
    content = file.read_bytes()
    if file.suffix == ".model":
        try:
            content = adopt(content)
        except ValueError as error:
            raise InputError(f"tokenizer.file: {file}: {error}") from error
    else:
        import_tensorflow()
        from kformer.text import WordTokenizer

        WordTokenizer.load(file)
    target.write_bytes(content)


def _learn(config: TokenizerConfig, corpus: CleanCorpus, folder: Path) -> None:
    def pairs() -> Iterator[Pair]:
        return shown(corpus.pairs("train"), "reading for the vocabulary")

    if config.joint:
        texts = (text for pair in pairs() for text in pair if text)
        _learn_one(config, texts, folder / "joint")
    else:
        _learn_one(config, (pair.source for pair in pairs()), folder / "source")
        _learn_one(config, (pair.target for pair in pairs()), folder / "target")


def _learn_one(config: TokenizerConfig, texts: Iterable[str], path: Path) -> None:
    try:
        _learn_into(config, texts, path)
    except InputError as error:
        # Its arguments are named like the keys.
        raise InputError(f"tokenizer.{error}") from error


def _learn_into(config: TokenizerConfig, texts: Iterable[str], path: Path) -> None:
    if config.kind == "word":
        # Words are split in the graph and nowhere else.
        import_tensorflow()
        from kformer.text import WordTokenizer

        tokenizer = WordTokenizer.learn(texts, config.vocab_size, config.min_frequency)
        tokenizer.save(path.with_suffix(".txt"))
        return
    if config.kind == "byte":
        model = byte_model()
    else:
        model = learn(texts, config.vocab_size, config.kind, max_sentences=config.sample)
    path.with_suffix(".model").write_bytes(model)


def _refuse_too_long(config: Config, prepared: PreparedText) -> None:
    positions = config.model.max_length
    one_sequence = config.model.kind == "language_model"
    if one_sequence:
        _refuse_too_long_together(config, prepared)
    encoders = prepared.load_encoders()
    for part in ("valid", "test"):
        where = getattr(config.data, part) or config.data.train
        for number, pair in enumerate(prepared.corpus.pairs(part), 1):
            lengths = [
                int(encoder.encode([text])[1][0]) + 1
                for encoder, text in zip(encoders, pair, strict=True)
            ]
            length = sum(lengths) if one_sequence else max(lengths)
            if length > positions:
                text = pair[lengths.index(max(lengths))]
                raise InputError(
                    f"{where}: {part} pair {number} ({text[:60]!r}) has {length} tokens, the end "
                    f"included; model.max_length is {positions}"
                )


def _refuse_too_long_together(config: Config, prepared: PreparedText) -> None:
    """Where the target stands behind its source, both share the learned positions."""
    train, limit = prepared.train, config.data.max_length
    if config.tokenizer.sampling is None:
        needed = int((train.source_lengths + train.target_lengths).max())
    else:
        # A text may be split into as many tokens as are allowed.
        needed = (1 if train.meta.of_lines else limit + 1) + limit + 1
    if needed > config.model.max_length:
        raise InputError(
            "model.max_length is of source and target together, with an end token each, in a "
            f"language model: this text needs {needed}. Received: {config.model.max_length}"
        )
