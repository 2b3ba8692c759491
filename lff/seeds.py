"""Independent random streams, one per purpose, derived from a run's seed.

No stream touches global random state, and none depends on what was drawn before:
the shuffle of peer 7 in round 3 is the same whether or not the other peers were
trained in this process, which is what makes a resumed or parallel run the same run.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Words = TypeVar("Words", int, Tensor)
WORD = 0xFFFFFFFF  # 32 bits


def stream(seed: int, purpose: str, *index: int) -> int:
    """A 63-bit seed for one purpose (and round, peer, ... in `index`) of a run."""
    name = "/".join([str(seed), purpose, *map(str, index)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """A NumPy generator on its own stream."""
    return np.random.default_rng(stream(seed, purpose, *index))


def torch_generator(
    seed: int, purpose: str, *index: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A torch generator on its own stream, on the device that will draw from it."""
    return torch.Generator(device=device).manual_seed(stream(seed, purpose, *index))


@contextlib.contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Let what draws from torch's global generator (initializers, a user's dropout) draw from this
    seed, and put the generator back as it was."""
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a millisecond
        if on_gpu:
            torch.cuda.manual_seed(seed)
        yield


def scramble(words: Words) -> Words:
    """Mix the bits of 32-bit words so that neighbors have nothing in common.

    The integer hash "lowbias32" of C. Wellons' hash-prospector. A product's higher bits, which may
    wrap around in a tensor of int64, are not looked at.
    """
    words = words ^ (words >> 16)
    words = (words * 0x7FEB352D) & WORD
    words = words ^ (words >> 15)
    words = (words * 0x846CA68B) & WORD
    return words ^ (words >> 16)


def random_words(key: int | Tensor, step: int, count: int, device: torch.device | str) -> Tensor:
    """`count` random 32-bit words, as int64, that depend on the key, the step and their index.

    Counter-based: no generator with a state, so they are the same on every device and however many
    are drawn. A tensor of keys gives a row for each, `[keys, count]`, in the same few operations.
    """
    state: Any = scramble(scramble(scramble(key & WORD) ^ (key >> 32)) ^ step)  # type: ignore[type-var]
    if isinstance(state, Tensor):
        state = state.to(device).unsqueeze(1)
    return scramble(scramble(torch.arange(count, device=device)) ^ state)
