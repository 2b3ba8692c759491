"""One self-contained page of the study: what came of it first, then all executed notebooks.

It needs no network and has no scripts.
"""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pandas as pd
from nbconvert import HTMLExporter
from pygments.formatters import HtmlFormatter

from lff.store import claim, write_atomically

_STYLE = """
body { font: 16px/1.55 Georgia, serif; color: #222; margin: 0; display: flex; }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; flex: 0 0 17em; padding: 1.5em;
      box-sizing: border-box; background: #f5f5f2; font: 14px/1.35 sans-serif; }
nav a { color: #0072B2; text-decoration: none; display: block; margin-top: .6em; }
main { max-width: 56em; padding: 1em 3em 6em; min-width: 0; }
section { border-top: 3px solid #222; margin-top: 4em; padding-top: 1em; }
section:first-child { border: none; margin: 0; padding: 0; }
h1, h2, h3 { font-family: sans-serif; line-height: 1.25; }
pre { font-size: 12.5px; line-height: 1.4; overflow-x: auto; background: #f7f7f7;
      padding: .7em 1em; }
.output_wrapper pre, .jp-OutputArea pre { background: none; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font: 13px/1.5 sans-serif; display: block; overflow-x: auto;
        border: none; }
td, th { padding: .2em .7em; text-align: right; border: none; border-bottom: 1px solid #ddd; }
#first img { max-height: 24em; width: auto; }
#first td, #first th, tbody th { text-align: left; }
.prompt, .jp-InputPrompt, .jp-OutputPrompt, .anchor-link { display: none; }
@media (max-width: 800px) { body { display: block; } nav { position: static; height: auto; }
                            main { padding: 1em 1em 4em; } td { min-width: 6em; } }
"""


LEAD = (
    "Peers train one model together, and a server averages their updates. Attackers among them "
    "relabel their examples of one class as another. LFighter divides the peers into two clusters "
    "by their gradients of two output neurons, and drops the cluster that looks like the "
    "attackers. Does it defend? This page is of the runs recorded at scale {scale}."
)

# What the page opens with, by the names under which notebooks saved it, and what is said of it.
FIRST = {
    "saved_and_lost": "LFighter on MNIST-Mild at 40% attackers. Green: it dropped attackers. Dark "
    "red: honest peers instead; if to the end, the attacked class is lost.",
    "profiles": "The share of attacked runs that kept at least so much of the attacked class.",
    "claims_by_subject": "What the paper finds, each finding counted once, and whether it holds.",
    "claims_primary": "The claims that were named before their runs.",
}


def write_report(executed: Sequence[Path], path: Path, scale: str, drawn: Path) -> Path:
    """Join executed notebooks, in this order, into one HTML page with a table of contents.

    It opens with what is `FIRST` in the folder of figures and tables that the notebooks have drawn.
    """
    exporter = HTMLExporter(template_name="basic", exclude_input_prompt=True)
    exporter.exclude_output_prompt = True
    first = "".join(_shown(drawn / name, text) for name, text in FIRST.items())
    links, sections = [], []
    if first:
        links.append('<a href="#first">In short</a>')
        lead = f"<p>{LEAD.format(scale=scale)}</p>"
        sections.append(f'<section id="first"><h1>In short</h1>{lead}{first}</section>')
    for notebook_path in executed:
        notebook = nbformat.read(notebook_path, as_version=4)
        title = html.escape(_title(notebook, notebook_path.stem))
        body, _ = exporter.from_notebook_node(notebook)
        links.append(f'<a href="#{notebook_path.stem}">{title}</a>')
        sections.append(f'<section id="{notebook_path.stem}">{body}</section>')
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The label-flipping study, scale {scale}</title>
<style>{_STYLE}{HtmlFormatter().get_style_defs(".highlight")}</style></head>
<body><nav><strong>lff, scale {scale}</strong>{"".join(links)}</nav>
<main>{"".join(sections)}</main></body></html>
"""
    with claim(path):
        write_atomically(path, page.encode())
    return path


def _shown(stem: Path, text: str) -> str:
    """A picture or table by the name it was saved under, with what it says; nothing if it is not
    there."""
    picture, table = stem.with_suffix(".png"), stem.with_suffix(".csv")
    if picture.exists():
        data = base64.b64encode(picture.read_bytes()).decode()
        shown = f'<img alt="{html.escape(text)}" src="data:image/png;base64,{data}">'
    elif table.exists():
        shown = pd.read_csv(table).to_html(index=False, na_rep="", border=0)
    else:
        return ""
    return f"<p>{html.escape(text)}</p>{shown}"


def _title(notebook: nbformat.NotebookNode, fallback: str) -> str:
    """The first heading of a notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("# "):
            return cell.source.splitlines()[0].removeprefix("# ")
    return fallback
