"""Translate a run's test text with several searches: what `python -m training.compare` starts.

    python -m training.compare.translate RUN '[{"name": ..., "options": {...}}, ...]'

It is a process of its own so that no two models share a memory or a device.
"""

import argparse
import json
import os
import sys
import time

from kformer.command_line import run_command
from kformer.quiet import import_tensorflow
from kformer.search_options import make_graph


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    path, searches = sys.argv[1:] if arguments is None else arguments
    return run_command(lambda: _translate(path, json.loads(searches)))


def _translate(path: str, searches: list[dict]) -> int:
    import_tensorflow()
    from kformer.run_folder import RunFolder
    from kformer.translator import Translator
    from training.checkpoints import file_hash
    from training.compare.environment import environment
    from training.devices import Devices

    run = RunFolder.open(path)
    sources = [source for source, _ in run.pairs("test")]
    model, tokenizers = run.load()
    folder = run.path / "translations"
    folder.mkdir(exist_ok=True)
    for search in searches:
        graph = make_graph(model, tokenizers, argparse.Namespace(**search["options"]))
        translator = Translator(graph)
        translator.translate(sources[:1])  # Tracing is not part of a search.
        began = time.perf_counter()
        translations = translator.translate(sources)
        record = {
            "options": search["options"],
            "model": file_hash(run.best_model),
            "seconds": round(time.perf_counter() - began, 2),
            "parameters": model.count_params(),
            "environment": {"device": str(Devices("none")), **environment()},
        }
        text, about = (folder / f"{search['name']}{end}" for end in (".txt", ".json"))
        # Where there is a record, the translations are whole and its own.
        about.unlink(missing_ok=True)
        text.write_text("".join(f"{line}\n" for line in translations), "utf-8")
        partial = about.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        os.replace(partial, about)
        print(f"translated {len(sources):,} sentences in {record['seconds']:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
