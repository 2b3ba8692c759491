"""Further attacks, one file per family. Each says what its attackers know.

| attack | family | attackers know | what it is judged by |
| --- | --- | --- | --- |
| `partial` | labels | own data | Src-Acc, ASR |
| `several_pairs` | labels | own data | All-Acc, TE |
| `all_to_one` | labels | own data | All-Acc, TE, ASR |
| `random_labels`, `inverse_labels`, `dynamic_labels` | labels | own data | All-Acc, TE |
| `badnets` | features | own data | ASR on patched examples |
| `boosted` | updates | own data | Src-Acc, ASR |
| `alie` | updates | attackers' updates | All-Acc, TE |
| `ipm`, `mimic`, `min_max`, `min_sum` | updates | all updates | All-Acc, TE |
| `sybil_noise` | updates | attackers' updates | Src-Acc, ASR |
| `proximal`, `decoy`, `early`, `late`, `turns` | adaptive | own data | Src-Acc, ASR |
| `noisy_neurons`, `copied_row` | adaptive | own data | Src-Acc, ASR |
| `rescaled_neurons`, `disguised_row` | adaptive | all updates | Src-Acc, ASR |

Keeping a share of the true source labels, the first thing to try against LFighter, is `partial`.
"""

from lff.beyond.attacks.adaptive import (
    CopiedRow,
    Decoy,
    DisguisedRow,
    Early,
    Late,
    NoisyNeurons,
    Proximal,
    RescaledNeurons,
    Turns,
)
from lff.beyond.attacks.features import BadNets
from lff.beyond.attacks.labels import (
    SeveralPairs,
    all_to_one,
    dynamic_labels,
    inverse_labels,
    partial_flip,
    random_labels,
)
from lff.beyond.attacks.updates import (
    ALIE,
    IPM,
    Boosted,
    Mimic,
    MinMax,
    MinSum,
    SybilNoise,
)

__all__ = [
    "ALIE",
    "IPM",
    "BadNets",
    "Boosted",
    "CopiedRow",
    "Decoy",
    "DisguisedRow",
    "Early",
    "Late",
    "Mimic",
    "MinMax",
    "MinSum",
    "NoisyNeurons",
    "Proximal",
    "RescaledNeurons",
    "SeveralPairs",
    "SybilNoise",
    "Turns",
    "all_to_one",
    "dynamic_labels",
    "inverse_labels",
    "partial_flip",
    "random_labels",
]
