"""One spelling for each text: what every tokenizer sees and what it gives back."""

from collections.abc import Iterable, Iterator

import tensorflow as tf
import tensorflow_text as tf_text

from kformer.normal_form import strings

# RE2's \s is ASCII only. \p{Z} holds NBSP, U+2028 and the other separators; the remaining
# members of Unicode's White_Space are control characters and are named one by one.
_SPACE = r"[\p{Z}\t\n\v\f\r\x{85}]"


def normalize(texts: tf.Tensor) -> tf.Tensor:
    """Text as one line of valid UTF-8 in canonical form (NFC), in the graph.

    Each white-space character becomes one ASCII space (runs keep their length), the other control
    characters go, invalid bytes become U+FFFD, and both ends are trimmed. Format characters
    (zero-width joiners, soft hyphens) stay: they carry meaning in emoji, Persian and Indic scripts.
    Normalizing twice changes nothing, and a result never contains a control character, a line
    break or a white-space character other than the space.

    Args:
        texts: string tensor of any shape.

    Returns:
        A string tensor of the same shape.
    """
    texts = tf.convert_to_tensor(texts, tf.string)
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.strings.regex_replace(texts, _SPACE, " ")
    # Before NFC: a control character between a letter and its accent must not keep them apart.
    texts = tf.strings.regex_replace(texts, r"\p{Cc}", "")
    return tf.strings.strip(tf_text.normalize_utf8(texts, "NFC"))


def normalized_batches(texts: Iterable[str | bytes], size: int = 1024) -> Iterator[tf.Tensor]:
    """Normalizes any number of texts, `size` at a time, in bounded memory.

    Args:
        texts: strings, or bytes in UTF-8; read once, in order.
        size: texts in a batch.

    Yields:
        Normalized string tensors `(n,)` with `1 <= n <= size`.

    Raises:
        InputError: `texts` is a single string, or holds something that is not a string.
    """
    batch = []
    for text in strings(texts):
        # A lone surrogate has no UTF-8; pass it on as bytes that `normalize` replaces.
        batch.append(text.encode("utf-8", "surrogatepass"))
        if len(batch) == size:
            yield normalize(batch)
            batch = []
    if batch:
        yield normalize(batch)
