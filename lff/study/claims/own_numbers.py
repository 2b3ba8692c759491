"""The paper's claims judged by the paper's own numbers, where it reports them."""

import pandas as pd

from lff.study import paper
from lff.study.claims.registry import NOT_RUN
from lff.study.claims.verdicts import check_all


def by_its_own_numbers() -> pd.Series:
    """The answer to each claim by what is read off the paper's figures, its table of CV and the
    authors' running times; claims that need other numbers are left out."""
    runtime = paper.runtime().assign(attackers=30.0)
    runtime["aggregation_seconds"] = runtime["total"]
    tables = [paper.robustness(), paper.cv(), runtime]
    judged = pd.concat(check_all(table.assign(seed=0)) for table in tables)
    judged = judged[judged["answer"] != NOT_RUN]
    return judged.set_index("claim")["answer"].rename("by the paper's numbers")
