# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what the page of a run costs, for docs/benchmarks.md.

    tests/page/run_test.sh tests/page/measure.py ADDRESS PID [--seconds N]

ADDRESS is a coordinator's --http_listen, PID its process. Browsers are
threads that ask what the page asks.
"""

import argparse
import json
import os
import statistics
import threading
import time
import urllib.request
from typing import Dict

from selenium import webdriver
from selenium.webdriver.chrome.service import Service


def _get(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as page:
        return page.read()


def _page(address: str) -> Dict[str, float]:
    """Loads the page in a browser."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox",
                     "--disable-dev-shm-usage"):
        options.add_argument(argument)
    browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"),
                               options=options)
    paints = []
    for _ in range(5):
        browser.get(f"http://{address}/")
        time.sleep(2)
        paints.append(browser.execute_script(
            "return performance.getEntriesByName("
            "'first-contentful-paint')[0].startTime"))
    size = browser.execute_script(
        "return performance.getEntriesByType('navigation').concat("
        "performance.getEntriesByType('resource').filter((e) =>"
        " !e.name.includes('/api/'))).reduce("
        "(sum, e) => sum + e.transferSize, 0)")
    browser.quit()
    return {"page_bytes": size,
            "first_paint_milliseconds": statistics.median(paints)}


def _processor_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _follow(address: str, end: float) -> None:
    """Asks as the page does until `end`."""
    rounds, event = None, 0
    versions = {"training_after": 0, "validation_after": 0}
    while time.monotonic() < end:
        begun = time.monotonic()
        status = json.loads(_get(address, "/api/status"))
        if status["run"].get("rounds") != rounds:
            rounds = status["run"].get("rounds")
            query = "&".join(f"{k}={v}" for k, v in versions.items())
            history = json.loads(_get(address, f"/api/history?{query}"))
            for point in history.get("training", []):
                versions["training_after"] = point["version"]
            for point in history.get("validations", []):
                versions["validation_after"] = point["validation"]["version"]
        if int(status.get("newest_event", 0)) > event:
            _get(address, f"/api/events?after={event}")
            event = int(status["newest_event"])
        time.sleep(max(0.0, 1 - (time.monotonic() - begun)))


def _share(pid: int, address: str, browsers: int, seconds: float) -> float:
    """Returns the coordinator's processor share with this many browsers."""
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=_follow, args=(address, end))
               for _ in range(browsers)]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    before, begun = _processor_seconds(pid), time.monotonic()
    time.sleep(max(0.0, end - time.monotonic()))
    used, passed = _processor_seconds(pid) - before, time.monotonic() - begun
    for thread in threads:
        thread.join()
    return used / passed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("pid", type=int)
    parser.add_argument("--seconds", type=float, default=20)
    flags = parser.parse_args()
    figures = {"status_bytes": len(_get(flags.address, "/api/status")),
               "history_bytes": len(_get(flags.address, "/api/history"))}
    for browsers in (0, 1, 10):
        figures[f"processor_share_{browsers}_browsers"] = round(
            _share(flags.pid, flags.address, browsers, flags.seconds), 4)
        print(figures, flush=True)
    figures.update(_page(flags.address))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
