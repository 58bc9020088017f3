"""Which tables of a model can be one."""

from kformer.choices import Tying


def check_tying(tie: str, source_vocab_size: int, target_vocab_size: int) -> None:
    """Refuses tables that cannot be one.

    Raises:
        ValueError: naming the arguments.
    """
    if tie not in Tying.__args__:
        raise ValueError(f"`tie` must be one of {', '.join(Tying.__args__)}. Received: tie={tie!r}")
    if tie == "all" and source_vocab_size != target_vocab_size:
        raise ValueError(
            '`tie="all"` needs one vocabulary for both languages. Received: '
            f"source_vocab_size={source_vocab_size}, target_vocab_size={target_vocab_size}"
        )


def check_tied_width(tie: str, embedding_dim: int | None, d_model: int) -> None:
    """Refuses a table that is to be the output's and is not as wide as what it is multiplied with.

    Raises:
        ValueError: naming the arguments.
    """
    if tie != "none" and embedding_dim not in (None, d_model):
        raise ValueError(
            '`embedding_dim` other than `d_model` needs `tie="none"`. Received: '
            f"embedding_dim={embedding_dim}, d_model={d_model}, tie={tie!r}"
        )
