"""The explorer in a real browser: its slider moves the picture."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lff

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).parents[1]
NOTEBOOK = "10_explorer.ipynb"
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab that has a copy of the notebook."""
    shutil.copy(ROOT / "notebooks" / NOTEBOOK, tmp_path)
    runtime = tmp_path / "runtime"
    options = "--no-browser --allow-root --port=0 --ServerApp.port_retries=50"
    command = [sys.executable, "-m", "jupyterlab", *options.split(), f"--notebook-dir={tmp_path}"]
    own = {"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    own |= {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    server = subprocess.Popen(
        command, env=os.environ | own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        for line in server.stderr:
            if found := re.search(r"http://\S+/lab\?token=\w+", line):
                yield found[0].replace("/lab?", f"/lab/tree/{NOTEBOOK}?")
                break
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="there is no browser")
def test_the_slider_moves_the_picture(lab, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no Playwright")
    for defense in ("fedavg", "lfighter"):
        lff.run("mnist-mild", defense=defense, attackers=40, scale="smoke", progress=False)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS.split())
        page = browser.new_page(viewport={"width": 1300, "height": 1500})
        page.set_default_timeout(240_000)
        page.goto(lab)
        page.locator(".jp-Notebook h1").first.wait_for()  # its name also stands in a hidden list
        page.get_by_text("| Idle").first.wait_for()  # before, nothing runs
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        image = page.locator("img.widget-image")
        image.wait_for(state="attached")
        image.scroll_into_view_if_needed()
        first = image.get_attribute("src")
        handle = page.locator(".widget-slider .noUi-handle").first
        handle.focus()
        handle.press("Home")
        handle.press("ArrowRight")
        page.wait_for_function(
            "before => document.querySelector('img.widget-image').src != before", arg=first
        )
        page.screenshot(path=os.environ.get("LFF_SCREENSHOT", tmp_path / "explorer.png"))
        browser.close()
