"""FLTrust: peers are trusted as far as they agree with what the server learns from clean examples.

X. Cao et al., "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping", NDSS 2021,
Algorithm 2.
"""

import torch

from lff.beyond.defenses.gradients import lengths, step
from lff.defenses import defense
from lff.defenses.geometry import cosines
from lff.errors import InputError
from lff.updates import Decision, Updates


@defense("fltrust", label="FLTrust", needs=("root_update",))
def fltrust(updates: Updates, *, root_examples: int = 100) -> Decision:
    """Average the peers' gradients at the length of the server's own, g_0, weighed by trust.

    The server trains on a root set of clean examples as peers do on theirs. A peer's trust is
    max(cos(g_k, g_0), 0). If nobody is trusted, all weigh the same.
    """
    if root_examples < 1:
        raise InputError(f"root_examples must be 1 or more, not {root_examples!r}")
    n = updates.layout.parameters
    root = updates.told("root_update")(root_examples)[:n]
    own = (updates.global_weights[:n] - root) / updates.learning_rate  # g_0
    agreement = cosines(torch.cat([own.unsqueeze(0), updates.gradients]))[0, 1:]
    trust = agreement.clamp(min=0)
    shares = torch.where(trust.sum() > 0, trust, 1)
    shares = shares / shares.sum()
    size = lengths(updates.gradients)
    scale = own.double().norm() / torch.where(size > 0, size, 1)
    average = (shares * scale) @ updates.gradients.double()
    return Decision(step(updates, average.float()), weights=shares.float(), scores=1 - agreement)
