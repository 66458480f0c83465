// Logs: a container's log as it grows, of its current run or the previous one.
import { h, lines, live, setText } from './dom.js';
import { onPods, pods } from './pods.js';

const TAIL = 500, MOST = 2000, WIDEST = 10000, STREAM = 9 * 60e3;

export function logs(uid) {
  const pod = pods.get(uid), box = (text, checked) => h('input', { type: 'checkbox', checked });
  const names = [...pod?.spec.containers ?? [], ...pod?.spec.initContainers ?? [], ...pod?.spec.ephemeralContainers ?? []].map(c => c.name);
  const container = h('select', { 'aria-label': 'Container', onchange: () => read() }, names.map(n => h('option', { value: n }, n)));
  const follow = box('Follow', true), previous = box('Previous'), wrap = box('Wrap', true);
  const search = h('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Show only the lines that contain this text', autocomplete: 'off', spellcheck: 'false', oninput: () => filter() });
  const note = h('span', { class: 'note', role: 'status' }), text = h('div', { class: 'log wrap', role: 'log', tabindex: '0', 'aria-label': 'Log' });
  const label = (input, name) => h('label', {}, input, ` ${name}`);
  follow.addEventListener('change', () => read());
  previous.addEventListener('change', () => read());
  wrap.addEventListener('change', () => text.classList.toggle('wrap', wrap.checked));
  let stream = null, waiting = [], drawing = false, state = '';

  const matches = line => line.textContent.toLowerCase().includes(search.value.toLowerCase());
  const report = () => {
    const n = text.children.length, hidden = text.querySelectorAll('[hidden]').length;
    setText(note, [state, search.value && n ? `${n - hidden} of ${n} lines match.` : '', !n && state && !stream?.failed ? 'This container has not written anything.' : ''].filter(Boolean).join(' '));
  };
  const filter = () => { for (const line of text.children) line.hidden = !matches(line); report(); };
  const draw = () => {
    drawing = false;
    const bottom = text.scrollTop + text.clientHeight > text.scrollHeight - 30;
    text.append(...waiting.splice(0).slice(-MOST).map(l => {
      const line = h('div', {}, l.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, '').slice(0, WIDEST) || ' ');
      line.hidden = !matches(line);
      return line;
    }));
    while (text.children.length > MOST) text.firstChild.remove();
    if (bottom && follow.checked) text.scrollTop = text.scrollHeight;
    report();
  };

  // read opens the log from its last lines. A stream that the agent closed at its time limit is opened again.
  function read() {
    stream?.stop();
    const query = new URLSearchParams({ uid, container: container.value, tailLines: TAIL, follow: follow.checked && !previous.checked, previous: previous.checked });
    const path = `/v1/logs/${encodeURIComponent(pod?.metadata.namespace ?? 'default')}/${encodeURIComponent(pod?.metadata.name ?? uid)}?${query}`;
    const own = stream = live(async signal => {
      for (let again = true; again && !signal.aborted;) {
        const began = Date.now();
        again = false;
        text.replaceChildren();
        waiting = [];
        state = '';
        try {
          const rest = await lines(path, signal, l => {
            waiting.push(l);
            if (!drawing) { drawing = true; setTimeout(draw, 50); }
          }, () => setText(note, 'live'));
          if (rest) waiting.push(rest);
          again = follow.checked && Date.now() - began > STREAM;
          state = follow.checked && !previous.checked ? 'The log has ended.' : 'This is the end of the log.';
        } catch (e) {
          if (signal.aborted) return;
          if (own) own.failed = true;
          state = e.status ? e.message : 'The connection broke. Tick Follow again to reconnect.';
        }
        if (!signal.aborted) draw();
      }
    });
  }
  // A restarted container has a new log.
  const run = () => [...pods.get(uid)?.status.containerStatuses ?? [], ...pods.get(uid)?.status.initContainerStatuses ?? []].find(c => c.name === container.value)?.containerID;
  let last = run();
  const off = onPods(() => { if (last !== run() && !previous.checked) { last = run(); if (follow.checked) read(); } });
  if (pod) read(); else setText(note, 'This pod is no longer on the node. Close this (Esc) and choose another from the list.');
  return { element: h('div', { class: 'logs' }, h('div', { class: 'tools' }, container, label(follow, 'Follow'), label(previous, 'Previous run'), label(wrap, 'Wrap'), search, note), text),
    close: () => { off(); stream?.stop(); } };
}
