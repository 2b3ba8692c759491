"""Put what `figures/` says into the README and the findings: `python -m lff.study.readme`.

A block between `<!-- figures/... -->` and `<!-- end -->` becomes the table of that file, without
its caption. What stands between `<!-- =name -->` and `<!-- / -->` becomes the entry of that name in
`figures/laptop/numbers_*.json`, which notebooks write (`p.numbers`). What stands between
`<!-- lines patterns -->` and `<!-- / -->` becomes how many lines these files have, in hundreds.
"""

import json
import re
from pathlib import Path

from lff.paths import home_dir

PAGES = ("README.md", "docs/findings.md", "docs/holds.md")
BLOCK = re.compile(r"<!-- (figures/\S+) -->\n.*?<!-- end -->", re.DOTALL)
NUMBER = re.compile(r"<!-- =(\w+) -->.*?<!-- / -->", re.DOTALL)
LINES = re.compile(r"<!-- lines ([^>]+) -->([\d,]+)<!-- / -->")
NEAR = 0.1  # a number of lines is stale when it is off by more than this share


def refreshed(page: str, home: Path) -> str:
    """A page with the tables, numbers and sizes as they are now below this folder."""
    numbers: dict[str, str] = {}
    for path in sorted((home / "figures/laptop").glob("numbers_*.json")):
        numbers |= json.loads(path.read_text(encoding="utf-8"))

    def table(found: re.Match[str]) -> str:
        text, _, _ = (home / found[1]).read_text(encoding="utf-8").partition("\n\n")
        return f"<!-- {found[1]} -->\n{text}\n<!-- end -->"

    def number(found: re.Match[str]) -> str:
        return f"<!-- ={found[1]} -->{numbers[found[1]]}<!-- / -->"

    def lines(found: re.Match[str]) -> str:
        files = {path for pattern in found[1].split() for path in home.glob(pattern)}
        count = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        if abs(int(found[2].replace(",", "")) - count) <= NEAR * count:
            return found[0]
        return f"<!-- lines {found[1]} -->{round(count, -2):,}<!-- / -->"

    return LINES.sub(lines, NUMBER.sub(number, BLOCK.sub(table, page)))


if __name__ == "__main__":
    for name in PAGES:
        path = home_dir() / name
        page = path.read_text(encoding="utf-8")
        path.write_text(refreshed(page, home_dir()), encoding="utf-8")
