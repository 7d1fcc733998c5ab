#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the compute utilization that the WAN lab measured, as an SVG picture.

  tests/wan/plot.py REPORT.json >utilization.svg

Each round trip has a panel with bandwidth as its axis, and each setting a
curve: medians, with a bar from the lowest to the highest run. The first
island's link represents the network. Needs nothing but Python.
"""

import html
import json
import math
import sys

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"]
PANEL_WIDTH = 250
PANEL_HEIGHT = 240
PANEL_GAP = 30
LEFT = 60
TOP = 40
# The room for the axis below the panels, and for a line of the legend.
AXIS_HEIGHT = 60
LEGEND_LINE = 20


def read_curves(report):
    """Returns {round trip in ms: {setting: [(Mbit/s, median, low, high)]}}."""
    curves = {}
    for group in report["settings"]:
        link = group["runs"][0]["islands"][0]
        round_trip = link["up"]["delay_ms"] + link["down"]["delay_ms"]
        rate = min(link["up"]["rate_mbit_s"], link["down"]["rate_mbit_s"])
        name = "compute_utilization"
        curves.setdefault(round_trip, {}).setdefault(
            group["setting"], []).append(
                (rate, group[name], group[name + "_min"], group[name + "_max"]))
    for panel in curves.values():
        for points in panel.values():
            points.sort()
    return dict(sorted(curves.items()))


class Panel:
    """A plot with a logarithmic axis of bandwidth."""

    def __init__(self, left, rates):
        self.left = left
        self.rates = rates

    def x(self, rate):
        low, high = math.log(self.rates[0]), math.log(self.rates[-1])
        share = (math.log(rate) - low) / (high - low) if high > low else 0.5
        return self.left + 12 + share * (PANEL_WIDTH - 24)

    def y(self, utilization):
        return TOP + (1 - utilization) * PANEL_HEIGHT

    def axes(self, title, with_labels):
        yield (f'<text x="{self.left + PANEL_WIDTH / 2}" y="{TOP - 14}" '
               f'text-anchor="middle">{title}</text>')
        for percent in range(0, 101, 20):
            y = self.y(percent / 100)
            yield (f'<line x1="{self.left}" x2="{self.left + PANEL_WIDTH}" '
                   f'y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            if with_labels:
                yield (f'<text x="{self.left - 8}" y="{y + 4:.1f}" '
                       f'text-anchor="end">{percent} %</text>')
        for rate in self.rates:
            yield (f'<text x="{self.x(rate):.1f}" '
                   f'y="{TOP + PANEL_HEIGHT + 18}" text-anchor="middle">'
                   f'{rate:g}</text>')
        yield (f'<text x="{self.left + PANEL_WIDTH / 2}" '
               f'y="{TOP + PANEL_HEIGHT + 38}" text-anchor="middle">'
               'Mbit/s, each way</text>')

    def curve(self, points, colour):
        """Yields one line: the curve, its bars, and a dot at each median."""
        dots = [f"{self.x(rate):.1f},{self.y(median):.1f}"
                for rate, median, _, _ in points]
        bars = [f"M{self.x(rate):.1f},{self.y(low):.1f}V{self.y(high):.1f}"
                for rate, _, low, high in points]
        yield (f'<g fill="none" stroke="{colour}">'
               f'<polyline points="{" ".join(dots)}" stroke-width="2"/>'
               f'<path d="{"".join(bars)}"/>'
               f'<path d="{"".join(f"M{dot}h0" for dot in dots)}" '
               'stroke-width="6" stroke-linecap="round"/></g>')


def draw(report):
    curves = read_curves(report)
    settings = list(dict.fromkeys(g["setting"] for g in report["settings"]))
    if len(settings) > len(COLOURS):
        sys.exit(f"plot.py: there are {len(settings)} settings; at most "
                 f"{len(COLOURS)} can be told apart")
    colours = dict(zip(settings, COLOURS))
    rates = sorted({point[0] for panel in curves.values()
                    for points in panel.values() for point in points})
    width = LEFT + len(curves) * (PANEL_WIDTH + PANEL_GAP)
    legend_top = TOP + PANEL_HEIGHT + AXIS_HEIGHT
    height = legend_top + LEGEND_LINE * len(settings)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">')
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    for index, (round_trip, panel) in enumerate(curves.items()):
        plot = Panel(LEFT + index * (PANEL_WIDTH + PANEL_GAP), rates)
        yield from plot.axes(f"round trip {round_trip:g} ms", index == 0)
        for setting, points in panel.items():
            yield from plot.curve(points, colours[setting])
    for index, setting in enumerate(settings):
        y = legend_top + LEGEND_LINE * index
        yield (f'<line x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}" '
               f'stroke="{colours[setting]}" stroke-width="2"/>')
        yield (f'<text x="{LEFT + 32}" y="{y + 4}">{html.escape(setting)}'
               '</text>')
    yield "</svg>"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tests/wan/plot.py REPORT.json >utilization.svg")
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    print("\n".join(draw(report)))


if __name__ == "__main__":
    main()
