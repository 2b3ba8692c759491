"""The paper's claims as data, and one judge for them all.

    verdicts = claims.judge(runs, rounds, silhouettes)
    claims.facts(verdicts)

`claims.toml` has the sentences with scope, measure and threshold, `measures` what is computed of
one seed, `verdicts` how the answers of the seeds become a verdict.
"""

from lff.study.claims.claim import CLAIMS, SUBJECTS, Claim
from lff.study.claims.verdicts import VERDICTS, by_its_own_numbers, facts, judge, tally

__all__ = [
    "CLAIMS",
    "SUBJECTS",
    "VERDICTS",
    "Claim",
    "by_its_own_numbers",
    "facts",
    "judge",
    "tally",
]
