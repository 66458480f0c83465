// Charts of figures, from when the page began to ask for them. A chart is made once; each sample changes its paths.
import { bytes, h, poll, s, setAttr, setText, span, time } from './dom.js';

const WIDTH = 480, HEIGHT = 120, KEEP = 10 * 60e3, EVERY = 5000;

const cores = v => (Number.isFinite(v) ? `${Number(v.toPrecision(3))} cores` : '–');
const rate = v => (Number.isFinite(v) ? `${bytes(v)}/s` : '–');
const number = v => (Number.isFinite(v) ? String(Math.round(v)) : '–');

// ceiling is a number to end an axis with.
function ceiling(v, binary) {
  if (!(v > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(v));
  const size = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 4, 6, 8, 10].find(n => v <= n * size) * size;
}

class Chart {
  constructor({ title, says, curves, limit }) {
    Object.assign(this, { says, limit, samples: [], over: null });
    this.now = curves.map(() => h('b'));
    this.paths = curves.map((_, i) => s('path', { class: `curve c${i + 1}` }));
    this.area = s('path', { class: 'area c1' });
    this.top = h('span', { class: 'tick' });
    this.from = h('span');
    this.to = h('span', {}, 'now');
    this.limitLine = s('line', { class: 'limit', x1: 0, x2: WIDTH });
    this.cursor = s('line', { class: 'cursor', y1: 0, y2: HEIGHT });
    this.svg = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', preserveAspectRatio: 'none' },
      [0.5, HEIGHT / 2, HEIGHT - 0.5].map(y => s('line', { x1: 0, x2: WIDTH, y1: y, y2: y })), this.area, this.paths, this.limitLine, this.cursor);
    this.svg.addEventListener('pointermove', e => { this.over = (e.clientX - this.svg.getBoundingClientRect().left) / this.svg.clientWidth; this.read(); });
    this.svg.addEventListener('pointerleave', () => { this.over = null; this.read(); });
    this.title = title;
    this.bar = limit && h('meter', { min: 0, 'aria-label': title });
    this.element = h('figure', { class: 'chart' }, h('figcaption', {}, h('span', {}, title),
      curves.map((name, i) => h('span', { class: `now c${i + 1}` }, `${name} `, this.now[i]))), this.bar, h('div', { class: 'plot' }, this.svg, this.top), h('div', { class: 'axis' }, this.from, this.to));
  }

  // read shows the figures under the pointer, or the newest.
  read() {
    const newest = this.samples.at(-1);
    if (!newest) return;
    const moment = this.start + this.over * (newest[0] - this.start);
    const [at, values] = this.over === null ? newest : this.samples.reduce((best, x) => (Math.abs(x[0] - moment) < Math.abs(best[0] - moment) ? x : best));
    const x = (at - this.start) / Math.max(1, newest[0] - this.start) * WIDTH;
    setAttr(this.cursor, 'x1', x);
    setAttr(this.cursor, 'x2', x);
    this.cursor.style.visibility = this.over === null ? 'hidden' : '';
    values.forEach((v, n) => setText(this.now[n], this.says(v)));
    setText(this.to, this.over === null ? 'now' : new Date(at).toLocaleTimeString());
  }

  add(at, values, limit) {
    this.element.hidden = values.every(v => !Number.isFinite(v)) && !this.samples.length;
    this.samples.push([at, values]);
    this.samples = this.samples.filter(([t]) => at - t <= KEEP);
    const from = this.start = Math.min(this.samples[0][0], at - KEEP / 5), most = Math.max(...this.samples.flatMap(([, v]) => v.filter(Number.isFinite)));
    const near = limit > 0 && limit < 4 * most, top = ceiling(near ? Math.max(most, limit) : most, this.says === bytes || this.says === rate);
    const x = t => ((t - from) / (at - from) * WIDTH).toFixed(1), y = v => (HEIGHT - 1 - v / top * (HEIGHT - 14)).toFixed(1);
    this.paths.forEach((path, n) => {
      const points = this.samples.filter(([, v]) => Number.isFinite(v[n])).map(([t, v]) => `${x(t)} ${y(v[n])}`);
      const d = points.length > 1 ? `M${points.join('L')}` : points.length ? `M${points[0]}h-3` : '';
      setAttr(path, 'd', d);
      if (n === 0) setAttr(this.area, 'd', points.length > 1 ? `${d}L${WIDTH} ${HEIGHT}L${points[0].split(' ')[0]} ${HEIGHT}Z` : '');
    });
    setText(this.top, this.says(top));
    setText(this.from, `${span(at - from)} ago`);
    this.limitLine.style.visibility = near ? '' : 'hidden';
    if (near) for (const end of ['y1', 'y2']) setAttr(this.limitLine, end, y(limit));
    this.read();
    setAttr(this.svg, 'aria-label', `${this.title}: ${this.now.map(b => b.textContent).join(', ')}`);
    if (this.bar) this.bar.hidden = !(limit > 0);
    if (this.bar && limit > 0) {
      setAttr(this.bar, 'max', limit);
      this.bar.value = values[0];
      setAttr(this.bar, 'title', `${this.says(values[0])} of ${this.says(limit)}`);
    }
  }
}

// KINDS are what is drawn of a node, a pod or a container, each from what the agent has of it.
const KINDS = [
  { title: 'CPU', says: cores, curves: ['used'], of: f => [f.cpu?.usageNanoCores / 1e9] },
  { title: 'Memory', says: bytes, curves: ['working set', 'RSS'], limit: f => f.memory?.availableBytes + f.memory?.workingSetBytes,
    of: f => [f.memory?.workingSetBytes, f.memory?.rssBytes] },
  { title: 'Network', says: rate, curves: ['received', 'sent'], grows: true, of: f => [f.network?.rxBytes, f.network?.txBytes] },
  { title: 'File system', says: bytes, curves: ['used'], limit: f => f.fs?.capacityBytes, of: f => [(f.fs ?? f['ephemeral-storage'])?.usedBytes] },
  { title: 'Processes', says: number, curves: ['running'], of: f => [f.process_stats?.process_count ?? f.rlimit?.curproc] },
];

class Figures {
  constructor(title) {
    this.charts = KINDS.map(kind => new Chart(kind));
    this.element = h('section', { class: 'figures' }, title && h('h3', {}, title), h('div', { class: 'charts' }, this.charts.map(c => c.element)));
  }
  add(at, f) {
    KINDS.forEach((kind, i) => {
      let values = kind.of(f);
      if (kind.grows) {
        const old = this.old, now = values;
        values = now.map((v, n) => (old ? (v - old.values[n]) / ((at - old.at) / 1000) : NaN)).map(v => (v >= 0 ? v : NaN));
        this.old = { at, values: now };
        if (!now.some(Number.isFinite)) this.charts[i].element.hidden = true;
      }
      this.charts[i].add(at, values, kind.limit?.(f));
    });
  }
}

// figures asks for what the node uses, or a pod and its containers, while it is shown.
export function figures(uid) {
  const parts = new Map(), note = h('p', { class: 'note', role: 'status' }, 'asking for figures …');
  const element = h('div', {}, note);
  const add = (key, title, at, f) => {
    if (!parts.has(key)) {
      parts.set(key, new Figures(title));
      element.append(parts.get(key).element);
    }
    parts.get(key).add(at, f);
  };
  const polled = poll(`/v1/figures?pod=${uid ?? ''}`, EVERY, got => {
    const at = time(got.at), of = uid ? got.pods?.[0] : got.node;
    setText(note, of ? (got.missing ?? []).slice(0, 3).join('; ') : 'There are no figures of this pod: it does not run, or was not measured yet.');
    if (!of) return;
    add('', uid ? 'Pod' : '', at, of);
    for (const c of (uid ? of.containers : of.systemContainers) ?? []) add(c.name, c.name, at, c);
  }, e => setText(note, e.message));
  return { element, close: () => polled.stop() };
}
