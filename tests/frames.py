"""Frames of runs and of rounds, made up by hand."""

import pandas as pd

import lff

RUN = ("benchmark", "defense", "attackers", "seed")


def runs(*rows, **columns) -> pd.DataFrame:
    """One row per (benchmark, defense, attackers, seed), with these columns set otherwise."""
    table = pd.DataFrame(rows, columns=RUN).assign(
        id=[f"run{i}" for i in range(len(rows))], data_source="made up", width=0, rounds=10,
        test_error=1.0, all_acc=0.9, src_acc=0.5, asr=0.25, cv=0.5,
        true_positive_rate=0.5, false_positive_rate=0.25, aggregation_seconds=1.0, seconds=20.0,
    )  # fmt: skip
    return table.assign(**columns)


def rounds_of(
    benchmark="mnist-mild",
    defense="lfighter",
    attackers=40.0,
    seed=0,
    *,
    peers=10,
    dropped=(),
    src_acc=None,
    saw=None,
    classes=10,
) -> pd.DataFrame:
    """The rounds of one run in which these (attackers, honest peers) were dropped, round by round.

    `saw` is for all rounds, or one per round.
    """
    known = lff.experiment(benchmark, scale="smoke")
    number = len(src_acc) if src_acc is not None else len(dropped)
    bad = round(attackers / 100 * peers)
    dropped = dropped or [(0, 0)] * number
    saw = [saw or {}] * number if not isinstance(saw, list) else saw
    return pd.DataFrame(
        {
            "id": f"{benchmark}_{defense}_{attackers:g}_seed{seed}", "benchmark": benchmark,
            "scale": "smoke", "defense": defense, "attackers": float(attackers), "seed": seed,
            "distribution": known.distribution, "rounds": number, "width": 0,
            "source_class": known.source_class, "target_class": known.target_class,
            "round": range(number), "src_acc": src_acc if src_acc is not None else 0.8,
            "true_positives": [float(b) for b, _ in dropped],
            "false_positives": [float(h) for _, h in dropped],
            "present_attackers": float(bad), "present_honest": float(peers - bad),
            "relevant": 2.0, "non_relevant": 1.0 if classes > 2 else float("nan"),
            "saw": saw, "data_source": "made up",
        }
    )  # fmt: skip
