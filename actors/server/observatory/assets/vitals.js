// Sparklines of an actor's messages, queue and handling time, and the story of its last restart.
import { ask, h, s, setAttr, setText, span, time, took } from './dom.js';

const KEEP = 60, WIDTH = 120, HEIGHT = 22; // two minutes of samples

// RATES are computed from two answers about an actor.
const RATES = [
  { title: 'Messages', of: (a, b, sec) => (b.handled - a.handled) / sec, says: v => `${Number(v.toPrecision(2))}/s` },
  { title: 'Queue', of: (a, b) => b.waiting, says: v => `${v} waiting` },
  { title: 'Handling', of: (a, b) => (b.handled > a.handled ? (b.handlingNanoseconds - a.handlingNanoseconds) / (b.handled - a.handled) : 0), says: v => `${took(v)} a message` },
];

// observe appends the rates between two answers; a new life begins anew.
export function observe(before, now, at) {
  const history = before?.history ?? RATES.map(() => []);
  if (before && before.since === now.since && at > before.seen) {
    const sec = (at - before.seen) / 1000;
    RATES.forEach((r, i) => { history[i].push(r.of(before, now, sec)); if (history[i].length > KEEP) history[i].shift(); });
  }
  Object.assign(now, { history, seen: at });
}

// sparkline draws values from the left to the newest at the right end.
export function sparkline(label) {
  const path = s('path', { class: 'curve c1' }), svg = s('svg', { class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', preserveAspectRatio: 'none' }, path);
  return { element: svg, draw(values, said) {
    const top = Math.max(1e-9, ...values);
    const at = (v, i) => `${((KEEP - values.length + i) / (KEEP - 1) * WIDTH).toFixed(1)} ${(HEIGHT - 1 - v / top * (HEIGHT - 3)).toFixed(1)}`;
    setAttr(path, 'd', values.length > 1 ? `M${values.map(at).join('L')}` : '');
    setAttr(svg, 'aria-label', `${label}: ${said}`);
  } };
}

// rates shows the sparklines of one actor.
export function rates() {
  const rows = RATES.map(r => ({ r, line: sparkline(r.title), now: h('b') }));
  const element = h('div', { class: 'rates' }, rows.map(({ r, line, now }) => h('div', {}, h('span', {}, r.title), line.element, now)));
  return { element, show(actor) {
    element.hidden = !actor?.history?.[0].length;
    rows.forEach(({ r, line, now }, i) => {
      const values = actor?.history?.[i] ?? [], newest = values.at(-1), said = newest === undefined ? '' : r.says(newest);
      setText(now, said);
      line.draw(values, said);
    });
  } };
}

const AFTER = 10e3; // messages that arrive this long after a restart are shown with it

// recovery shows the last failure of an actor, the time until it ran again, and the messages that it was sent since.
export function recovery(path) {
  const said = h('p'), list = h('ul'), element = h('section', { class: 'recovery', hidden: true }, h('h3', {}, 'Last recovery'), said, list);
  let read = '';
  return { element, async show(a) {
    const fell = time(a.failure?.at), up = time(a.since);
    element.hidden = !(fell > 0);
    if (element.hidden) return;
    const back = a.state === 'running' && up >= fell;
    setText(said, `${a.failure.reason}. ${back ? `It ran again after ${took((up - fell) * 1e6)}.` : `It does not run yet: ${a.state}.`}`);
    const key = `${a.failure.at} ${a.since} ${Date.now() - up < 2 * AFTER ? a.handled : ''}`;
    if (!back || key === read) return;
    read = key;
    try {
      const got = await ask(`/v1/trace?actor=${encodeURIComponent(path || 'node')}&since=${encodeURIComponent(a.since)}`);
      const groups = new Map();
      for (const e of got.entries ?? []) {
        if (e.to !== (path || 'node') && e.to !== path || e.kind || time(e.began) - up > AFTER) continue;
        const from = e.from === e.to ? 'itself' : e.from.split('/')[0] || 'node', name = `${e.message} from ${from}`; // all pods count as one sender
        groups.set(name, (groups.get(name) ?? 0) + 1);
      }
      list.replaceChildren(...[...groups].slice(0, 12).map(([name, n]) => h('li', {}, n > 1 ? `${n} × ${name}` : name)),
        ...(groups.size > 12 ? [h('li', {}, `and ${groups.size - 12} more kinds`)] : []), ...(groups.size ? [] : [h('li', {}, `no message within ${span(AFTER)}`)]));
    } catch (e) { list.replaceChildren(h('li', {}, e.message)); }
  } };
}
