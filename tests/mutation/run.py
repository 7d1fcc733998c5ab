# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Plants one mutant at a time in a copy of the tree and runs its tests.

usage: run.py BAZEL... -- OPTION...    (run.sh says how Bazel is called)
"""

import argparse
import collections
import fcntl
import hashlib
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
from typing import Dict, List, Optional, Set, Tuple

from mutants import Mutant, mutants_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
_NO_PRODUCT = re.compile(r"^tests/|(^|/)testing/|_(test|fuzz|benchmark)\.cc$")
# Slow tests, tests that compete for processors, and tests of the simulation's
# planted bugs, whose patches a mutant breaks.
_LEFT_OUT = ('attr("size", "large|enormous", //...)'
             ' union attr("tags", "cuda|exclusive|manual", //...)'
             ' union rdeps(//..., filter("_source$", //tests/simulation:all))')


def arguments(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests/mutation/run.sh", description="Changes C++ sources in one"
        " place at a time and prints the changes that no test notices. Exits"
        " with 1 if there are any.")
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE")
    add("--diff", metavar="REV", help="the lines that differ from a revision")
    add("--list", action="store_true", help="only print the mutants")
    add("--max", type=int, metavar="N", help="a random sample of N mutants")
    add("--seed", type=int, default=1, help="of the sample (%(default)s)")
    add("--tests", type=int, default=8, metavar="N",
        help="the nearest N tests that depend on a file (%(default)s)")
    add("--seconds", type=int, default=600, metavar="N",
        help="time for building and testing a mutant (%(default)s)")
    add("--json", type=pathlib.Path, metavar="FILE", help="write the results")
    add("--work", type=pathlib.Path, metavar="DIR",
        default=pathlib.Path.home() / ".cache/causeway-mutation",
        help="keeps the copy and the results, so that an interrupted run"
        " continues while the tree is the same (%(default)s)")
    options = parser.parse_args(argv)
    if not options.files and not options.diff:
        parser.error("name files or --diff REV")
    return options


def git(*command: str) -> str:
    return subprocess.run(["git", "-c", "safe.directory=*", *command], cwd=ROOT,
                          check=True, stdout=subprocess.PIPE,
                          encoding="utf-8").stdout


def changed_lines(diff: str) -> Dict[str, Set[int]]:
    """Returns the new lines of the product's sources in a `git diff -U0`."""
    changed: Dict[str, Set[int]] = {}
    lines: Set[int] = set()
    for path, first, count in re.findall(
            r"^\+\+\+ b/(.*)|^@@ -\S+ \+(\d+)(?:,(\d+))? @@", diff, re.M):
        if path:
            lines = set()
            if path.endswith((".cc", ".h")) and not _NO_PRODUCT.search(path):
                changed[path] = lines
        else:
            lines.update(range(int(first), int(first) + int(count or 1)))
    return changed


def planned(options: argparse.Namespace) -> List[Tuple[str, Mutant, str]]:
    """Returns (path, mutant, description)."""
    lines: Dict[str, Optional[Set[int]]] = dict.fromkeys(options.files)
    if options.diff:
        lines.update(changed_lines(git("diff", "-U0", "--merge-base",
                                       options.diff)))
    plan = []
    for path, chosen in sorted(lines.items()):
        source = (ROOT / path).read_text()
        header = (ROOT / path).with_suffix(".h")
        for mutant in mutants_of(
                source, header.read_text() if header.exists() else ""):
            if chosen is None or mutant.line in chosen:
                plan.append((path, mutant, f"{path}:{mutant.describe(source)}"))
    print(len(plan), "mutants")
    if options.max is not None and options.max < len(plan):
        plan = [plan[i] for i in sorted(random.Random(options.seed).sample(
            range(len(plan)), options.max))]
        print(options.max, "of them, chosen by --seed", options.seed)
    return plan


class Copy:
    """A copy of the tree, with a Bazel of its own."""

    def __init__(self, work: pathlib.Path, bazel: List[str]):
        self.tree, self.bazel = work / "tree", bazel
        shutil.rmtree(self.tree, ignore_errors=True)
        digest = hashlib.sha256()
        for file in git("ls-files", "-z", "--cached", "--others",
                        "--exclude-standard").split("\0"):
            if (ROOT / file).is_file():
                target = self.tree / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, target)
                digest.update(file.encode() + target.read_bytes())
        self.results = work / f"results-{digest.hexdigest()[:16]}.json"
        own = ROOT / "user.bazelrc"
        # With a cache, going back to the original compiles nothing.
        (self.tree / "user.bazelrc").write_text(
            own.read_text() if own.exists()
            else f"build --disk_cache={work}/compiled\n")

    def query(self, expression: str) -> List[str]:
        return subprocess.run(
            [*self.bazel, "query", "--noshow_progress", expression],
            cwd=self.tree, check=True, stdout=subprocess.PIPE,
            encoding="utf-8").stdout.split()

    def tests_of(self, path: str, limit: int) -> List[List[str]]:
        """Returns the tests that depend on a file, in groups, nearest first."""
        label = self.query(path)[0]
        package = label.split(":")[0] + ":"
        own = label.rsplit(".", 1)[0] + "_test"
        tests = (f'kind("_test rule", rdeps(//..., {label}%s))'
                 f" except ({_LEFT_OUT})")
        left = set(self.query(tests % ""))
        groups, depth = [], 1
        while left and limit > 0:
            depth += 1
            found = left.intersection(self.query(tests % f", {depth}"))
            if found:
                groups.append(sorted(found, key=lambda test: (
                    test != own, not test.startswith(package), test))[:limit])
                left -= found
                limit -= len(groups[-1])
        return groups

    def test(self, path: str, tests: List[str],
             seconds: int) -> Tuple[Optional[int], str]:
        """Returns Bazel's exit code, or None after too long, and its output."""
        with subprocess.Popen(
                [*self.bazel, "test", "--symlink_prefix=/", "--curses=no",
                 "--color=no", "--noshow_progress", "--build_tests_only",
                 "--notest_keep_going", "--test_timeout=120",
                 # A mutant may leave things unused.
                 f"--per_file_copt={re.escape(path)}@-w", *tests],
                cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                encoding="utf-8", errors="replace") as process:
            try:
                output = process.communicate(timeout=seconds)[0]
                return process.returncode, output
            except subprocess.TimeoutExpired:
                process.terminate()
                return None, process.communicate()[0]

    def attempt(self, path: str, mutant: Mutant, groups: List[List[str]],
                seconds: int) -> str:
        """Returns the outcome of a mutant; the nearest tests run first."""
        source = (self.tree / path).read_text()
        (self.tree / path).write_text(mutant.apply(source))
        try:
            for tests in groups:
                code, output = self.test(path, tests, seconds)
                failed = re.findall(r"^(//\S+) +(?:FAILED|TIMEOUT)", output,
                                    re.M)
                if code == 3 and failed:
                    return "noticed by " + " ".join(sorted(set(failed)))
                if code is None:
                    return f"undecided: takes more than {seconds} s"
                if code == 1:
                    return "undecided: does not build"
                if code != 0:
                    sys.exit(f"{output}\nrun.sh: the tests could not be run")
            return "SURVIVED " + " ".join(sum(groups, []))
        finally:
            (self.tree / path).write_text(source)


def run(options: argparse.Namespace, copy: Copy,
        plan: List[Tuple[str, Mutant, str]]) -> Dict[str, str]:
    """Returns the outcomes by the mutants' descriptions."""
    known, outcomes, groups, sound = {}, {}, {}, set()
    if copy.results.exists():
        known = json.loads(copy.results.read_text())
    for path, mutant, change in plan:
        if path not in groups:
            groups[path] = copy.tests_of(path, options.tests)
            if not groups[path]:
                sys.exit(f"run.sh: no test depends on {path}")
        key = f"{path} {mutant} {groups[path]}"
        if key not in known:
            if path not in sound:
                code, output = copy.test(path, sum(groups[path], []), 3600)
                if code != 0:
                    sys.exit(f"{output}\nrun.sh: tests fail without a mutant")
                sound.add(path)
            known[key] = copy.attempt(path, mutant, groups[path],
                                      options.seconds)
            copy.results.write_text(json.dumps(known))
        outcomes[change] = known[key]
        print(f"{change}\n    {known[key]}", flush=True)
    return outcomes


def main() -> None:
    split = sys.argv.index("--")
    options = arguments(sys.argv[split + 1:])
    plan = planned(options)
    if options.list:
        print(*(change for _, _, change in plan), sep="\n")
        return
    options.work.mkdir(parents=True, exist_ok=True)
    with open(options.work / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"run.sh: another run uses {options.work}; name --work")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        copy = Copy(options.work.resolve(), sys.argv[1:split])
        try:
            outcomes = run(options, copy, plan)
        finally:
            subprocess.run([*copy.bazel, "shutdown"], cwd=copy.tree,
                           check=False)
    counts = collections.Counter(o.split()[0] for o in outcomes.values())
    print(f"\n{counts['noticed']} noticed, {counts['SURVIVED']} survived, "
          f"{counts['undecided:']} undecided")
    for change, outcome in outcomes.items():
        if outcome.startswith("SURVIVED"):
            print(f"{change}\n    {outcome}")
    if options.json:
        options.json.write_text(json.dumps(
            {"seed": options.seed, "outcomes": outcomes}, indent=2))
    sys.exit(1 if counts["SURVIVED"] else 0)


if __name__ == "__main__":
    main()
