"""Translates with a SavedModel and nothing else: `python -I verify_alone.py SAVEDMODEL`.

Reads a JSON list of texts from standard input. The last line of output is a JSON object: for each
way to load the list of translations. Knows nothing of kformer, and makes sure of that.
"""

import json
import sys


def main() -> None:
    # A leftover import would be an error here, as it would be on a server.
    sys.modules.update(dict.fromkeys(("kformer", "training", "export")))
    folder = sys.argv[1]
    texts = json.load(sys.stdin)

    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its operations)

    loaded = tf.saved_model.load(folder)
    output = loaded.signatures["serving_default"](text=tf.constant(texts, tf.string))
    in_python = [text.decode() for text in output["translation"].numpy()]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        saved = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        missing = session.run(tf.compat.v1.report_uninitialized_variables())
        if missing.size:
            sys.exit(f"variables without a value: {', '.join(map(bytes.decode, missing))}")
        signature = saved.signature_def["serving_default"]
        result = session.run(
            signature.outputs["translation"].name,
            {signature.inputs["text"].name: [text.encode() for text in texts]},
        )
    in_session = [text.decode() for text in result]
    print(json.dumps({"the Python loader": in_python, "the session loader": in_session}))


if __name__ == "__main__":
    main()
