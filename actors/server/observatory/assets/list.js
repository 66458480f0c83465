// A list of many rows of one height, of which those that are seen are in the document. A row is made once and filled again: a cell
// is written only where what it shows has changed.
import { h, setAttr } from './dom.js';

const ROW = 28, SPARE = 6;

export class List {
  // columns are { name, cell(item, element), key(item) }; a cell is filled again when its key has changed.
  constructor(scroll, head, { role, label, columns, id, open, fold, level, folded, sort }) {
    Object.assign(this, { scroll, columns, id, open, fold, level, folded });
    this.items = [];
    this.at = null; // the ID of the item that is chosen
    this.rows = [];
    this.option = role === 'tree' ? 'treeitem' : 'option';
    this.space = h('div', { class: 'space', role: 'presentation' });
    scroll.replaceChildren(this.space);
    scroll.setAttribute('role', role);
    scroll.setAttribute('aria-label', label);
    head.replaceChildren(...columns.map(c => h('span', { class: `c-${c.name}` }, c.by
      ? h('button', { type: 'button', title: c.title ?? `Sort by ${c.head}`, 'data-sort': c.name, onclick: () => sort(c) }, c.head, h('i', { 'aria-hidden': 'true' })) : c.head)));
    this.off = new AbortController();
    const listen = (on, f) => scroll.addEventListener(on, f, { signal: this.off.signal });
    listen('scroll', () => this.draw());
    listen('keydown', e => this.key(e));
    listen('focus', () => { if (this.place() < 0) this.choose(Math.ceil(this.scroll.scrollTop / ROW)); });
    listen('click', e => {
      const row = e.target.closest('.row');
      if (!row) return;
      const item = this.items[row.index];
      this.choose(row.index);
      if (e.target.closest('.fold')) this.fold(item);
      else this.open(item);
    });
    this.seen = new ResizeObserver(() => this.draw());
    this.seen.observe(scroll);
  }

  close() {
    this.off.abort();
    this.seen.disconnect();
  }

  show(items) {
    this.items = items;
    this.index = null;
    this.space.style.height = `${items.length * ROW}px`;
    this.draw();
  }

  // place is where the chosen item is; -1: it is not shown.
  place() {
    this.index ??= new Map(this.items.map((item, i) => [this.id(item), i]));
    return this.index.get(this.at) ?? -1;
  }

  choose(i) {
    if (!this.items.length) return;
    i = Math.max(0, Math.min(i, this.items.length - 1));
    this.at = this.id(this.items[i]);
    const { scrollTop: top, clientHeight: height } = this.scroll;
    if (i * ROW < top) this.scroll.scrollTop = i * ROW;
    else if ((i + 1) * ROW > top + height) this.scroll.scrollTop = (i + 1) * ROW - height;
    this.draw();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const i = this.place(), page = Math.max(1, Math.floor(this.scroll.clientHeight / ROW) - 1), item = this.items[i];
    const to = { ArrowDown: i + 1, j: i + 1, ArrowUp: i - 1, k: i - 1, Home: 0, End: this.items.length - 1, PageDown: i + page, PageUp: i - page }[e.key];
    if (to !== undefined) this.choose(to);
    else if (e.key === 'Enter' && this.items.length) { this.choose(Math.max(0, i)); this.open(item ?? this.items[0]); }
    else if ((e.key === 'ArrowLeft' || e.key === 'ArrowRight') && item && this.fold) this.fold(item, e.key === 'ArrowLeft');
    else return;
    e.preventDefault();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - SPARE);
    const count = Math.min(this.items.length - first, Math.ceil(this.scroll.clientHeight / ROW) + 2 * SPARE);
    while (this.rows.length < count) this.rows.push(this.make());
    const chosen = this.place();
    let active = null;
    // A row keeps its item while it scrolls, so that of a step of one line one row is filled.
    this.rows.forEach((row, slot) => {
      const i = first + ((slot - first) % this.rows.length + this.rows.length) % this.rows.length;
      const there = i < first + count && i < this.items.length;
      if (row.hidden === there) row.hidden = !there;
      if (!there) return;
      if (row.index !== i) { row.index = i; row.style.transform = `translateY(${i * ROW}px)`; }
      const item = this.items[i];
      this.columns.forEach((c, n) => {
        const key = c.key(item);
        if (row.keys[n] !== key) { row.keys[n] = key; c.cell(item, row.children[n]); }
      });
      setAttr(row, 'aria-selected', i === chosen);
      setAttr(row, 'aria-posinset', i + 1);
      setAttr(row, 'aria-setsize', this.items.length);
      if (this.level) {
        setAttr(row, 'aria-level', this.level(item));
        const folded = this.folded(item);
        setAttr(row, 'aria-expanded', folded === null ? null : !folded);
      }
      if (i === chosen) active = row.id;
    });
    setAttr(this.scroll, 'aria-activedescendant', active);
  }

  make() {
    const row = h('div', { class: 'row', role: this.option, id: `row-${this.rows.length}` },
      this.columns.map(c => h('span', { class: `c-${c.name}` })));
    row.keys = [];
    this.space.append(row);
    return row;
  }
}
