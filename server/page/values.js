// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Elements and texts. BUILD joins this file and the others to page.js. Texts of
// the run are set as textContent only.
"use strict";

// 64-bit integers are strings in protobuf's JSON, and fields with their default
// value are left out.
const byId = (id) => document.getElementById(id);
const num = (value) => Number(value) || 0;
const millis = (timestamp) => (timestamp ? Date.parse(timestamp) : NaN);
const last = (list) => list[list.length - 1];

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes,
    children);

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setClass(node, name) {
  if (node.className !== name) node.className = name;
}

// Units of counts and of bytes, the same as those of the command line.
const kCounts = { base: 1000, names: ["", "k", "M", "G", "T", "P"] };
const kBytes = { base: 1024,
  names: [" B", " KiB", " MiB", " GiB", " TiB", " PiB"] };

// Returns the unit in which a value is written.
function unitOf(value, { base, names }) {
  let i = 0;
  while (value >= base ** (i + 1) && i < names.length - 1) ++i;
  return { size: base ** i, name: names[i] };
}
function scaled(value, units) {
  const { size, name } = unitOf(value, units);
  const part = value / size;
  return part.toFixed(size === 1 || part >= 100 ? 0 : part >= 10 ? 1 : 2) + name;
}
const count = (value) => scaled(num(value), kCounts);
const bytes = (value) => scaled(num(value), kBytes);
const loss = (value) => (num(value) > 0 ? num(value).toFixed(4) : "–");
const percent = (part, whole) =>
  (whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "–");
const plural = (n, word) => n + " " + word + (n === 1 ? "" : "s");
const words = (name) => (name || "").toLowerCase().replace(/_/g, " ");
const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });

function duration(seconds) {
  if (!isFinite(seconds)) return "–";
  if (seconds < 10) return Math.max(0, seconds).toFixed(1) + " s";
  const s = Math.round(seconds);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 86400) {
    return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  }
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

