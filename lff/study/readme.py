"""Put the committed tables of `figures/` into the README: `python -m lff.study.readme`.

A block between `<!-- figures/... -->` and `<!-- end -->` becomes the table of that file, without
its caption; the share of the grid becomes that of `figures/laptop/filled.csv`. `make evidence` does
it at its end.
"""

import csv
import re
from pathlib import Path

from lff.paths import home_dir

BLOCK = re.compile(r"<!-- (figures/\S+) -->\n.*?<!-- end -->", re.DOTALL)
SHARE = re.compile(r"\d+ of the 252 cells")


def refreshed(readme: str, home: Path) -> str:
    """The README with the tables as they are now below this folder."""

    def block(found: re.Match[str]) -> str:
        table, _, _ = (home / found[1]).read_text(encoding="utf-8").partition("\n\n")
        return f"<!-- {found[1]} -->\n{table}\n<!-- end -->"

    with (home / "figures/laptop/filled.csv").open(encoding="utf-8") as file:
        cells = sum(int(row["cells recorded"]) for row in csv.DictReader(file))
    return SHARE.sub(f"{cells} of the 252 cells", BLOCK.sub(block, readme))


if __name__ == "__main__":
    path = home_dir() / "README.md"
    path.write_text(refreshed(path.read_text(encoding="utf-8"), home_dir()), encoding="utf-8")
