# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Drives the page of a real run, and its report, in a browser.

    tests/page/run_test.sh tests/page/page_test.py
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from typing import Callable, Dict, List, Tuple

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

# A test gives up after this time. Machines may be busy.
_DEADLINE_SECONDS = 60

_RUN = """
name: "paged"
model {
  layers: 1 hidden_size: 8 intermediate_size: 16 heads: 1 sequence_length: 16
}
data { tokenizer: BYTES shards: 2 }
training { total_steps: 100000 batch_size: 2 learning_rate: 1e-3 }
synchronization { inner_steps_per_round: 10 fragments: 2 overlap_steps: 2 }
membership {
  min_islands: 2 max_islands: 2 quorum: 1 grace_seconds: 1
  lease_seconds: 5 heartbeat_seconds: 0.2
}
validation { every_rounds: 1 max_sequences: 2 }
"""

# A text that would run a script if the page took it for HTML.
_HOSTILE = "<img src=x onerror=\"window.hostile=1\"></script><b>bold</b>"


def _browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox",
                     "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"),
                            options=options)


class PageTest(unittest.TestCase):
    """One run of two islands, whose page stays open."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.processes: List[subprocess.Popen] = []
        self.logs = 0
        with open(self.path("run.textproto"), "w", encoding="utf-8") as file:
            file.write(_RUN)
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write("The quick brown fox jumps over the lazy dog.\n" * 500)
        with open(self.path("other.txt"), "w", encoding="utf-8") as file:
            file.write("Pack my box with five dozen liquor jugs.\n" * 500)
        self.listen = self.http_listen = "127.0.0.1:0"
        self.browser = _browser()

    def tearDown(self):
        self.browser.quit()
        for process in self.processes:
            process.kill()
            process.wait()
        # The logs of a test that failed explain it.
        if self._outcome.success:
            shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def await_true(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"never: {what}")
            time.sleep(0.05)

    def start(self, *command: str) -> subprocess.Popen:
        self.logs += 1
        self.log = self.path(f"{self.logs}.log")
        with open(self.log, "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_coordinator(self) -> subprocess.Popen:
        """Starts the run, or continues it at the same addresses."""
        process = self.start(
            "server/causeway-coordinator",
            f"--config={self.path('run.textproto')}",
            f"--state_dir={self.path('state')}", f"--listen={self.listen}",
            f"--http_listen={self.http_listen}")
        log = self.log

        def find(pattern: str):
            with open(log, encoding="utf-8") as file:
                return re.search(pattern, file.read())

        pattern = r"page is http://(\S+)/[\s\S]* on port (\d+), "
        self.await_true(lambda: find(pattern) or process.poll() is not None,
                        "the coordinator listens")
        found = find(pattern)
        self.assertTrue(found, f"see {log}")
        self.http_listen = found[1]
        self.listen = f"127.0.0.1:{found[2]}"
        return process

    def start_island(self, name: str,
                     data: str = "text.txt") -> subprocess.Popen:
        return self.start("worker/causeway-worker",
                          f"--coordinator={self.listen}", f"--island={name}",
                          f"--data={self.path(data)}", "--threads=1",
                          "--simulated_step_seconds=0.02")

    def tool(self, *arguments: str) -> None:
        subprocess.run(["cli/causeway", *arguments], check=True,
                       timeout=_DEADLINE_SECONDS, stderr=subprocess.STDOUT,
                       stdout=subprocess.DEVNULL)

    def control(self, *arguments: str) -> None:
        self.tool(*arguments, f"--coordinator={self.listen}")

    # ---- What the page shows.

    def script(self, text: str):
        return self.browser.execute_script("return " + text)

    def text(self, element_id: str) -> str:
        return self.script(
            f"document.getElementById('{element_id}').textContent")

    def count(self, selector: str) -> int:
        return self.script(f"document.querySelectorAll('{selector}').length")

    def cells_of(self, island: str) -> List[str]:
        """Returns the texts of the island's row, or none."""
        return self.script(
            "[...([...document.querySelectorAll('#islands_table tbody tr')]"
            f".find((row) => row.cells[0].textContent === '{island}')"
            " || {cells: []}).cells].map((cell) => cell.textContent)")

    def state_of(self, island: str) -> str:
        return (self.cells_of(island) + ["", ""])[1]

    def others(self) -> List[str]:
        """Returns the islands that read other data than the run's."""
        return [island for island in ("east", "west")
                if "reads other data than the run's" in self.cells_of(island)]

    def assert_console_is_quiet(self, allowed: str = "$^") -> None:
        for entry in self.browser.get_log("browser"):
            self.assertRegex(entry["message"], allowed)

    def resize(self, width: int) -> None:
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1,
             "mobile": False})

    # ---- The test.

    def test_page(self):
        coordinator = self.start_coordinator()
        self.start_island("east")
        west = self.start_island("west", "other.txt")
        self.browser.get(f"http://{self.http_listen}/")
        self.check_live_run()
        self.check_events()
        self.check_keyboard()
        self.check_widths()
        self.check_hostile_reason()
        self.assert_console_is_quiet()
        self.check_killed_island(west)
        self.check_refusal()
        self.check_lost_coordinator(coordinator)
        self.check_report()
        self.check_troubled_run()
        self.check_first_round()
        self.check_run_without_islands()

    def check_live_run(self):
        self.await_true(lambda: self.text("state") == "running", "it runs")
        for island in ("east", "west"):
            self.await_true(lambda: self.state_of(island) == "live",
                            f"{island} is live")
        # The first island to report decides what the run's data are.
        self.await_true(lambda: len(self.others()) == 1, "the data differ")
        self.control("data", "accept", "east")
        self.await_true(lambda: self.others() == ["west"],
                        "west reads other data than east")
        self.await_true(
            lambda: "causeway data accept west" in self.text("attention_list"),
            "the page says what to do about the data")
        self.await_true(lambda: self.count("#loss .curve") == 3,
                        "two training curves and one of validation")
        self.assertEqual(
            self.script("[...document.querySelectorAll('#loss .legend li')]"
                        ".map((li) => li.textContent)"),
            ["east", "west", "validation, merged model"])
        self.await_true(lambda: self.count("#timeline rect") > 4,
                        "rounds are in the timeline")
        self.await_true(lambda: self.text("bar_right").endswith(" left"),
                        "the time left is known")
        self.assertIn("merged", self.text("ledger"))
        self.assertEqual(self.text("freshness"), "connected")

    def check_events(self):
        """Details appear on request."""
        self.assertIn("run started", self.text("events"))
        self.assertNotIn("round merged", self.text("events"))
        choice = Select(self.browser.find_element(By.ID, "severity"))
        choice.select_by_visible_text("everything")
        for kind in ("round merged", "validated", "run started"):
            self.await_true(lambda: kind in self.text("events"), kind)
        choice.select_by_visible_text("critical only")
        self.assertEqual(self.count("#events li"), 0)
        self.assertEqual(self.count("#events_empty:not([hidden])"), 1)
        choice.select_by_visible_text("notices and warnings")
        self.await_true(lambda: "run started" in self.text("events"),
                        "notices are back")
        self.assertNotIn("round merged", self.text("events"))

    def check_keyboard(self):
        plot = self.browser.find_element(By.CSS_SELECTOR, "#loss .plot")
        plot.send_keys(Keys.ARROW_LEFT)
        self.assertIn("step", self.script(
            "document.querySelector('#loss .tip').textContent"))
        plot.send_keys(Keys.ESCAPE)
        self.assertTrue(
            self.script("document.querySelector('#loss .tip').hidden"))
        heads = self.browser.find_elements(By.CSS_SELECTOR,
                                           "#islands_table th button")
        heads[0].send_keys(Keys.ENTER)
        names = ("[...document.querySelectorAll('#islands_table tbody tr')]"
                 ".map((row) => row.cells[0].textContent)")
        self.assertEqual(self.script(names), ["west", "east"])
        field = self.browser.find_element(By.ID, "filter")
        field.send_keys("eas")
        self.assertEqual(self.script(names), ["east"])
        field.clear()
        field.send_keys(Keys.ESCAPE)

    def check_widths(self):
        for width in (390, 768, 1440, 1600):
            self.resize(width)
            self.assertLessEqual(
                self.script("document.documentElement.scrollWidth"), width)
        # The column of awaited islands is not cut.
        self.assertTrue(self.script(
            "((table) => table.scrollWidth <= table.parentNode.clientWidth)("
            "document.getElementById('fragments_table'))"))

    def check_hostile_reason(self):
        def shown() -> str:
            return self.text("notices") + self.text("attention_list")

        self.control("pause", "--reason", _HOSTILE)
        self.await_true(lambda: _HOSTILE in shown(),
                        "the reason is shown as it is")
        self.await_true(lambda: _HOSTILE in self.text("events"),
                        "the event is shown as it is")
        self.assertEqual(self.count("img"), 0)
        self.control("resume")
        self.await_true(lambda: _HOSTILE not in shown(), "it goes on")
        self.assertIsNone(self.script("window.hostile"))

    def check_killed_island(self, island: subprocess.Popen):
        self.script("document.getElementById('filter').value = ''")
        island.send_signal(signal.SIGKILL)
        self.await_true(lambda: self.state_of("west") == "evicted",
                        "the killed island is shown as evicted")
        self.await_true(
            lambda: "causeway evict west" in self.text("attention_list"),
            "the page says what to do")
        # The coordinator has known since the time of its event.
        shown = time.time()
        known = self.script("Date.parse(state.events.filter("
                            "(e) => e.kind === 'island_evicted').pop().time)")
        print(f"the killed island showed after {shown - known / 1000:.2f} s")

    def check_refusal(self):
        self.script("(() => { window.realFetch = window.fetch;"
                    " window.fetch = async () => new Response("
                    "'the copy is not complete\\n', {status: 503}); })()")
        self.await_true(
            lambda: "The coordinator says: the copy is not complete."
            in self.text("notices"), "the page says what the coordinator says")
        self.assertNotIn("answer", self.text("notices"))
        self.assertNotIn("answer", self.text("freshness"))
        self.script("(window.fetch = window.realFetch) && null")
        self.await_true(lambda: self.text("freshness") == "connected",
                        "the page comes back by itself")

    def check_lost_coordinator(self, coordinator: subprocess.Popen):
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait()
        self.await_true(lambda: "no answer" in self.text("freshness"),
                        "the loss is said")
        self.assertIn("does not answer", self.text("notices"))
        self.assertTrue(
            self.script("document.body.classList.contains('stale')"))
        points = self.script("state.training.length")
        self.start_coordinator()
        self.await_true(lambda: self.text("freshness") == "connected",
                        "the page comes back by itself")
        self.await_true(lambda: self.text("notices") == "", "all is well")
        self.await_true(lambda: self.script("state.training.length") > points,
                        "the curves go on")
        self.assert_console_is_quiet("ERR_CONNECTION")

    def check_report(self):
        report = self.path("report.html")
        self.tool("report", self.path("state"), "--out", report)
        with open(report, encoding="utf-8") as file:
            html = file.read()
        # No island can have such a name; if one could, it would do no harm.
        name = _HOSTILE.replace("\"", "\\\"").replace("<", "\\u003c")
        html = html.replace('"island_id":"east"', f'"island_id":"{name}"')
        with open(report, "w", encoding="utf-8") as file:
            file.write(html)
        self.browser.get("file://" + report)
        self.assertIn(_HOSTILE, self.text("islands_table"))
        self.assertIn(_HOSTILE, self.text("loss"))
        self.assertGreater(self.count("#loss .curve"), 1)
        self.assertGreater(self.count("#timeline rect"), 1)
        self.assertEqual(self.count("img"), 0)
        self.assertIsNone(self.script("window.hostile"))
        self.assert_console_is_quiet()

    # ---- Reports of runs that are rare.

    def show_report(self, change: Callable[[Dict], None]) -> None:
        """Shows the run's report after `change` of its data."""
        report = self.path("changed.html")
        self.tool("report", self.path("state"), "--out", report)
        with open(report, encoding="utf-8") as file:
            html = file.read()
        begin = html.index(">", html.index('id="report"')) + 1
        end = html.index("</script>", begin)
        data = json.loads(html[begin:end])
        change(data)
        text = json.dumps(data).replace("<", "\\u003c")
        with open(report, "w", encoding="utf-8") as file:
            file.write(html[:begin] + text + html[end:])
        self.browser.get("file://" + report)

    def state_pill(self) -> Tuple[str, str]:
        return (self.text("state"),
                self.script("document.getElementById('state').className"))

    def fact(self, title: str) -> str:
        return self.script(
            "[...document.querySelectorAll('.fact')].find((one) =>"
            f" one.firstChild.textContent === '{title}').textContent")

    def marks(self, chart: str, axis: str) -> List[str]:
        return self.script(f"[...document.querySelectorAll('#{chart} .{axis}')]"
                           ".map((mark) => mark.textContent)")

    def check_troubled_run(self):
        """Says what to do, and shows no share above the whole."""

        def change(data):
            data["run"].update(
                state="RUNNING",
                participation={"live": "10", "merged": "12"},
                attention=[{"severity": "CRITICAL", "text": _HOSTILE,
                            "command": "causeway status",
                            "since": data["run"]["time"]},
                           {"severity": "WARNING", "text": "west is gone"}])
            data["fragments"][0]["participation"] = {"live": "1", "merged": "2"}
            west = next(one for one in data["islands"]
                        if one["island_id"] == "west")
            data["islands"] += [dict(west, island_id=f"gone-{i}")
                                for i in range(20)]

        self.show_report(change)
        self.assertEqual(self.count("#attention_list li.bad code"), 1)
        self.assertEqual(self.count("#attention_list li.warn"), 1)
        self.assertIn(_HOSTILE, self.text("attention_list"))
        self.assertEqual(self.count("#attention code"), 1)
        self.assertEqual(self.count("img"), 0)
        self.assertEqual(self.state_pill(), ("standing still", "pill bad"))
        self.assertEqual(self.text("bar_right"), "standing still")
        self.assertIn("100.0 % took part", self.fact("Rounds"))
        self.assertIn("2 of 2", self.text("fragments_table"))
        # The card's sum is the chart's.
        sent = self.script("['up', 'down'].map((way) => num(last("
                           "state.training)['bytes_' + way]))")
        self.assertIn(self.script(f"bytes({sum(sent)})"), self.fact("Traffic"))
        for part in sent:
            self.assertIn(self.script(f"bytes({part})"), self.text("traffic"))
        # Islands that are gone are folded, with their number.
        self.assertIn("21 evicted", self.fact("Islands"))
        self.assertEqual(self.count("#islands_table tbody tr"), 1)
        button = self.browser.find_element(By.ID, "gone")
        self.assertEqual(button.text, "Show those that are gone: 21 evicted")
        button.send_keys(Keys.ENTER)
        self.assertEqual(self.count("#islands_table tbody tr"), 22)
        # The logarithm moves the curve.
        top = "document.querySelector('#loss .curve').getAttribute('d')"
        before = self.script(top)
        self.browser.find_element(By.ID, "log").click()
        self.assertNotEqual(self.script(top), before)

    def check_first_round(self):
        """Draws a single point so that it can be seen."""

        def change(data):
            history = data["history"]
            history["training"] = history["training"][:1]
            history["training"][0]["run_step"] = "15"
            history["validations"] = []
            data["run"]["seconds_left"] = 754.2

        self.show_report(change)
        for chart in ("loss", "rate", "traffic", "part"):
            self.assertGreater(self.count(f"#{chart} circle"), 0, chart)
            self.assertEqual(self.marks(chart, "x"), ["14", "15", "16"])
            marks = self.marks(chart, "y")
            self.assertGreater(len(marks), 1, chart)
            self.assertEqual(len(set(marks)), len(marks), marks)
            self.assertIn("inner step", self.text(chart))
        self.assertEqual(self.text("bar_right"), "about 12 min 34 s left")

    def check_run_without_islands(self):
        """A run that waits is not green, and has no time left."""

        def change(data):
            data["run"].update(state="RUNNING", attention=[],
                               missing_since=data["run"]["time"])
            for island in data["islands"]:
                island["state"] = "EVICTED"

        self.show_report(change)
        self.assertEqual(self.state_pill(),
                         ("waiting for islands", "pill bad"))
        self.assertEqual(self.text("bar_right"),
                         "waiting for islands for 0.0 s")
        self.assertEqual(self.state_of("east"), "evicted")

        def begin(data):
            data["run"] = {"state": "WAITING_FOR_ISLANDS",
                           "missing_since": data["run"]["time"],
                           "time": data["run"]["time"],
                           "config": {"name": "new"}}
            data.update(islands=[], history={})

        self.show_report(begin)
        self.assertEqual(self.state_pill(),
                         ("waiting for islands", "pill warn"))
        self.assertIn("no round has been merged yet", self.text("loss"))
        self.assertNotIn("NaN", self.script("document.body.innerText"))
        self.assert_console_is_quiet()


if __name__ == "__main__":
    unittest.main(verbosity=2)
