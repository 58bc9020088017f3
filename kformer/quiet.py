"""TensorFlow without the notes it prints for its developers."""

import os
import sys
import tempfile

_OURS = "KFORMER_SET_LOG_LEVEL"


def import_tensorflow() -> None:
    """Imports TensorFlow for a command line, whose users' own messages should be seen.

    Its log level hides what it logs while it runs; a user who sets TF_CPP_MIN_LOG_LEVEL sees it
    all. What it prints while it loads knows no level: that is held back, and shown if loading
    fails.
    """
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL")
    # Processes that this one started have the level from here, not from the user.
    if "tensorflow" in sys.modules or level not in (None, os.environ.get(_OURS)):
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = os.environ[_OURS] = "3"
    if sys.stderr is None:  # Closed by the shell: there is nothing to hold back.
        import tensorflow  # noqa: F401
        import tensorflow_text  # noqa: F401

        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
            import tensorflow_text  # noqa: F401
        except BaseException:
            held_back.seek(0)
            os.write(stderr, held_back.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
