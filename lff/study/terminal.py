"""What the command line prints: a run's summary, and what there is."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lff.data import available, verify
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import SCALES
from lff.paths import data_dir, results_dir

if TYPE_CHECKING:
    from lff.experiments.records import Record


def columns(rows: Sequence[Sequence[Any]]) -> str:
    """Rows of cells as aligned columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def summarize(record: "Record") -> str:
    """What a run came to, in a few lines."""
    from lff.experiments.records import path_of
    from lff.metrics import METRICS, averaged_rounds
    from lff.study.frame import benchmark_label, defense_label, load_runs

    e = record.experiment
    row = load_runs([e]).iloc[0]
    lines = [
        f"{benchmark_label(e.benchmark)}, {defense_label(e.defense)}, "
        f"{e.attackers:g}% attackers ({len(record.attackers)} of {e.peers} peers), seed {e.seed}",
        f"data: {row['data_source']}; scale: {e.scale}, {e.rounds} rounds",
        f"average of the last rounds ({averaged_rounds(e.rounds)}):",
        columns(
            [
                ("TE", f"{row['test_error']:.3f}"),
                ("All-Acc", f"{row['all_acc']:.1%}"),
                ("Src-Acc", f"{row['src_acc']:.1%} (worst {row['worst_src_acc']:.1%})"),
                ("ASR", f"{row['asr']:.1%}"),
                *((METRICS.label(name), f"{row[name]:.3f}") for name in METRICS),
            ]
        ),
        f"CV of Src-Acc over all rounds: {row['cv']:.2f}",
    ]
    if any(entry["dropped"] for entry in record.history):
        last = record.history[-1]["caught"]
        lines.append(
            f"dropped in the last round: {last['true_positives']} of {last['attackers']} "
            f"attackers, {last['false_positives']} of {last['honest']} honest peers"
        )
    lines.append(f"{row['seconds']:.0f} s; record: {path_of(e)}")
    return "\n".join(lines)


def overview() -> str:
    """Benchmarks, defenses, attacks, metrics, hooks and scales, and how many runs are recorded."""
    import lff
    from lff.attacks import ATTACKS
    from lff.defenses import DEFENSES
    from lff.experiments.hooks import HOOKS
    from lff.experiments.records import iterate
    from lff.metrics import METRICS, PAPER_METRICS

    recorded: Counter[tuple[str, str]] = Counter()
    for record in iterate():
        e = record.experiment
        kinds = ("benchmark", "defense", "attack", "scale")
        recorded.update((kind, getattr(e, kind)) for kind in kinds)
    benchmarks: list[Sequence[Any]] = [
        ("benchmark", "data set", "distribution", "source -> target", "records")
    ]
    for b in BENCHMARKS.values():
        attack = f"{b.source_class} -> {b.target_class}"
        count = recorded["benchmark", b.name]
        benchmarks.append((b.name, b.dataset, b.distribution, attack, count))
    rules: list[Sequence[Any]] = [("defense", "in figures", "options", "records")]
    for d in DEFENSES.values():
        options = ", ".join(f"{name}={value}" for name, value in d.options().items())
        rules.append((d.name, d.label, options, recorded["defense", d.name]))
    poisons: list[Sequence[Any]] = [("attack", "in figures", "knows", "records")]
    for a in ATTACKS.values():
        poisons.append((a.name, a.label, a.knows, recorded["attack", a.name]))
    measured = [("metric", "in figures"), *PAPER_METRICS.items()]
    measured += [(name, entry.label) for name, entry in METRICS.items()]
    noted = [("hook",), *((name,) for name in HOOKS)] if len(HOOKS) else []
    scales: list[Sequence[Any]] = [("scale", "data", "MNIST-iid", "CIFAR10-iid", "IMDB", "records")]
    for scale in SCALES:
        of = [lff.experiment(name, scale=scale) for name in ("mnist-iid", "cifar10-iid", "imdb")]
        sizes = [f"{e.peers} peers, {e.rounds} rounds" for e in of]
        scales.append((scale, of[0].data, *sizes, recorded["scale", scale]))
    tables = (benchmarks, rules, poisons, measured, noted, scales)
    listings = [columns(rows) for rows in tables if rows]
    return "\n\n".join([*listings, f"  records: {results_dir()}"])


def data_listing(names: Sequence[str]) -> str:
    """Which data sets are in the cache, by names and sizes."""
    rows: list[Sequence[Any]] = [("data set", "in the cache", "files", "MB")]
    for name in names:
        report = available(name)
        files = [file for file in report.files if file.state == "present"]
        size = sum(file.size for file in files) / 1e6
        rows.append((name, "yes" if report.complete else "no", len(files), f"{size:.0f}"))
    return f"{columns(rows)}\n\n  cache: {data_dir()}"


def data_verification(names: Sequence[str]) -> tuple[str, bool]:
    """The state of every cached file, hashed; and whether all data sets are complete."""
    reports = [verify(name) for name in names]
    rows: list[Sequence[Any]] = [("data set", "file", "state", "")]
    rows += [(r.name, file.name, file.state, file.reason) for r in reports for file in r.files]
    return columns(rows), all(report.complete for report in reports)
