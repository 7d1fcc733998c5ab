// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables that can be sorted. Rows stay the same elements while they are
// updated, so that focus, selection and scrolling survive.

// "island-9" comes before "island-10".
const kCollator = new Intl.Collator("en", { numeric: true });

class DataTable {
  // A column is {title, value(row), text(row), n: right-aligned, long: cut
  // where it is too long, pill(row): class of a pill}.
  constructor(table, columns, key) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.sorted = 0;
    this.down = false;
    this.data = [];
    this.heads = columns.map((column, i) => {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sort(i));
      return el("th", { scope: "col", class: this.classOf(column) }, button);
    });
    this.body = el("tbody");
    table.append(el("thead", {}, el("tr", {}, ...this.heads)), this.body);
  }

  classOf(column) {
    return column.n ? "n" : column.long ? "text" : "";
  }

  sort(i) {
    this.down = this.sorted === i && !this.down;
    this.sorted = i;
    this.set(this.data);
  }

  set(data) {
    this.data = data;
    const value = this.columns[this.sorted].value;
    const order = [...data].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === "string" ? kCollator.compare(x, y) : x - y;
      return this.down ? -order : order;
    });
    this.heads.forEach((head, i) => {
      if (i !== this.sorted) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    });
    const seen = new Set();
    order.forEach((one, i) => {
      const key = this.key(one);
      seen.add(key);
      if (!this.rows.has(key)) this.rows.set(key, this.newRow());
      const row = this.rows.get(key);
      this.update(row, one);
      if (this.body.children[i] !== row) {
        this.body.insertBefore(row, this.body.children[i] || null);
      }
    });
    for (const [key, row] of this.rows) {
      if (seen.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
  }

  newRow() {
    return el("tr", {}, ...this.columns.map((column) =>
      el("td", { class: this.classOf(column) },
        ...(column.pill ? [el("span")] : []))));
  }

  update(row, one) {
    setClass(row, this.gone && this.gone(one) ? "gone" : "");
    this.columns.forEach((column, i) => {
      const cell = row.children[i];
      const text = column.text ? column.text(one) : String(column.value(one));
      if (column.pill) setClass(cell.firstChild, "pill " + column.pill(one));
      setText(column.pill ? cell.firstChild : cell, text);
      if (column.long && cell.title !== text) cell.title = text;
    });
  }
}

