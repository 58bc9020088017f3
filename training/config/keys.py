"""What a run is made of: typed, with every key explained once, here."""

from dataclasses import dataclass, field, fields
from typing import Literal

from kformer.choices import (
    Activation,
    AttentionKind,
    Cell,
    ModelKind,
    NormPosition,
    Positions,
    Tying,
)


@dataclass(frozen=True)
class DataConfig:
    """The text.

    Args:
        train: Training pairs, or a list of several corpora. Each is a file of pairs (.tsv: source
            TAB target; .jsonl, .tmx, .po), SOURCE,TARGET as two files of one line a pair,
            hf:NAME:SPLIT of Hugging Face, or the name of an embedded corpus; for model.kind
            language_model also a .txt of lines of one language. Files may end in .gz, .xz or .zst;
            names may hold * and ?.
        valid: Validation pairs, given likewise. Null: those of the embedded corpus, or else cut
            from train by the hash of the source.
        test: Test pairs, given likewise. Null: as for valid.
        weights: How many times an epoch sees the pairs of each corpus of train; 0.5 is half of
            them, others each epoch. Null: once each.
        source_key: What names the source where a format names the sides: a key of JSON lines or
            of Hugging Face rows (dots go down: translation.en), a language of TMX. Null: "source";
            in TMX the language that the file calls its source.
        target_key: Likewise. Null: "target"; in TMX the other language, if there are two.
        max_length: Most tokens a side of a training pair may have; longer pairs are left out.
        strict: Refuse rows that are malformed or have an empty side, by file and line, instead of
            leaving them out.
        static_shapes: Pad batches to at most 8 shapes, for XLA. Costs padding.
        cache: Folder for what is made of a corpus once: its cleaned text, vocabularies and token
            ids. Null: kformer in the user's cache folder.
    """

    train: str | list[str] = "libreoffice-help.en-de"
    valid: str | list[str] | None = None
    test: str | list[str] | None = None
    weights: list[float] | None = None
    source_key: str | None = None
    target_key: str | None = None
    max_length: int = 100
    strict: bool = False
    static_shapes: bool = False
    cache: str | None = None


@dataclass(frozen=True)
class CleaningConfig:
    """What is left out of the training pairs, each time counted and shown with examples.

    Args:
        max_characters: Most characters of a side. Null: any number; data.max_length counts tokens.
        max_length_ratio: How many times as long as the other a side may be, in characters. Null:
            any.
        identical: Leave out pairs whose sides are the same: text that was not translated.
        duplicates: What of a repetition is left out: pair (a pair that came before), source (any
            further translation of a source) or none.
        max_symbols: Largest share of punctuation, symbols and digits in a side, spaces not
            counted. Null: any.
        source_script: Script of the source, by its name in Unicode, or a list: Latin, Cyrillic,
            Arabic, Devanagari, [Han, Hiragana, Katakana]. Null: any.
        target_script: Script of the target, likewise.
        min_script: Smallest share of a side's letters in its script, where one is set.
        numbers: Leave out pairs whose sides hold different numbers.
        placeholders: Leave out pairs whose sides hold different placeholders or markup: {name},
            %s, %1, <b>, &amp;.
        held_out: Leave out pairs whose source occurs in given validation or test text.
    """

    max_characters: int | None = 5000
    max_length_ratio: float | None = 9.0
    identical: bool = True
    duplicates: Literal["none", "pair", "source"] = "pair"
    max_symbols: float | None = 0.5
    source_script: str | list[str] | None = None
    target_script: str | list[str] | None = None
    min_script: float = 0.5
    numbers: bool = False
    placeholders: bool = False
    held_out: bool = True


@dataclass(frozen=True)
class TokenizerConfig:
    """The vocabulary, learned from the training pairs. Letters keep their case.

    Args:
        kind: unigram or bpe (subwords by SentencePiece), character, byte (of UTF-8), or word. No
            text is unknown to any but word. Characters and bytes want a higher data.max_length.
        vocab_size: Most pieces, reserved ones included; no more are made than the text supports.
            Bytes take 260.
        joint: One vocabulary for both languages, or one each.
        min_frequency: Words seen less often are unknown (kind word only).
        sample: Most lines subwords are learned from, drawn at random; memory grows with them.
        sampling: Split the training text another way each epoch (subword regularisation). For bpe
            the share of merges left out, such as 0.1; for unigram the inverse temperature, such as
            0.2: the lower, the more varied. Null: the likeliest way, always.
        file: Use this vocabulary and learn none, whatever kind and vocab_size say: any
            SentencePiece .model, or a run folder, whose own are used. SOURCE,TARGET if not joint.
    """

    kind: Literal["unigram", "bpe", "character", "byte", "word"] = "unigram"
    vocab_size: int = 4000
    joint: bool = True
    min_frequency: int = 2
    sample: int = 500_000
    sampling: float | None = None
    file: str | None = None


@dataclass(frozen=True)
class ModelConfig:
    """The model.

    Args:
        kind: transformer, recurrent (LSTM or GRU encoder and decoder) or language_model (a
            decoder alone, on lines of one language, or on pairs as source, then target).
        d_model: Width of embeddings and layers; a multiple of num_heads.
        embedding_dim: Width of the embeddings where it is another, as that of pretrained vectors;
            null: d_model. Needs tie none.
        num_heads: Attention heads of each layer.
        d_ff: Width inside the feed-forward networks.
        num_encoder_layers: Depth of the encoder.
        num_decoder_layers: Depth of the decoder.
        cell: lstm or gru (recurrent).
        bidirectional: Read the source in both directions (recurrent).
        attention: How attention scores are made: dot_product or additive; recurrent also none.
        input_feeding: Give the decoder its last attention output with each token (recurrent).
        norm: pre (normalise before each sub-layer; trains easily) or post (after; the paper).
        activation: Of the feed-forward networks: relu, gelu or swish.
        positions: sinusoidal (the paper), sinusoidal_halves (Marian), learned, rotary or none.
        max_length: Number of learned positions, the end token included (language_model: of source
            and target together); null otherwise.
        attention_bias: Add a bias in the projections of attention; the paper has none.
        scale_embedding: Multiply embeddings by the square root of d_model, as in the paper.
        tie: Which tables are one: all (source, target, output; needs a joint vocabulary),
            target (target and output) or none.
        output_bias: Add a bias to the logits.
        dropout: Share of embeddings and sub-layer outputs dropped in training.
        attention_dropout: Share of attention weights dropped in training.
        activation_dropout: Share of feed-forward activations dropped in training.
    """

    kind: ModelKind = "transformer"
    d_model: int = 256
    embedding_dim: int | None = None
    num_heads: int = 4
    d_ff: int = 512
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    cell: Cell = "lstm"
    bidirectional: bool = False
    attention: AttentionKind = "dot_product"
    input_feeding: bool = False
    norm: NormPosition = "pre"
    activation: Activation = "relu"
    positions: Positions = "sinusoidal"
    max_length: int | None = None
    attention_bias: bool = False
    scale_embedding: bool = True
    tie: Tying = "all"
    output_bias: bool = False
    dropout: float = 0.15
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation.

    Args:
        updates: Length of training, in updates of the weights.
        batch_tokens: Most tokens of a batch on either side, padding included.
        optimizer: adam, or muon (orthogonalised momentum for matrices inside the layers, Adam for
            the rest; learns more from each token).
        learning_rate: Peak of the schedule; with noam, a factor on the paper's.
        schedule: noam (the paper), inverse_sqrt (the same by its peak) or linear (down to 0 at the
            last update).
        warmup_updates: Updates until the peak.
        label_smoothing: Share of the target probability spread over the vocabulary.
        weight_decay: Share of each weight, times the learning rate, taken off at each update.
        clip_norm: Longest global gradient; longer ones are scaled down. Null: never.
        init_from: Run folder whose best model's weights training begins with; its vocabulary is
            used unless tokenizer.file says otherwise. Null: new weights.
        source_vectors: Pretrained word vectors that the source embedding begins with: a text file
            of GloVe or word2vec (.gz too), or VECTORS.npy,WORDS.txt. Null: none.
        target_vectors: Likewise for the target embedding.
        frozen: Patterns (regular expressions) of the weights that are not trained, found in their
            names: embedding, encoder, layer_norm. Null: none.
        accumulate: Into how many parts a batch is divided to need less memory; the update is that
            of the whole batch.
        strategy: none (one device), mirrored (all GPUs of this machine) or multi_worker (several
            machines). A batch is shared out, so the update stays the same.
        validate_every: Updates between validations (loss, BLEU, samples, a checkpoint).
        save_every: Updates between further checkpoints within a round. Null: none.
        keep_checkpoints: How many checkpoints are kept, the newest.
        keep_best: How many further checkpoints are kept, those of the best validations.
        ema: Decay of an exponential moving average of the weights, such as 0.999; it is what is
            validated and kept as the best model. Null: none, the weights themselves are.
        best_by: The figure of a validation that says which model is the best: bleu, chrf or loss.
            Null: bleu; for lines of one language loss, as there is no translation.
        patience: Stop after so many validations without a better model. Null: never.
        max_left_out: Stop after so many updates in a row whose gradient is no number; such updates
            never reach the weights.
        max_minutes: Stop in time to be done, test score included, so many minutes after the
            start. Null: never.
        precision: float32, mixed_bfloat16, mixed_float16, or auto: bfloat16 where the hardware
            multiplies it faster (AMX or AVX512-BF16 CPUs, Ampere or newer GPUs).
        jit_compile: Compile training steps with XLA, once for each shape of batch: faster on many
            GPUs, slower on CPUs. Needs data.static_shapes.
        profile_updates: Record so many updates for TensorBoard's profiler, from the eleventh on.
            Null: none.
        deterministic: Use only operations that repeat bit for bit, also on GPUs; slower there.
        seed: Seed of weights, batches and dropout.
    """

    updates: int = 1950
    batch_tokens: int = 2048
    optimizer: Literal["adam", "muon"] = "muon"
    learning_rate: float = 5e-3
    schedule: Literal["noam", "inverse_sqrt", "linear"] = "linear"
    warmup_updates: int = 100
    label_smoothing: float = 0.1
    weight_decay: float = 0.2
    clip_norm: float | None = None
    init_from: str | None = None
    source_vectors: str | None = None
    target_vectors: str | None = None
    frozen: list[str] | None = None
    accumulate: int = 1
    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    validate_every: int = 390
    save_every: int | None = None
    keep_checkpoints: int = 3
    keep_best: int = 0
    ema: float | None = None
    best_by: Literal["bleu", "chrf", "loss"] | None = None
    patience: int | None = None
    max_left_out: int = 20
    max_minutes: float | None = None
    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = "auto"
    jit_compile: bool = False
    profile_updates: int | None = None
    deterministic: bool = False
    seed: int = 1


@dataclass(frozen=True)
class ScoringConfig:
    """How translations are scored, by sacreBLEU.

    Args:
        bleu_tokenize: sacreBLEU's tokenizer for BLEU: 13a, zh, ja-mecab, ko-mecab, intl or char.
        beam_size: Hypotheses of the search that validation and test are translated with; 1 is
            greedy.
        length_penalty: Of that beam search; above 0 favours longer translations.
        samples: How many validation sentences are shown with their translations.
    """

    bleu_tokenize: Literal["13a", "zh", "ja-mecab", "ko-mecab", "intl", "char", "none"] = "13a"
    beam_size: int = 1
    length_penalty: float = 0.0
    samples: int = 4


@dataclass(frozen=True)
class Config:
    """A whole run."""

    data: DataConfig = field(default_factory=DataConfig)
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    scoring: ScoringConfig = field(default_factory=ScoringConfig)


SECTIONS = {section.name: section.default_factory for section in fields(Config)}
