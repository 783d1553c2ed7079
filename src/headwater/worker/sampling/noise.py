"""Noise that is a pure function of (seed, index in the answer); it knows no shared state.

One uniform number for each token is enough: the token is found by inverting the cumulative
distribution over ids. Noise for every entry of the vocabulary (the Gumbel trick) would take 100,000
hashes and logarithms for each token and be no more exact. The generator is SplitMix64 (Steele, Lea,
Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014), entered at two points: the seed
is mixed first, then the index.
"""

__all__ = ["uniform"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    """SplitMix64's output function."""
    z = (z + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) with 53 random bits.

    Args:
        seed: The request's seed, any 64-bit integer.
        index: Index of the token in the answer.
    """
    return (_mix(_mix(seed & _MASK) ^ (index & _MASK)) >> 11) * 2.0**-53
