"""The perplexity of a run of lines of one language."""

from typing import TYPE_CHECKING

from training.data.corpus import read_lines

if TYPE_CHECKING:
    from kformer.perplexity import LineScores
    from kformer.run_folder import RunFolder


def score_lines(run: "RunFolder", part: str = "test", data: str | None = None) -> "LineScores":
    """The perplexity of a run's best model on its test text.

    Args:
        run: a complete run folder of lines of one language.
        part: another of its texts: "valid".
        data: other text to score on, as `read_lines` takes it.

    Raises:
        InputError: the folder is incomplete or the text cannot be read.
    """
    # The scores alone are had without TensorFlow.
    from kformer.generation import Generator
    from kformer.perplexity import perplexity

    lines = [line for _, line in run.pairs(part)] if data is None else list(read_lines(data))
    return perplexity(Generator.from_run(run.path), lines)
