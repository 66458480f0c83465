// What the other files share: elements, words for times and sizes, and requests.
const SVG = 'http://www.w3.org/2000/svg';

function make(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(3).filter(c => c !== null && c !== undefined && c !== false));
  return element;
}
export const h = (tag, props, ...children) => make(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => make(document.createElementNS(SVG, tag), props, children);
export const $ = id => document.getElementById(id);

// set writes a text or an attribute only where it differs: what does not change costs no layout.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
export function setAttr(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export const time = text => (text ? Date.parse(text) : NaN);

// span is a duration in ms, short.
export function span(ms) {
  if (!Number.isFinite(ms)) return '';
  const sec = Math.max(0, ms) / 1000;
  if (sec < 60) return `${Math.floor(sec)}s`;
  if (sec < 3600) return `${Math.floor(sec / 60)}m${sec < 600 ? `${Math.floor(sec % 60)}s` : ''}`;
  if (sec < 86400) return `${Math.floor(sec / 3600)}h${Math.floor(sec / 60) % 60}m`;
  return `${Math.floor(sec / 86400)}d${Math.floor(sec / 3600) % 24}h`;
}
export const ago = text => (text ? span(Date.now() - time(text)) : '');

// took is a duration in ns, with three digits.
export function took(ns) {
  for (const [limit, by, unit] of [[1e3, 1, 'ns'], [1e6, 1e3, 'µs'], [1e9, 1e6, 'ms'], [Infinity, 1e9, 's']]) {
    if (ns < limit) return `${Number((ns / by).toPrecision(3))} ${unit}`;
  }
  return '';
}
export function bytes(v) {
  if (!Number.isFinite(v)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; v >= 1024 && i < units.length - 1; i++) v /= 1024;
  return `${Number(v.toPrecision(3))} ${units[i]}`;
}

// ask gives the JSON of an answer; an error has the sentence that the agent gave.
export async function ask(path, { method = 'GET', body, signal } = {}) {
  const limit = AbortSignal.timeout(25000);
  const answer = await fetch(path, {
    method, cache: 'no-store', body: body && JSON.stringify(body), signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
  const text = await answer.text();
  if (!answer.ok) throw refused(answer.status, text);
  return JSON.parse(text);
}
function refused(status, text) {
  let said = text.trim();
  try { said = JSON.parse(text).error ?? said; } catch { /* it is a plain sentence */ }
  return Object.assign(new Error(said || `the agent answered ${status}`), { status });
}

// lines calls each with every line of a stream until it ends, and returns the rest without a line end.
export async function lines(path, signal, each, opened) {
  const answer = await fetch(path, { cache: 'no-store', signal });
  if (!answer.ok) throw refused(answer.status, await answer.text());
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return parts.join('');
    const pieces = value.split('\n');
    for (let i = 0; i < pieces.length - 1; i++) {
      parts.push(pieces[i]);
      each(parts.join(''));
      parts = [];
    }
    parts.push(pieces.at(-1));
  }
}

const pause = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});

// live runs work while somebody looks at the page, from the start again each time; stop ends it for good. Work is given a
// signal that ends when the page is hidden.
export function live(work) {
  let control = null;
  const look = () => {
    if (document.hidden) { control?.abort(); control = null; }
    else if (!control) { control = new AbortController(); work(control.signal); }
  };
  document.addEventListener('visibilitychange', look);
  look();
  return { stop() { document.removeEventListener('visibilitychange', look); control?.abort(); control = null; } };
}

// follow reads a stream, and reads it again when it ends. state is told 'live', 'wait' or an error.
export function follow(path, each, state = () => {}) {
  return live(async signal => {
    for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 8000)) {
      try {
        await lines(typeof path === 'function' ? path() : path, signal, line => each(JSON.parse(line)), () => { wait = 500; state('live'); });
        state('wait');
      } catch (e) {
        if (!signal.aborted) state(e);
      }
      await pause(wait, signal);
    }
  });
}

// poll asks again and again, every so many ms.
export function poll(path, every, each, failed = () => {}) {
  return live(async signal => {
    while (!signal.aborted) {
      try {
        const got = await ask(typeof path === 'function' ? path() : path, { signal });
        if (!signal.aborted) each(got);
      } catch (e) {
        if (!signal.aborted) failed(e);
      }
      await pause(every, signal);
    }
  });
}
