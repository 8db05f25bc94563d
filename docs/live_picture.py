"""Take the picture of the live page, docs/live.png: python docs/live_picture.py

It needs Debian's chromium-headless-shell and the extras `serve` and `test`.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright

from wgpr.client import Map
from wgpr.survey import fly, jacksboro

N_ROWS, PART = 5000, 250


def main() -> None:
    survey = fly(jacksboro(), random_state=0)
    serve = [sys.executable, "-c", "from wgpr.cli.app import main; main()", "serve", "--port", "0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*serve, folder], stderr=subprocess.PIPE, text=True) as service,
        sync_playwright() as playwright,
    ):
        url = re.search(r"http://[\d.:]+", service.stderr.readline())[0]
        Thread(target=service.stderr.read, daemon=True).start()  # its log, so that it need not wait
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(url)
        with Map(f"{url}/maps/terrain") as terrain:
            terrain.create(survey.input_names, survey.target_name)
            for start in range(0, N_ROWS, PART):
                rows = slice(start, start + PART)
                terrain.partial_fit(survey.X[rows], survey.y[rows], wait=True)
                page.wait_for_timeout(300)
        page.mouse.move(420, 480)
        page.mouse.move(440, 500)
        page.wait_for_timeout(2000)
        page.screenshot(path=Path(__file__).with_name("live.png"))
        browser.close()
        service.terminate()


if __name__ == "__main__":
    main()
