"""Running recorded runs again, so that anybody can check the evidence in minutes.

The first rounds of a run do not depend on how many follow: they are played again from the
experiment alone and compared with those that the record keeps.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from lff.experiments.build import build, choose_device
from lff.experiments.records import Record
from lff.metrics import PAPER_METRICS

# Another processor rounds otherwise in the last bits, which training makes larger. What a round
# then differs by, in Src-Acc, ASR and All-Acc; beyond it the round is another one.
TOLERANCE = 0.05
RATES = tuple(name for name in PAPER_METRICS if name != "test_error")


@dataclass(frozen=True)
class Repetition:
    """How the rounds of a record compare with those played again."""

    id: str
    rounds: int
    same_bits: bool
    same_peers_dropped: int  # rounds in which the same peers were dropped
    difference: float  # the largest of any rate in any round

    @property
    def holds(self) -> bool:
        """Whether they are the same, to the bit or to the tolerance."""
        return self.same_bits or self.difference <= TOLERANCE


def repeat(record: Record, rounds: int, *, device: str = "auto") -> Repetition:
    """Play the first rounds of a recorded run again, and compare."""
    e = record.experiment
    recorded = record.history[: min(rounds, e.rounds)]
    with closing(build(e, choose_device(device))) as federation:
        played = [federation.play_round() for _ in recorded]
    pairs = list(zip(recorded, played, strict=True))
    return Repetition(
        id=record.id,
        rounds=len(pairs),
        same_bits=recorded == played,
        same_peers_dropped=sum(old["dropped"] == new["dropped"] for old, new in pairs),
        difference=max(
            abs((old[name] or 0.0) - (new[name] or 0.0)) for old, new in pairs for name in RATES
        ),
    )


def spread_over(recorded: Sequence[Record], number: int) -> list[Record]:
    """So many of the records, evenly spaced in the order of their names."""
    ordered = sorted(recorded, key=lambda record: record.id)
    step = max(len(ordered) / number, 1)
    return [ordered[int(i * step)] for i in range(min(number, len(ordered)))]
