"""Translation as one graph: string tensors in, string tensors out, nothing of Python between."""

from typing import NamedTuple

import tensorflow as tf

from kformer.alignment import NO_ATTENTION, AttentionFrom
from kformer.errors import InputError
from kformer.ids import END_ID, PAD_ID, START_ID
from kformer.limits import Limits
from kformer.losses import token_cross_entropy
from kformer.models.base import SequenceModel
from kformer.search import Greedy, Search
from kformer.text import Tokenizers

# Named as the arguments: an export takes its inputs by these names.
_TEXT, _PREFIX, _SOURCE, _TARGET = (
    tf.TensorSpec([None], tf.string, name) for name in ("text", "prefix", "source", "target")
)


# Widths of sources that XLA compiles for are multiples of this.
_XLA_WIDTHS = 32


class Source(NamedTuple):
    """Texts as an encoder takes them."""

    ids: tf.Tensor  # int32 (batch, width), with the end token
    cut: tf.Tensor  # bool (batch,), True where a text was longer
    blank: tf.Tensor  # bool (batch,), True where there is nothing to translate


class TranslationGraph(tf.Module):
    """Model, vocabularies and search in `tf.function`s on string tensors, each traced once.

    What `export` writes and `Translator` calls. Every result has the batch first. A text is one
    sentence; of a longer one the first `max_source_tokens` are read and `truncated` says so.

    A translation may have up to `length_factor * n + length_margin` tokens for a source of n, the
    end counted in both; a prefix comes on top. The limit belongs to the sentence, so in float32
    what it is batched with never changes its translation.

    Args:
        model: a model with the stepping protocol.
        tokenizers: the vocabularies that it was trained with.
        search: how to search; default greedy.
        length_factor, length_margin: the limit of a translation's length.
        max_length: its absolute limit in tokens, the end included. None: none.
        max_source_tokens: most tokens read of a text; models of sentences do badly on more than
            they were trained on.
        attention: where alignments come from.

    Raises:
        InputError: an argument is out of range, or needs attention where the model has none.
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
        attention: AttentionFrom | None = None,
    ):
        super().__init__()
        # A character may be five pieces: a space and four bytes.
        if max_source_tokens < 5:
            raise InputError(f"max_source_tokens must be at least 5. Received: {max_source_tokens}")
        self.model = model
        self.tokenizers = tokenizers
        self.search = search or Greedy()
        self.limits = Limits.of_model(
            model, length_factor, length_margin, max_source_tokens, max_length
        )
        self.attention_from = attention or AttentionFrom()
        self.attention_from.check(*model.attention_shape)
        if not self.has_attention and getattr(self.search, "coverage_penalty", 0):
            raise InputError(f"coverage_penalty: {NO_ATTENTION}")
        self._source_pieces = tf.constant(tokenizers.source.pieces())
        self._target_pieces = (
            self._source_pieces if tokenizers.joint else tf.constant(tokenizers.target.pieces())
        )

    @tf.function(input_signature=[_TEXT])
    def translate(self, text):
        """The best translation of each text.

        Args:
            text: string (batch,).

        Returns:
            translation: string (batch,), "" for a blank text.
            score: float32 (batch,), what the search ranks by.
            truncated: bool (batch,), True where the translation was cut at its limit, or the text
                at `max_source_tokens`.
        """
        found = self.translate_nbest(text)
        return {name: found[name][:, 0] for name in ("translation", "score", "truncated")}

    @tf.function(input_signature=[_TEXT])
    def translate_nbest(self, text):
        """All hypotheses of the search; see `complete`."""
        return self.complete(text, tf.fill(tf.shape(text), ""))

    @tf.function(input_signature=[_TEXT, _PREFIX])
    def complete(self, text, prefix):
        """Translations that begin with a given text.

        Args:
            text: string (batch,).
            prefix: string (batch,), "" for nothing.

        Returns:
            translation: string (batch, n), best first.
            score: float32 (batch, n), `kformer.search.NONE` where the search found fewer than n.
            log_probability: float32 (batch, n).
            truncated: bool (batch, n), as for `translate`.
            tokens: string (batch, n, length), pieces, "</s>" where it ended, then "".
            token_log_probabilities: float32 (batch, n, length), 0 after the last.
        """
        # A sentence draws the same with whatever and whenever it is translated.
        return self._complete(text, prefix, _fingerprints(text, prefix))

    def _complete(self, text, prefix, draws):
        source, limits, prefixes = self.begin(text, prefix)
        encoded = self.model.encode(source.ids)
        result = self.search(self.model, encoded, limits, prefixes, draws)
        # The one translation of a blank text is blank, and sure.
        first = tf.range(tf.shape(result.score)[1]) == 0
        blank = source.blank[:, tf.newaxis] & first
        return {
            "translation": self._texts(result.tokens),
            "score": tf.where(blank, 0.0, result.score),
            "log_probability": result.log_probability,
            "truncated": ~(result.ended | blank) | source.cut[:, tf.newaxis],
            "tokens": self._shown(self._target_pieces, result.tokens),
            "token_log_probabilities": result.log_probabilities,
        }

    @tf.function(input_signature=[_TEXT])
    def translate_xla(self, text):
        """As `translate`, encoder and search compiled by XLA.

        Compiled anew for each size of batch and each width of source, which is rounded up so that
        they are few. A server must be started for it: `--xla_cpu_compilation_enabled`.
        """
        source = self._read(text)
        limits = self._limits(source)
        width = tf.shape(source.ids)[1]
        more = -width % _XLA_WIDTHS
        ids = tf.pad(source.ids, [[0, 0], [0, more]])
        draws = _fingerprints(text, "")
        tokens, score, ended = self._compiled_search(ids, limits, draws)
        return {
            "translation": self._texts(tokens[:, :1])[:, 0],
            "score": tf.where(source.blank, 0.0, score),
            "truncated": ~(ended | source.blank) | source.cut,
        }

    @tf.function(jit_compile=True)
    def _compiled_search(self, source_ids, limits, draws):
        # Of the shape, not of the limits: XLA has to know it.
        width = tf.cast(tf.shape(source_ids)[1], tf.float32)
        length = tf.cast(self.limits.length_factor * width, tf.int32) + self.limits.length_margin
        length = tf.minimum(length, self.limits.max_target_tokens)
        encoded = self.model.encode(source_ids)
        result = self.search(self.model, encoded, limits, draws=draws, length=length)
        return result.tokens, result.score[:, 0], result.ended[:, 0]

    @tf.function(input_signature=[_SOURCE, _TARGET])
    def score(self, source, target):
        """How likely the model holds given translations.

        Args:
            source: string (batch,).
            target: string (batch,), its translation; "" is the end token alone.

        Returns:
            log_probability: float32 (batch,).
            tokens: string (batch, length), pieces and "</s>", then "".
            token_log_probabilities: float32 (batch, length), 0 after the last.
        """
        forced = self._forced(source, target)
        return {
            "log_probability": tf.reduce_sum(forced["log_probabilities"], axis=1),
            "tokens": forced["target_tokens"],
            "token_log_probabilities": forced["log_probabilities"],
        }

    # Without autograph, which would wrap the error in one of its own.
    @tf.function(input_signature=[_SOURCE, _TARGET], autograph=False)
    def attention(self, source, target):
        """How much each token of a translation attends to each token of its source.

        Args:
            source: string (batch,).
            target: string (batch,), its translation.

        Returns:
            source_tokens: string (batch, source), pieces and "</s>", then "".
            target_tokens: string (batch, target), likewise.
            weights: float32 (batch, target, source); 0 on padding. Rows sum to 1, or to
                less in a language model, which attends to the target before a token too.

        Raises:
            InputError: the model has no attention.
        """
        forced = self._attended(source, target)
        return {name: forced[name] for name in ("source_tokens", "target_tokens", "weights")}

    @tf.function(input_signature=[_SOURCE, _TARGET], autograph=False)
    def attention_maps(self, source, target):
        """As `attention`, of every layer and head by itself.

        Returns:
            source_tokens, target_tokens: as of `attention`.
            weights: float32 (batch, layers, heads, target, source).

        Raises:
            InputError: the model has no attention.
        """
        forced = self._attended(source, target)
        return {
            "source_tokens": forced["source_tokens"],
            "target_tokens": forced["target_tokens"],
            "weights": forced["all_weights"],
        }

    @tf.function(input_signature=[_TEXT])
    def count_tokens(self, text):
        """Source tokens of each text, the end not counted: tokens, int32 (batch,)."""
        return {"tokens": _lengths(self.tokenizers.source.tokenize(text))}

    @tf.function(input_signature=[_TEXT])
    def count_target_tokens(self, text):
        """Target tokens of each text, the end not counted: tokens, int32 (batch,)."""
        return {"tokens": _lengths(self.tokenizers.target.tokenize(text))}

    @property
    def has_attention(self) -> bool:
        """Whether there is attention to the source, which alignments are made of."""
        return self.model.attention_shape != (0, 0)

    @property
    def width(self) -> int:
        """Hypotheses of each sentence in work at a time."""
        return self.search.width

    @property
    def word_indices(self):
        """For source and target the function from pieces to the indices of their words."""
        return tuple(tokenizer.word_indices for tokenizer in self.tokenizers)

    def _attended(self, source, target):
        if not self.has_attention:
            raise InputError(NO_ATTENTION)
        return self._forced(source, target)

    @tf.function(input_signature=[_SOURCE, _TARGET])
    def _forced(self, source, target):
        """All that one pass over given pairs tells."""
        source_ids = _ended(self.tokenizers.source.tokenize(source))
        labels = _ended(self.tokenizers.target.tokenize(target))
        logits, layers = self.model.call_with_attention(source_ids, _shifted(labels))
        padding = labels == PAD_ID
        forced = {
            "source_tokens": self._shown(self._source_pieces, source_ids),
            "target_tokens": self._shown(self._target_pieces, labels),
            "log_probabilities": tf.where(padding, 0.0, -token_cross_entropy(labels, logits)),
        }
        if self.has_attention:
            weights = layers[self.attention_from.layer]
            if self.attention_from.heads is not None:
                weights = tf.gather(weights, self.attention_from.heads, axis=1)
            weights = tf.reduce_mean(weights, axis=1)
            forced["weights"] = tf.where(padding[:, :, tf.newaxis], 0.0, weights)
            forced["all_weights"] = tf.where(
                padding[:, tf.newaxis, tf.newaxis, :, tf.newaxis], 0.0, tf.stack(layers, axis=1)
            )
        return forced

    def begin(self, text, prefix):
        """What a search begins with: the sources, the limits of length and the prefixes as ids.

        Args:
            text, prefix: as of `complete`.
        """
        source = self._read(text)
        prefix_ids = self.tokenizers.target.tokenize(prefix)
        return source, self._limits(source, _lengths(prefix_ids)), prefix_ids.to_tensor()

    def _read(self, text) -> Source:
        """Texts as the encoder takes them."""
        ids = self.tokenizers.source.tokenize(text)
        lengths, most = _lengths(ids), self.limits.max_source_tokens
        return Source(_ended(ids[:, :most]), cut=lengths > most, blank=lengths == 0)

    def _limits(self, source: Source, prefix_lengths=0):
        """Most tokens of each translation; of a blank text 0."""
        limits = self.limits.of_translations(source.ids, prefix_lengths)
        return tf.where(source.blank, 0, limits)

    def _texts(self, tokens):
        """Strings (batch, n) of tokens (batch, n, length)."""
        batch, n, length = tf.unstack(tf.shape(tokens))
        texts = self.tokenizers.target.detokenize(tf.reshape(tokens, [batch * n, length]))
        return tf.reshape(texts, [batch, n])

    @staticmethod
    def _shown(pieces, ids):
        """The pieces of ids, "" for padding."""
        return tf.where(ids == PAD_ID, "", tf.gather(pieces, ids))


def _fingerprints(*texts) -> tf.Tensor:
    """int32 (batch,), of the texts alone."""
    whole = tf.strings.join(texts, separator="\n")
    return tf.cast(tf.strings.to_hash_bucket_fast(whole, 2**31 - 1), tf.int32)


def _lengths(ids: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(ids.row_lengths(), tf.int32)


def _ended(ids: tf.RaggedTensor) -> tf.Tensor:
    """int32 (batch, width): the rows with the end token, then padding."""
    ends = tf.fill([ids.nrows(), 1], END_ID)
    return tf.concat([ids, ends], axis=1).to_tensor(PAD_ID)


def _shifted(labels: tf.Tensor) -> tf.Tensor:
    """What the decoder reads while it predicts `labels` (batch, length)."""
    return tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=START_ID)
