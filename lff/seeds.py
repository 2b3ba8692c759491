"""Independent random streams, one per purpose, derived from a run's seed.

No stream touches global random state, and none depends on what was drawn before:
the shuffle of peer 7 in round 3 is the same whether or not the other peers were
trained in this process, which is what makes a resumed or parallel run the same run.
"""

import hashlib

import numpy as np
import torch


def stream(seed: int, purpose: str, *index: int) -> int:
    """A 63-bit seed for one purpose (and round, peer, ... in `index`) of a run."""
    name = "/".join([str(seed), purpose, *map(str, index)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """A NumPy generator on its own stream."""
    return np.random.default_rng(stream(seed, purpose, *index))


def torch_generator(
    seed: int, purpose: str, *index: int, device: torch.device | str = "cpu"
) -> torch.Generator | None:
    """A torch generator on its own stream, on the device that will draw from it.

    None for the `meta` device, which holds no numbers to draw.
    """
    if torch.device(device).type == "meta":
        return None
    return torch.Generator(device=device).manual_seed(stream(seed, purpose, *index))
