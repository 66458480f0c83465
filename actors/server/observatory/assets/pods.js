// Pods: the list, and what is said of one of them.
import { ago, ask, follow, h, poll, setText, span, time, took } from './dom.js';
import { Diagram } from './diagram.js';
import { figures } from './charts.js';
import { logs } from './logs.js';

export const pods = new Map(); // by UID
const changed = new Set(); // who is told of changes

export const podName = uid => (pods.has(uid) ? `${pods.get(uid).metadata.namespace}/${pods.get(uid).metadata.name}` : null);
export const onPods = f => { changed.add(f); return () => changed.delete(f); };

// watchPods keeps the pods as the agent tells of them, and gives what concerns all of them to node.
export function watchPods(node, state) {
  return follow('/v1/pods?watch=true&brief=true', line => {
    if (line.full) pods.clear();
    for (const p of line.pods ?? []) pods.set(p.metadata.uid, digest(p));
    for (const p of line.gone ?? []) pods.delete(p.uid);
    if (line.node) node(line.node);
    changed.forEach(f => f(line));
  }, state);
}

// digest adds what a row shows.
function digest(p) {
  const main = p.status.containerStatuses ?? [], init = p.status.initContainerStatuses ?? [], all = [...init, ...main];
  const sidecars = (p.spec.initContainers ?? []).filter(c => c.restartPolicy === 'Always').map(c => c.name);
  const ready = [...main, ...init.filter(c => sidecars.includes(c.name))];
  const waits = all.map(c => c.state?.waiting?.reason).find(r => r && r !== 'PodInitializing' && r !== 'ContainerCreating');
  p.name = `${p.metadata.namespace}/${p.metadata.name}`;
  p.ready = `${ready.filter(c => c.ready).length}/${(p.spec.containers ?? []).length + sidecars.length}`;
  p.restarts = all.reduce((n, c) => n + (c.restartCount ?? 0), 0);
  p.word = p.agent.state; // as the commands have it
  p.tone = p.agent.quarantine || p.status.phase === 'Failed' || waits && waits !== 'PodInitializing' ? 'bad'
    : p.agent.cause || p.word === 'Terminating' ? 'warn' : p.status.phase === 'Succeeded' ? 'done'
      : p.status.phase === 'Running' && p.ready.split('/')[0] === p.ready.split('/')[1] ? 'good' : 'wait';
  return p;
}

// inTrouble reports whether a pod belongs at the top of the list.
export const inTrouble = p => p.tone === 'bad' || p.tone === 'warn';
const RANK = { bad: 0, warn: 1 };
export const troubleFirst = p => RANK[p.tone] ?? 2;

const text = value => ({ key: value, cell: (p, element) => setText(element, value(p)) });

export const podColumns = [
  { name: 'dot', head: '', key: p => p.tone, cell: (p, element) => { element.replaceChildren(h('i', { class: `dot ${p.tone}`, title: p.word })); } },
  { name: 'name', head: 'Pod', by: p => p.name, key: p => p.name, cell: (p, element) => {
    element.replaceChildren(h('small', {}, `${p.metadata.namespace}/`), p.metadata.name);
    element.title = p.name;
  } },
  { name: 'ready', head: 'Ready', by: p => { const [n, of] = p.ready.split('/'); return n - of; }, ...text(p => p.ready) },
  { name: 'state', head: 'State', by: p => p.word, key: p => p.word + p.tone, cell: (p, element) => { setText(element, p.word); element.dataset.tone = p.tone; } },
  { name: 'restarts', head: 'Restarts', by: p => -p.restarts, ...text(p => (p.restarts ? String(p.restarts) : '')) },
  { name: 'age', head: 'Age', by: p => -Date.parse(p.metadata.creationTimestamp ?? p.status.startTime) || 0, ...text(p => ago(p.metadata.creationTimestamp ?? p.status.startTime)) },
  { name: 'cause', head: 'Why', by: p => (p.agent.cause ? `0${p.agent.cause}` : '1'), key: p => p.agent.cause ?? '', cell: (p, element) => { setText(element, p.agent.cause ?? ''); element.title = p.agent.cause ?? ''; } },
];

// TABS are what is shown of a pod; each gives an element, and how it is closed.
export const podTabs = [['Why', explanation], ['Logs', logs], ['Messages', uid => new Diagram({ pod: uid }, podName)], ['Start', criticalPath], ['Figures', figures]];

const pair = (name, value) => (value ? [h('dt', {}, name), h('dd', {}, value)] : []);

// findings is what the agent says of a pod or of the node.
export function findings(e) {
  const moment = t => (t ? `${new Date(t).toLocaleTimeString()} (${time(t) > Date.now() ? `in ${span(time(t) - Date.now())}` : `${ago(t)} ago`})` : '');
  const state = f => (f === e && e.kind !== 'Node' && f.code ? f.state ?? f.code : '');
  const one = (f, level) => h('section', { class: 'finding' }, h(level, { class: 'cause' }, f.cause), h('dl', {},
    pair('State', state(f)), pair(e.kind === 'Node' ? 'Check' : 'Reason', f.code === state(f) ? '' : f.code), pair('Container', f.container), pair('Waits for', f.waitsFor), pair('Since', moment(f.since)),
    pair('Failed', f.tries ? (f.tries === 1 ? 'once' : `${f.tries} times`) : ''), pair('Last error', f.lastError), pair('Retry', moment(f.nextTry)),
    pair('Until', moment(f.until)), pair('To fix it', f.remedy)));
  return [one(e, 'h3'), (e.others ?? []).map(f => one(f, 'h4'))];
}

function explanation(uid) {
  const said = h('div', { 'aria-live': 'polite' }), table = h('tbody'), list = h('ol', { class: 'events' });
  const element = h('div', {}, said, h('h3', {}, 'Containers'), h('table', {}, h('thead', {}, h('tr', {},
    ['Name', 'State', 'Ready', 'Restarts', 'Since', 'Image'].map(t => h('th', { scope: 'col' }, t)))), table), h('h3', {}, 'Events'), list);
  const pod = () => pods.get(uid);
  let last = '';
  const containers = () => {
    const p = pod();
    if (!p) return;
    table.replaceChildren(...[...p.status.initContainerStatuses ?? [], ...p.status.containerStatuses ?? [], ...p.status.ephemeralContainerStatuses ?? []].map(c => {
      const [kind, st] = Object.entries(c.state ?? {})[0] ?? ['unknown', {}];
      return h('tr', {}, h('th', { scope: 'row' }, c.name), h('td', {}, st.reason ?? kind), h('td', {}, c.ready ? 'yes' : 'no'),
        h('td', {}, c.restartCount ?? 0), h('td', {}, ago(st.startedAt ?? st.finishedAt)), h('td', { class: 'image' }, c.image ?? ''));
    }));
  };
  const path = kind => `/v1/${kind}?namespace=${encodeURIComponent(pod()?.metadata.namespace ?? '')}`;
  const polls = [
    poll(() => path(`explain/pod/${encodeURIComponent(pod()?.metadata.name ?? uid)}`), 3000, got => {
      const found = got.items.find(i => i.uid === uid) ?? got.items[0];
      const now = JSON.stringify({ ...found, messages: null });
      if (now !== last || found.since) said.replaceChildren(...findings(found).flat());
      last = now;
      containers();
    }, e => said.replaceChildren(h('p', { class: 'note' }, e.status === 404 ? 'This pod is no longer on the node. Close this (Esc) and choose another from the list.' : e.message))),
    poll(() => `${path('events')}&name=${encodeURIComponent(pod()?.metadata.name ?? uid)}`, 5000, got => {
      list.replaceChildren(...got.items.slice(-20).reverse().map(e => h('li', { class: e.type === 'Warning' ? 'warning' : '' },
        h('time', {}, `${ago(e.lastTimestamp ?? e.eventTime)} ago`), h('b', {}, e.reason), h('span', {}, e.message), e.count > 1 && h('small', {}, `× ${e.count}`))));
      if (!got.items.length) list.replaceChildren(h('li', { class: 'note' }, 'No Event of this pod is recorded.'));
    }, () => {}),
  ];
  return { element, close: () => polls.forEach(p => p.stop()) };
}

// criticalPath shows where the time of a pod's start went. It is asked for until there is one.
function criticalPath(uid) {
  const element = h('div', { class: 'path' }, h('p', { class: 'note' }, 'asking …'));
  const look = async () => {
    try {
      const p = await ask(`/v1/criticalpath?pod=${uid}`);
      off();
      element.replaceChildren(...drawPath(p));
    } catch (e) {
      element.replaceChildren(h('p', { class: 'note', role: 'status' }, e.message));
    }
  };
  const off = onPods(line => { if (line.pods?.some(p => p.metadata.uid === uid)) look(); });
  look();
  return { element, close: off };
}

function drawPath(p) {
  const sums = new Map(), whole = Math.max(p.took, 1), share = ns => `${(100 * ns / whole).toFixed(1)}%`;
  for (const g of p.segments) sums.set(g.kind, (sums.get(g.kind) ?? 0) + g.took);
  const bar = h('div', { class: 'stack', role: 'img', 'aria-label': [...sums].map(([k, ns]) => `${k} ${share(ns)}`).join(', ') },
    p.segments.map(g => { const i = h('i', { class: `k-${g.kind}`, title: `${g.name}: ${took(g.took)}` }); i.style.flexGrow = g.took; return i; }));
  const legend = h('ul', { class: 'sums' }, [...sums].sort((x, y) => y[1] - x[1]).map(([k, ns]) => h('li', {}, h('i', { class: `k-${k}` }), `${k} `, h('b', {}, took(ns)), ` ${share(ns)}`)));
  let at = 0;
  const rows = p.segments.map(g => {
    const began = at, line = h('i', { class: `k-${g.kind}` });
    at += g.took;
    line.style.marginLeft = `${100 * began / whole}%`;
    line.style.width = `max(2px, ${100 * g.took / whole}%)`;
    return g.took / whole < 0.001 ? null : h('tr', {}, h('td', { class: 'n' }, `+${(began / 1e9).toFixed(3)}`), h('td', { class: 'n' }, took(g.took)),
      h('td', {}, g.kind), h('td', {}, g.actor), h('td', {}, g.name), h('td', { class: 'fall' }, line));
  });
  const short = rows.filter(r => !r).length;
  return [h('p', { class: 'lead' }, p.adopted ? 'Not the pod\'s start: the agent found it running and adopted it. From the agent\'s first message to ready: ' : 'From start to ready: ', h('b', {}, took(p.took))), bar, legend, h('table', {}, h('thead', {}, h('tr', {},
    ['at', 'took', 'kind', 'actor', 'what', 'share'].map(t => h('th', { scope: 'col' }, t)))), h('tbody', {}, rows)),
  short > 0 && h('p', { class: 'note' }, `${short} more, each less than 0.1 %, are left out.`)].filter(Boolean);
}
