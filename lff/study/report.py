"""Short readable texts for the command line: a run's summary, and what there is."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lff.experiments.benchmarks import BENCHMARKS
from lff.data import available, verify
from lff.paths import data_dir, results_dir
from lff.experiments.scales import SCALES


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Rows of cells as aligned columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def summarize(record) -> str:
    """What a run came to, in a few lines."""
    from lff.defenses import get_defense
    from lff.metrics import averaged_rounds
    from lff.experiments.records import path_of

    e, row = record.experiment, record.summary()
    lines = [
        f"{BENCHMARKS[e.benchmark].label}, {get_defense(e.defense).label}, "
        f"{e.attackers:g}% attackers ({len(record.attackers)} of {e.peers} peers), seed {e.seed}",
        f"data: {row['data_source']}; scale: {e.scale}, {e.rounds} rounds",
        f"average of the last rounds ({averaged_rounds(e.rounds)}):",
        table(
            [
                ("TE", f"{row['test_error']:.3f}"),
                ("All-Acc", f"{row['all_acc']:.1%}"),
                ("Src-Acc", f"{row['src_acc']:.1%} (worst {row['worst_src_acc']:.1%})"),
                ("ASR", f"{row['asr']:.1%}"),
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
    """Benchmarks, defenses, attacks, scales, and how many runs are recorded of each."""
    from lff.attacks import attacks
    from lff.experiments.benchmarks import experiment
    from lff.defenses import defenses
    from lff.experiments.records import iterate

    recorded = Counter()
    for record in iterate():
        e = record.experiment
        kinds = ("benchmark", "defense", "attack", "scale")
        recorded.update((kind, getattr(e, kind)) for kind in kinds)
    benchmarks = [("benchmark", "data set", "distribution", "source -> target", "records")]
    for b in BENCHMARKS.values():
        attack = f"{b.source_class} -> {b.target_class}"
        count = recorded["benchmark", b.name]
        benchmarks.append((b.name, b.dataset, b.distribution, attack, count))
    rules = [("defense", "in figures", "options", "records")]
    for d in defenses().values():
        options = ", ".join(f"{name}={value}" for name, value in d.options().items())
        rules.append((d.name, d.label, options, recorded["defense", d.name]))
    poisons = [("attack", "records"), *((name, recorded["attack", name]) for name in attacks())]
    scales = [("scale", "data", "MNIST-iid", "CIFAR10-iid", "IMDB", "records")]
    for scale in SCALES:
        of = [experiment(name, scale=scale) for name in ("mnist-iid", "cifar10-iid", "imdb")]
        sizes = [f"{e.peers} peers, {e.rounds} rounds" for e in of]
        scales.append((scale, of[0].data, *sizes, recorded["scale", scale]))
    parts = [table(rows) for rows in (benchmarks, rules, poisons, scales)]
    return "\n\n".join([*parts, f"  records: {results_dir()}"])


def data_listing(names: Sequence[str]) -> str:
    """Which data sets are in the cache, by names and sizes."""
    rows = [("data set", "in the cache", "files", "MB")]
    for name in names:
        report = available(name)
        files = [file for file in report.files if file.state == "present"]
        size = sum(file.size for file in files) / 1e6
        rows.append((name, "yes" if report.complete else "no", len(files), f"{size:.0f}"))
    return f"{table(rows)}\n\n  cache: {data_dir()}"


def data_verification(names: Sequence[str]) -> tuple[str, bool]:
    """The state of every cached file, hashed; and whether all data sets are complete."""
    reports = [verify(name) for name in names]
    rows = [("data set", "file", "state", "")]
    rows += [(r.name, file.name, file.state, file.reason) for r in reports for file in r.files]
    return table(rows), all(report.complete for report in reports)
