"""The claims of the paper's Results section, and of its rationale, as executable checks.

    lff.study.claims.check_all(lff.results(experiments), rounds)

gives one row per claim: does it hold in these runs, and by which numbers? Attacker ratios at which
not all methods were run are left out, and the answer says so. A check tests what the paper's
sentence says and not more; `measures` says what its words ("robust", "close") are taken to mean.
Claims about what a picture of gradients shows (PCA, angles) are not in the records; the
notebooks look at those.
"""

# Importing these registers their claims.
from lff.study.claims import cifar10_imdb, extreme, mnist, several, stability  # noqa: F401
from lff.study.claims.other_seeds import agreement, changed, in_other_seeds
from lff.study.claims.own_numbers import by_its_own_numbers
from lff.study.claims.registry import ANSWERS, CLAIMS, Verdict
from lff.study.claims.verdicts import check_all, tally

__all__ = [
    "ANSWERS",
    "CLAIMS",
    "Verdict",
    "agreement",
    "by_its_own_numbers",
    "changed",
    "check_all",
    "in_other_seeds",
    "tally",
]
