"""What an experiment showed, as a page that people read."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from training.compare.experiment import Experiment, option_words
from training.compare.pictures import draw
from training.compare.results import Result, Results, Row, collect, spread, to_json
from training.compare.runs import Run

_NONE = "-"

_COLUMNS: tuple[tuple[str, Callable[[Result], float], str], ...] = (
    ("BLEU", lambda result: result.bleu, ".2f"),
    ("chrF", lambda result: result.chrf, ".2f"),
    ("perplexity", lambda result: result.perplexity, ".2f"),
)
_COSTS: tuple[tuple[str, Callable[[Result], float], str], ...] = (
    ("tokens/s", lambda result: result.tokens_per_second, ",.0f"),
    ("minutes", lambda result: result.minutes, ".1f"),
    ("seconds to translate", lambda result: result.translation_seconds, ".2f"),
)


def figures_table(rows: Sequence[Row]) -> str:
    """The main figures as a Markdown table: means, spreads and p-values."""
    names = [name for name, _, _ in _COLUMNS]
    header = ["", *names[:1], "p", *names[1:], "parameters", *(name for name, _, _ in _COSTS)]
    lines = []
    for number, row in enumerate(rows):
        cells = [_cell(row.results, value, form) for _, value, form in _COLUMNS]
        p_values = [
            _NONE if result.p_value is None else f"{result.p_value:.3f}" for result in row.results
        ]
        cells.insert(1, "" if number == 0 else ", ".join(p_values) or _NONE)
        # Sizes do not differ by seeds.
        cells.append(_cell(row.results[:1], lambda result: result.parameters, ",.0f"))
        cells += [_cell(row.results, value, form) for _, value, form in _COSTS]
        lines.append([row.name, *cells])
    return _table(header, lines)


def lengths_table(rows: Sequence[Row], sentences: dict[str, int]) -> str:
    """BLEU by the length of the source as a Markdown table: means and spreads."""
    header = ["words", *(f"{name} ({count:,})" for name, count in sentences.items())]
    lines = [
        [
            row.name,
            *(
                _cell(row.results, lambda result, name=name: result.bleu_by_length[name], ".2f")
                for name in sentences
            ),
        ]
        for row in rows
    ]
    return _table(header, lines)


def to_markdown(
    experiment: Experiment, runs: Sequence[Run], results: Results, pictures: Sequence[str]
) -> str:
    """The whole report.

    Args:
        experiment: what was asked.
        runs: all that belong to it.
        results: what came out so far.
        pictures: names of the picture files beside it.
    """
    parts = [f"# {experiment.title}", experiment.question, figures_table(results.rows)]
    parts.append(_reading(experiment, results))
    missing = [run.name for run in runs if not run.is_finished]
    if missing:
        parts.append(f"Not finished, so not in these figures: {', '.join(missing)}.")
    reported = {
        (row.variant, row.search, result.seed) for row in results.rows for result in row.results
    }
    untranslated = [
        run.name if len(run.variant.searches) == 1 else f"{run.name} ({search})"
        for run in runs
        for search in run.variant.searches
        if run.is_finished and (run.variant.name, search, run.seed) not in reported
    ]
    if untranslated:
        parts.append(f"Not translated, so not in these figures: {', '.join(untranslated)}.")
    curves = [name for name in pictures if name.startswith("curves")]
    parts += [f"![Validation during training, means over the seeds]({name})" for name in curves]
    parts += ["## BLEU by the length of the source", lengths_table(results.rows, results.sentences)]
    parts.append("In brackets: how many test sentences have so many words.")
    others = [name for name in pictures if name not in curves]
    parts += [f"![BLEU by the length of the source]({name})" for name in others]
    parts += ["## What was compared", *_compared(experiment), "## Where", *_where(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_report(experiment: Experiment, runs: Sequence[Run], folder: Path) -> str:
    """Writes report.md, its pictures and results.json into a folder, from the run folders there.

    Args:
        experiment: what was asked.
        runs: all that belong to it.
        folder: where to.

    Returns:
        What to tell on a terminal.

    Raises:
        InputError: no run is finished, or what runs left does not go together.
    """
    results = collect(experiment, runs)
    pictures = draw(results, folder)
    report = to_markdown(experiment, runs, results, pictures)
    (folder / "report.md").write_text(report, "utf-8")
    (folder / "results.json").write_text(to_json(experiment, results), "utf-8")
    files = "  ".join(["report.md", *pictures, "results.json", "logs/"])
    return f"{figures_table(results.rows)}\n\nin {folder}: {files}"


def _reading(experiment: Experiment, results: Results) -> str:
    seeds = experiment.seeds
    several = len(seeds) > 1
    number = f"{len(seeds)} seeds ({', '.join(map(str, seeds))})" if several else "one seed"
    sentences = [
        f"Test text, {sum(results.sentences.values()):,} sentences; perplexity of the validation "
        f"text; {number}."
    ]
    if several:
        sentences.append("Means ± standard deviations over the seeds.")
    if "paired bootstrap" in results.signatures:
        sentences.append(
            "p: of sacreBLEU's paired bootstrap on BLEU against the first row, for each seed by "
            "itself; it says how sure a difference of two runs is beyond the choice of the test "
            "sentences. How much runs of one variant differ is in ±."
        )
    if not several:
        sentences.append("With one seed nothing says how much runs of one variant differ.")
    return " ".join(sentences)


def _compared(experiment: Experiment) -> Iterable[str]:
    common = shlex.join([experiment.base, *option_words(experiment.settings)])
    yield "Each variant is this, with `--train.seed` of each seed and what stands beside its name:"
    yield f"```bash\npython -m training.run {common}\n```"
    yield _table(
        ["", "settings"],
        [[variant.name, _code(option_words(variant.settings))] for variant in experiment.variants],
        "---",
    )
    searches = {
        name: search.words
        for variant in experiment.variants
        for name, search in variant.searches.items()
        if name
    }
    if searches:
        yield "Its translations of the test text are made with `python -m kformer.translate` and:"
        yield _table(
            ["", "options"], [[name, _code(words)] for name, words in searches.items()], "---"
        )


def _code(words: Sequence[str]) -> str:
    return f"`{shlex.join(words)}`" if words else "none"


def _where(results: Results) -> Iterable[str]:
    for environment in results.environments:
        yield "  \n".join(environment.values())
    yield "  \n".join(f"{name}: {text}" for name, text in results.signatures.items())


def _cell(results: Sequence[Result], value: Callable[[Result], float], form: str) -> str:
    if not results:
        return _NONE
    mean, deviation = spread([value(result) for result in results])
    return f"{mean:{form}}" + ("" if deviation is None else f" ± {deviation:{form}}")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> str:
    lines = [header, ["---", *[align] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
