"""Text, model and search in one: strings in, translations out."""

import functools
import math
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import tensorflow as tf

from kformer.alignment import NO_WORD, Alignment
from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.losses import token_cross_entropy
from kformer.models.base import SequenceModel
from kformer.run_folder import RunFolder
from kformer.search import NONE, Greedy, Search, SearchResult
from kformer.text import Part, Tokenizer, Tokenizers, split_long

_ROW_WIDTHS = 8
_IDS = tf.TensorSpec([None, None], tf.int32)


class TextTooLongError(InputError):
    """A text has more tokens than there is room for.

    Args:
        name: what the texts are called.
        index: which of them it is, from 0.
        reason: how many tokens it has, and how many there may be.
    """

    def __init__(self, name: str, index: int, reason: str):
        super().__init__(f"{name} {index + 1}: {reason}")
        self.index, self.reason = index, reason


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a text, and how sure the model is of it.

    Args:
        text: the translation.
        tokens: its pieces, "</s>" where it ended.
        token_log_probabilities: of each of them.
        log_probability: their sum.
        score: what hypotheses are sorted by: for beam search the sum over its length penalty.
        ended: whether it came to an end; False: the limit of length cut it short.
        alignment: with its source, if asked for; a blank text has none.
    """

    text: str
    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    score: float
    ended: bool
    alignment: Alignment | None = None


@dataclass(frozen=True)
class AttentionFrom:
    """Which attention alignments are read from: that of the decoder to the source.

    Args:
        layer: of the decoder, from 0, or back from -1, the last.
        heads: which to average over, from 0. None: all.
    """

    layer: int = -1
    heads: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Translation:
    """What was found for a text.

    Args:
        hypotheses: best first, no two the same; one, empty, for a blank text. They may be fewer
            than asked for.
        parts: how many parts the text was cut in: its lines, and parts of lines too long for the
            model to read at once. More than 1: scores are sums over the parts.
    """

    hypotheses: list[Hypothesis]
    parts: int

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


@dataclass(frozen=True)
class TargetScore:
    """How likely a model holds a given translation.

    Args:
        tokens: its pieces, and "</s>".
        token_log_probabilities: of each, given the source and those before it.
        log_probability: their sum.
        perplexity: exp(-log_probability / number of tokens).
    """

    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    perplexity: float


_BLANK = Hypothesis("", [], [], 0.0, 0.0, True)


class Translator(tf.Module):
    """Translates strings with a trained model.

    A translation may have up to `length_factor * n + length_margin` tokens for a source of n, the
    end counted in both; a prefix comes on top. The limit belongs to the sentence, so what it is
    batched with never changes its translation.

    A text may have several lines: each is translated for itself. A line of more than
    `max_source_tokens` is cut at ends of sentences, else at spaces, and its parts are joined again.

    Args:
        model: a model with the stepping protocol.
        tokenizers: the vocabularies that it was trained with.
        search: how to search; default greedy.
        length_factor, length_margin: the limit of a translation's length.
        max_length: its absolute limit in tokens, the end included. None: none.
        max_source_tokens: most tokens translated as one sentence; models of sentences do badly on
            more than they were trained on.
        max_batch_tokens: most source tokens, padding included, times hypotheses, in work at once.
        max_batch_sentences: most sentences in work at once. None: no limit.
    """

    def __init__(
        self,
        model: SequenceModel,
        tokenizers: Tokenizers,
        search: Search | None = None,
        *,
        length_factor: float = 2.0,
        length_margin: int = 20,
        max_length: int | None = None,
        max_source_tokens: int = 128,
        max_batch_tokens: int = 4096,
        max_batch_sentences: int | None = None,
    ):
        super().__init__()
        for name, value in (
            ("max_length", max_length),
            ("max_source_tokens", max_source_tokens),
            ("max_batch_tokens", max_batch_tokens),
            ("max_batch_sentences", max_batch_sentences),
        ):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1. Received: {value}")
        for name, value in (("length_factor", length_factor), ("length_margin", length_margin)):
            if value < 0:
                raise InputError(f"{name} must not be negative. Received: {value}")
        self.model = model
        self.tokenizers = tokenizers
        self.search = search or Greedy()
        self.length_factor = length_factor
        self.length_margin = length_margin
        self.max_length = max_length
        # Learned positions have an end, and the end token takes one.
        self.max_source_tokens = min(max_source_tokens, (self._positions or math.inf) - 1)
        self.max_batch_tokens = max_batch_tokens
        self.max_batch_sentences = max_batch_sentences

    @classmethod
    def from_run(
        cls, path: str | os.PathLike, search: Search | None = None, **options
    ) -> "Translator":
        """The translator of a run folder's best model.

        Args:
            path: of the run folder.
            search, **options: of the constructor.

        Raises:
            InputError: the folder is not a complete run folder.
        """
        return cls(*RunFolder.open(path).load(), search, **options)

    def translate(self, texts: Sequence[str], prefixes: Sequence[str] | None = None) -> list[str]:
        """Translates texts of any number and lengths; their order is kept.

        A text that is empty, or empty once normalised, translates to an empty string.

        Args:
            texts: one or more sentences each; line ends inside stay where they are.
            prefixes: what each translation begins with, "" for nothing.

        Returns:
            The best translation of each.

        Raises:
            InputError: an argument is of the wrong kind, or a prefix does not fit.
        """
        return [translation.text for translation in self.translate_nbest(texts, prefixes)]

    def translate_nbest(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        attention: AttentionFrom | None = None,
    ) -> list[Translation]:
        """As `translate`, with all hypotheses of the search and their scores.

        Args:
            texts, prefixes: see `translate`.
            attention: where to take the alignments of hypotheses from. None: make none.
        """
        texts = _strings("texts", texts)
        prefixes = [""] * len(texts) if prefixes is None else _strings("prefixes", prefixes)
        if len(prefixes) != len(texts):
            raise InputError(f"{len(prefixes)} prefixes for {len(texts)} texts")
        if attention is not None:
            self._check_attention(attention)
        self._check_prefixes(self._tokenized(self.tokenizers.target, prefixes))
        parts = self._split(texts)
        of_texts = np.cumsum([0, *map(len, parts)])
        flat = [part for of_text in parts for part in of_text]
        begins = [""] * len(flat)
        for number, first in enumerate(of_texts[:-1]):
            begins[first] = prefixes[number]
        found = self._search_parts([part.text for part in flat], begins, attention)
        return [
            _joined([part.space for part in flat[first:last]], found[first:last])
            for first, last in pairwise(of_texts)
        ]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[TargetScore]:
        """How likely the model holds given translations.

        Args:
            sources: a sentence each.
            targets: its translation; "" is the end token alone.

        Raises:
            InputError: the numbers differ, or a side has more tokens than learned positions.
        """
        sources, targets = _strings("sources", sources), _strings("targets", targets)
        if len(sources) != len(targets):
            raise InputError(f"{len(sources)} sources for {len(targets)} targets")
        source_ids = self._tokenized(self.tokenizers.source, sources)
        target_ids = self._tokenized(self.tokenizers.target, targets)
        lengths = np.maximum(source_ids.row_lengths(), target_ids.row_lengths())
        if len(lengths) and self._positions and lengths.max() >= self._positions:
            index = int(np.argmax(lengths))
            raise TextTooLongError(
                "pair",
                index,
                f"{lengths[index]} tokens on a side, but the model has {self._positions} learned "
                "positions, one of them for the end. Split it.",
            )
        scores = [None] * len(sources)
        for rows in self._batches(lengths, width=1):
            labels = _padded(tf.gather(target_ids, rows))
            log_probabilities = self._score_ids(_padded(tf.gather(source_ids, rows)), labels)
            for row, ids, values in zip(
                rows, labels.numpy(), log_probabilities.numpy(), strict=True
            ):
                ids = ids[ids != PAD_ID]
                values = values[: len(ids)].tolist()
                total = math.fsum(values)
                scores[row] = TargetScore(
                    self._pieces(self.tokenizers.target, ids),
                    values,
                    total,
                    _exp(-total / len(values)),
                )
        return scores

    def _split(self, texts: Sequence[str]) -> list[list[Part]]:
        """The parts that each text is translated in: its lines, long ones in several."""
        lines = [text.split("\n") for text in texts]
        flat = [line for of_text in lines for line in of_text]
        too_long = {
            line
            for line, tokens in zip(flat, self._count(flat), strict=True)
            if tokens > self.max_source_tokens
        }

        def parts(line, end):
            parts = (
                split_long(line, self.max_source_tokens, self._count)
                if line in too_long
                else [Part(line, "")]
            )
            return [*parts[:-1], parts[-1]._replace(space=end)]

        return [
            [
                part
                for number, line in enumerate(of_text, start=1)
                for part in parts(line, "\n" if number < len(of_text) else "")
            ]
            for of_text in lines
        ]

    def _search_parts(self, texts, prefixes, attention) -> list[list[Hypothesis]]:
        """The hypotheses of each text of one sentence."""
        source_ids = self._tokenized(self.tokenizers.source, texts)
        prefix_ids = self._tokenized(self.tokenizers.target, prefixes)
        lengths = source_ids.row_lengths().numpy()
        found = [[_BLANK] for _ in texts]
        for rows in self._batches(lengths, self.search.width):
            ids = _padded(tf.gather(source_ids, rows))
            result, translations = self._search_ids(ids, tf.gather(prefix_ids, rows).to_tensor())
            weights = [None] * len(rows)
            if attention is not None:
                weights = self._attend(ids, result.tokens, attention)
            for row, *of_row in zip(
                rows, ids.numpy(), translations.numpy(), *_arrays(result), weights, strict=True
            ):
                found[row] = list(self._hypotheses(*of_row))
        return found

    def _hypotheses(
        self, source, texts, tokens, log_probabilities, totals, scores, ended, weights
    ) -> Iterator[Hypothesis]:
        """Those of one sentence, each once."""
        seen = set()
        for index, ids in enumerate(tokens):
            ids = ids[ids != PAD_ID]
            if scores[index] <= NONE / 10 or tuple(ids) in seen:
                continue
            seen.add(tuple(ids))
            yield Hypothesis(
                texts[index].decode(),
                self._pieces(self.tokenizers.target, ids),
                log_probabilities[index, : len(ids)].tolist(),
                float(totals[index]),
                float(scores[index]),
                bool(ended[index]),
                None if weights is None else self._alignment(source, ids, weights[index]),
            )

    @tf.function(input_signature=[_IDS, _IDS])
    def _search_ids(self, source_ids, prefix_ids):
        lengths = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)
        prefix_lengths = tf.math.count_nonzero(prefix_ids, axis=1, dtype=tf.int32)
        limits = tf.cast(self.length_factor * tf.cast(lengths, tf.float32), tf.int32)
        limits += self.length_margin + prefix_lengths
        if self.max_length:
            limits = tf.maximum(tf.minimum(limits, self.max_length), prefix_lengths)
        if self._positions:
            limits = tf.minimum(limits, self._positions)
        result = self.search(self.model, self.model.encode(source_ids), limits, prefix_ids)
        shape = tf.shape(result.tokens)
        flat = tf.reshape(result.tokens, [shape[0] * shape[1], shape[2]])
        texts = self.tokenizers.target.detokenize(flat)
        return result, tf.reshape(texts, shape[:2])

    @tf.function(input_signature=[_IDS, _IDS])
    def _score_ids(self, source_ids, labels):
        """float32 (batch, target): log-probabilities of labels."""
        logits = self.model((source_ids, _shifted(labels)))
        return -token_cross_entropy(labels, logits)

    def _attend(self, source_ids, tokens, attention: AttentionFrom):
        """float32 (batch, n, target, source)."""
        batch, n, length = tokens.shape
        weights = self.model.attention(
            tf.repeat(source_ids, n, axis=0),
            _shifted(tf.reshape(tokens, [batch * n, length])),
            attention.layer,
            attention.heads,
        )
        return tf.reshape(weights, [batch, n, length, -1]).numpy()

    def _alignment(self, source, target, weights) -> Alignment:
        source = source[source != PAD_ID]
        tokens, words = zip(
            *(
                self._tokens_and_words(tokenizer, ids)
                for tokenizer, ids in zip(self.tokenizers, (source, target), strict=True)
            ),
            strict=True,
        )
        return Alignment(*tokens, *words, weights[: len(target), : len(source)])

    def _tokens_and_words(self, tokenizer: Tokenizer, ids) -> tuple[list[str], list[int]]:
        tokens = self._pieces(tokenizer, ids)
        text = [token for token, id in zip(tokens, ids, strict=True) if id != END_ID]
        words = iter(tokenizer.word_indices(text))
        return tokens, [NO_WORD if id == END_ID else next(words) for id in ids]

    def _check_attention(self, attention: AttentionFrom) -> None:
        layers, heads = self.model.num_decoder_layers, self.model.num_heads
        if not -layers <= attention.layer < layers:
            raise InputError(
                f"the model has {layers} decoder layers, counted from 0 or back from -1. "
                f"Received: layer {attention.layer}"
            )
        for head in attention.heads or ():
            if not 0 <= head < heads:
                raise InputError(f"the model has {heads} heads, from 0. Received: head {head}")

    def _check_prefixes(self, ids: tf.RaggedTensor) -> None:
        limit = min(self.max_length or math.inf, self._positions or math.inf)
        for index, length in enumerate(ids.row_lengths().numpy()):
            if length > limit:
                raise TextTooLongError(
                    "prefix", index, f"{length} tokens, but a translation has at most {limit}."
                )

    def _count(self, texts: Sequence[str]) -> np.ndarray:
        return self._tokenized(self.tokenizers.source, texts).row_lengths().numpy()

    def _tokenized(self, tokenizer: Tokenizer, texts: Sequence[str]) -> tf.RaggedTensor:
        # A lone surrogate has no UTF-8: passed on as bytes, it becomes U+FFFD.
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        return tokenizer.tokenize(tf.constant(encoded, tf.string))

    def _pieces(self, tokenizer: Tokenizer, ids) -> list[str]:
        vocabulary = self._vocabularies[tokenizer is self.tokenizers.target]
        return [vocabulary[id] for id in ids]

    @functools.cached_property
    def _vocabularies(self) -> tuple[list[str], list[str]]:
        """Pieces of the source and of the target."""
        return self.tokenizers.source.pieces(), self.tokenizers.target.pieces()

    @property
    def _positions(self) -> int | None:
        """How many positions the model has, None if there is no end to them."""
        return self.model.max_length if self.model.positions == "learned" else None

    def _batches(self, lengths: np.ndarray, width: int) -> Iterator[np.ndarray]:
        """Row numbers in batches of like length, so that little is padded; no empty rows."""
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        most = self.max_batch_sentences or math.inf
        start = 0
        for end in range(1, len(order) + 1):
            tokens = (end + 1 - start) * _width(lengths[order[min(end, len(order) - 1)]]) * width
            if end == len(order) or end - start == most or tokens > self.max_batch_tokens:
                yield order[start:end]
                start = end


def _joined(spaces: Sequence[str], parts: Sequence[list[Hypothesis]]) -> Translation:
    """The translation of a text from those of its parts; the n-th is made of each part's n-th."""
    if len(parts) == 1:
        return Translation(parts[0], 1)
    count = max(map(len, parts))
    whole = []
    for index in range(count):
        chosen = [of_part[min(index, len(of_part) - 1)] for of_part in parts]
        text = "".join(
            hypothesis.text + ("\n" if "\n" in space else " " if space else "")
            for hypothesis, space in zip(chosen, spaces, strict=True)
        )
        alignments = [hypothesis.alignment for hypothesis in chosen if hypothesis.alignment]
        whole.append(
            Hypothesis(
                text,
                [token for hypothesis in chosen for token in hypothesis.tokens],
                [value for hypothesis in chosen for value in hypothesis.token_log_probabilities],
                math.fsum(hypothesis.log_probability for hypothesis in chosen),
                math.fsum(hypothesis.score for hypothesis in chosen),
                all(hypothesis.ended for hypothesis in chosen),
                functools.reduce(operator.add, alignments) if alignments else None,
            )
        )
    return Translation(whole, len(parts))


def _strings(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} must be a list of strings. Received: {texts!r}")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"{name} must be strings. Received: {text!r} as number {number}")
    return texts


def _arrays(result: SearchResult) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in result]


def _padded(ids: tf.RaggedTensor) -> tf.Tensor:
    """int32 (batch, width): the rows with the end token, padded to one of a few widths."""
    ends = tf.fill([ids.nrows(), 1], END_ID)
    ids = tf.concat([ids, ends], axis=1)
    width = ids.bounding_shape(axis=1, out_type=tf.int32)
    return ids.to_tensor(shape=[None, _width(width - 1)])


def _shifted(labels: tf.Tensor) -> tf.Tensor:
    """What the decoder reads while it predicts `labels` (batch, length)."""
    return tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=START_ID)


def _width(length):
    """The width that a text of `length` tokens and its end are padded to."""
    return (length // _ROW_WIDTHS + 1) * _ROW_WIDTHS


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
