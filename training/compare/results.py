"""The figures of an experiment, from the run folders alone."""

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kformer.errors import InputError
from training.compare.experiment import Experiment
from training.compare.lengths import bleu_by_length, length_groups
from training.compare.rounds import (
    best_round,
    mean_rounds,
    minutes,
    read_rounds,
    tokens_per_second,
)
from training.compare.runs import Run
from training.compare.significance import paired_bootstrap
from training.compare.translations import Translations, read_translations
from training.scoring import score


@dataclass(frozen=True)
class Result:
    """The figures of one run with one search.

    Args:
        seed: of the run.
        bleu, chrf: of the test text.
        perplexity: of the validation text, with the best model.
        parameters: of the model.
        tokens_per_second: target tokens trained on in a second, padding and validations left out.
        minutes: of training, validations included.
        translation_seconds: the search needs for the test text.
        bleu_by_length: of sentences of a length, by the name of the group.
        p_value: of the BLEU against the first row's with the same seed; None: there is none.
    """

    seed: int
    bleu: float
    chrf: float
    perplexity: float
    parameters: int
    tokens_per_second: float
    minutes: float
    translation_seconds: float
    bleu_by_length: dict[str, float]
    p_value: float | None = None


@dataclass(frozen=True)
class Row:
    """A variant with a search, over the seeds that are done.

    Args:
        name: what the report calls it.
        variant: its name.
        search: its name; empty if there is only the run's own.
        results: one a seed.
    """

    name: str
    variant: str
    search: str
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Results:
    """What came out of an experiment.

    Args:
        rows: in the order of the experiment, those without results too.
        curves: for each variant the rounds of training, means over its seeds.
        sentences: how many test sentences are of each group of lengths.
        signatures: how BLEU, chrF and the significance were computed.
        environments: where, each once.
    """

    rows: tuple[Row, ...]
    curves: dict[str, list[dict[str, float]]]
    sentences: dict[str, int]
    signatures: dict[str, str]
    environments: list[dict[str, str]]


def collect(experiment: Experiment, runs: Sequence[Run]) -> Results:
    """The figures of all runs that are finished and translated.

    Raises:
        InputError: there is none, or two runs have different test text.
    """
    finished = [run for run in runs if run.is_finished]
    check_comparable(finished)
    done: dict[tuple[str, str], list[tuple[Run, Translations]]] = {}
    for variant in experiment.variants:
        for search in variant.searches:
            found = [
                (run, read_translations(run, search)) for run in finished if run.variant == variant
            ]
            done[variant.name, search] = [pair for pair in found if pair[1] is not None]
    pairs = [pair for row in done.values() for pair in row]
    if not pairs:
        raise InputError(f"{experiment.file}: no run is finished and translated yet")
    sources, references = zip(*pairs[0][0].folder.pairs("test"), strict=True)
    tokenize = pairs[0][0].variant.config.scoring.bleu_tokenize
    groups = length_groups(sources, experiment.lengths)
    p_values, test_signature = _p_values(
        [(search, row) for (_, search), row in done.items()], references, tokenize
    )
    rows, signatures = [], {}
    for variant, search in done:
        results = []
        for run, translations in done[variant, search]:
            scores = score(translations.texts, references, tokenize)
            signatures = {"BLEU": scores.bleu_signature, "chrF": scores.chrf_signature}
            rounds = read_rounds(run)
            best = best_round(rounds, run.variant.config.train.best_by or "bleu")
            results.append(
                Result(
                    run.seed,
                    scores.bleu,
                    scores.chrf,
                    best["val_perplexity"],
                    translations.parameters,
                    tokens_per_second(rounds),
                    minutes(rounds),
                    translations.seconds,
                    bleu_by_length(groups, translations.texts, references, tokenize),
                    p_values.get((run.name, search)),
                )
            )
        name = _row_name(experiment, variant, search)
        rows.append(Row(name, variant, search, tuple(results)))
    environments = []
    for _, translations in pairs:
        if translations.environment not in environments:
            environments.append(translations.environment)
    return Results(
        tuple(rows),
        {
            variant.name: mean_rounds([read_rounds(run) for run in of_it])
            for variant in experiment.variants
            if (of_it := [run for run in finished if run.variant == variant])
        },
        {name: len(indices) for name, indices in groups.items()},
        signatures | ({"paired bootstrap": test_signature} if test_signature else {}),
        environments,
    )


def check_comparable(runs: Sequence[Run]) -> None:
    """Refuses runs that translate nothing, or whose test text is not the same.

    Raises:
        InputError: naming one of them.
    """
    for run in runs:
        run.folder.refuse_lines()
        if run.folder.text("test").read_bytes() != runs[0].folder.text("test").read_bytes():
            raise InputError(
                f"{run.folder.path}: has another test text than {runs[0].folder.path}, so they "
                "cannot be compared. Give the same data.test to all: put it in settings"
            )


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the sample standard deviation if there are two values or more.

    Of values that are not all finite, as the perplexity of a run that diverged, neither is.
    """
    if not all(map(math.isfinite, values)):
        return math.inf, math.nan if len(values) > 1 else None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def to_json(experiment: Experiment, results: Results) -> str:
    """All figures, for machines."""
    variants = {variant.name: variant for variant in experiment.variants}
    rows = []
    for row in results.rows:
        variant = variants[row.variant]
        means = {
            key.name: dict(zip(("mean", "spread"), spread(values), strict=True))
            for key in dataclasses.fields(Result)
            if row.results and key.name not in ("seed", "bleu_by_length", "p_value")
            for values in [[getattr(result, key.name) for result in row.results]]
        }
        rows.append(
            {
                "name": row.name,
                "variant": row.variant,
                "search": row.search,
                "settings": variant.settings,
                "options": variant.searches[row.search].words,
                "figures": means,
                "runs": [dataclasses.asdict(result) for result in row.results],
            }
        )
    content: dict[str, Any] = {
        "title": experiment.title,
        "question": experiment.question,
        "base": experiment.base,
        "settings": experiment.settings,
        "seeds": experiment.seeds,
        "rows": rows,
        "curves": results.curves,
        "sentences": results.sentences,
        "signatures": results.signatures,
        "environments": results.environments,
    }
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same for JSON, which knows no infinity: null stands for it."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _p_values(
    rows: Sequence[tuple[str, list[tuple[Run, Translations]]]],
    references: Sequence[str],
    tokenize: str,
) -> tuple[dict[tuple[str, str], float], str]:
    """By name of run and search, for all rows but the first; and how they were computed."""
    by_key, signature = {}, ""
    for run, baseline in rows[0][1]:
        others = {
            (other.name, key): translations.texts
            for key, row in rows[1:]
            for other, translations in row
            if other.seed == run.seed
        }
        if others:
            values, signature = paired_bootstrap(
                baseline.texts, list(others.values()), references, tokenize
            )
            by_key |= dict(zip(others, values, strict=True))
    return by_key, signature


def _row_name(experiment: Experiment, variant: str, search: str) -> str:
    if not search:
        return variant
    return search if len(experiment.variants) == 1 else f"{variant}, {search}"
