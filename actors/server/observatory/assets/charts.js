// Charts of the figures that the agent has recorded, and of new ones. A chart is made once; each sample changes its paths.
import { ask, bytes, h, poll, s, setAttr, setText, span, time } from './dom.js';

const WIDTH = 480, HEIGHT = 120, KEEP = 15 * 60e3, EVERY = 5000;

const cores = v => (Number.isFinite(v) ? `${Number(v.toPrecision(3))} cores` : '–');
const rate = v => (Number.isFinite(v) ? `${bytes(v)}/s` : '–');
const number = v => (Number.isFinite(v) ? String(Math.round(v)) : '–');

// amount returns the number of a Kubernetes quantity such as 250m or 64Mi; undefined where there is none.
const SUFFIXES = { n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
function amount(quantity) {
  const [, digits, suffix] = /^([\d.]+(?:e\d+)?)([a-zA-Z]*)$/.exec(quantity ?? '') ?? [];
  return digits && suffix in SUFFIXES ? Number(digits) * SUFFIXES[suffix] : undefined;
}

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
    this.requestLine = s('line', { class: 'request', x1: 0, x2: WIDTH });
    this.bounds = h('span', { class: 'bounds' });
    this.cursor = s('line', { class: 'cursor', y1: 0, y2: HEIGHT });
    this.svg = s('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', preserveAspectRatio: 'none' },
      [0.5, HEIGHT / 2, HEIGHT - 0.5].map(y => s('line', { x1: 0, x2: WIDTH, y1: y, y2: y })), this.area, this.paths, this.requestLine, this.limitLine, this.cursor);
    this.svg.addEventListener('pointermove', e => { this.over = (e.clientX - this.svg.getBoundingClientRect().left) / this.svg.clientWidth; this.read(); });
    this.svg.addEventListener('pointerleave', () => { this.over = null; this.read(); });
    this.title = title;
    this.bar = limit && h('meter', { min: 0, 'aria-label': title });
    this.element = h('figure', { class: 'chart' }, h('figcaption', {}, h('span', {}, title),
      curves.map((name, i) => h('span', { class: `now c${i + 1}` }, `${name} `, this.now[i])), this.bounds), this.bar, h('div', { class: 'plot' }, this.svg, this.top), h('div', { class: 'axis' }, this.from, this.to));
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

  // push appends a sample; draw shows it.
  push(at, values) {
    const last = this.samples.at(-1)?.[0];
    if (at === last) return;
    if (at < last) this.samples = []; // the node's clock was set back
    this.samples.push([at, values]);
    this.samples = this.samples.filter(([t]) => at - t <= KEEP);
  }

  // draw shows the samples, with the request and the limit where they are near the figures.
  draw(limit, request) {
    if (!this.samples.length) return;
    const [at, values] = this.samples.at(-1);
    this.element.hidden = this.samples.every(([, some]) => !some.some(Number.isFinite));
    const from = this.start = Math.min(this.samples[0][0], at - KEEP / 5), most = Math.max(0, ...this.samples.flatMap(([, v]) => v.filter(Number.isFinite)));
    const near = v => v > 0 && v < 4 * most;
    const top = ceiling(Math.max(most, ...[limit, request].filter(near)), this.says === bytes || this.says === rate);
    const x = t => ((t - from) / (at - from) * WIDTH).toFixed(1), y = v => (HEIGHT - 1 - v / top * (HEIGHT - 14)).toFixed(1);
    this.paths.forEach((path, n) => {
      const points = this.samples.filter(([, v]) => Number.isFinite(v[n])).map(([t, v]) => `${x(t)} ${y(v[n])}`);
      const d = points.length > 1 ? `M${points.join('L')}` : points.length ? `M${points[0]}h-3` : '';
      setAttr(path, 'd', d);
      if (n === 0) setAttr(this.area, 'd', points.length > 1 ? `${d}L${WIDTH} ${HEIGHT}L${points[0].split(' ')[0]} ${HEIGHT}Z` : '');
    });
    setText(this.top, this.says(top));
    setText(this.from, `${span(at - from)} ago`);
    for (const [line, v] of [[this.limitLine, limit], [this.requestLine, request]]) {
      line.style.visibility = near(v) ? '' : 'hidden';
      if (near(v)) for (const end of ['y1', 'y2']) setAttr(line, end, y(v));
    }
    setText(this.bounds, [request > 0 && `request ${this.says(request)}`, limit > 0 && `limit ${this.says(limit)}`].filter(Boolean).join(', '));
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

// KINDS are the charts of a node, a pod or a container. of reads the figures of an answer, past those of a recorded sample.
const KINDS = [
  { title: 'CPU', says: cores, curves: ['used'], resource: 'cpu', of: f => [f.cpu?.usageNanoCores / 1e9], past: p => [p.cpuCores] },
  { title: 'Memory', says: bytes, curves: ['working set', 'RSS'], resource: 'memory', limit: f => f.memory?.availableBytes + f.memory?.workingSetBytes,
    of: f => [f.memory?.workingSetBytes, f.memory?.rssBytes], past: p => [p.workingSetBytes, p.rssBytes] },
  { title: 'Network', says: rate, curves: ['received', 'sent'], grows: true, of: f => [f.network?.rxBytes, f.network?.txBytes], past: p => [p.receivedBytesPerSecond, p.sentBytesPerSecond] },
  { title: 'File system', says: bytes, curves: ['used'], limit: f => f.fs?.capacityBytes, of: f => [(f.fs ?? f['ephemeral-storage'] ?? f.rootfs)?.usedBytes], past: p => [p.diskBytes] },
  { title: 'Processes', says: number, curves: ['running'], of: f => [f.process_stats?.process_count ?? f.rlimit?.curproc], past: p => [p.processes] },
];

class Figures {
  constructor(title) {
    this.charts = KINDS.map(kind => new Chart(kind));
    this.element = h('section', { class: 'figures' }, title && h('h3', {}, title), h('div', { class: 'charts' }, this.charts.map(c => c.element)));
  }
  // recorded shows the samples of a series that the agent has recorded.
  recorded({ samples, requests, limits }) {
    KINDS.forEach((kind, i) => {
      this.charts[i].request = amount(requests?.[kind.resource]);
      this.charts[i].bound = amount(limits?.[kind.resource]);
      for (const p of samples) this.charts[i].push(time(p.at), kind.past(p));
    });
  }
  add(at, f) {
    KINDS.forEach((kind, i) => {
      const chart = this.charts[i];
      let values = kind.of(f);
      if (kind.grows) {
        const old = this.old, now = values;
        values = now.map((v, n) => (old ? (v - old.values[n]) / ((at - old.at) / 1000) : NaN)).map(v => (v >= 0 ? v : NaN));
        this.old = { at, values: now };
      }
      chart.push(at, values);
      chart.draw(chart.bound ?? kind.limit?.(f), chart.request);
    });
  }
}

// figures shows the recorded figures of the node, or of a pod and its containers, and asks for new ones while it is shown.
export function figures(uid) {
  const parts = new Map(), note = h('p', { class: 'note', role: 'status' }, 'asking for figures …');
  const element = h('div', {}, note);
  let past = new Map();
  const add = (key, title, at, f) => {
    if (!parts.has(key)) {
      parts.set(key, new Figures(title));
      element.append(parts.get(key).element);
      if (past.has(key)) parts.get(key).recorded(past.get(key));
    }
    parts.get(key).add(at, f);
  };
  let polled = null, closed = false;
  const start = () => { if (!closed) polled = poll(`/v1/figures?pod=${uid ?? ''}`, EVERY, got => {
    const at = time(got.at), of = uid ? got.pods?.[0] : got.node;
    setText(note, of ? (got.missing ?? []).slice(0, 3).join('; ') : 'There are no figures of this pod: it does not run, or was not measured yet.');
    if (!of) return;
    add('', uid ? 'Pod' : '', at, of);
    for (const c of (uid ? of.containers : of.systemContainers) ?? []) add(c.name, c.name, at, c);
  }, e => setText(note, e.message)); };
  ask(`/v1/figures/history?pod=${uid ?? ''}`).then(got => { past = new Map(got.series.map(one => [one.name, one])); }, () => {}).then(start); // without history the charts begin now
  return { element, close: () => { closed = true; polled?.stop(); } };
}
