// The page: which view is shown, what is open beside it, and the keys.
import { $, h, poll, setAttr, setText } from './dom.js';
import { List } from './list.js';
import { findings, inTrouble, onPods, podColumns, pods, podTabs, troubleFirst, watchPods } from './pods.js';
import { actorColumns, actors, actorTabs, chaos, chaosOn, foldActor, isFolded, shownActors, watchActors } from './actors.js';
import { figures } from './charts.js';
import { glance, watchAgent } from './glance.js';

const heard = {}; // the views whose first answer came
let view = '', list = null, open = null, feed = null, only = 'all', drawing = false;
let sorted = null, down = false; // the column that the list is sorted by, and whether its order is turned round

// VIEWS with a list: what its items are, how they are told apart and filtered, and what is shown of one.
const LISTS = {
  pods: {
    role: 'listbox', label: 'Pods', columns: podColumns, id: p => p.metadata.uid, title: p => p.name, tabs: podTabs, find: uid => pods.get(uid),
    chips: { all: ['All', () => true], trouble: ['In trouble', inTrouble], wait: ['Not ready', p => p.tone !== 'good' && p.tone !== 'done'] },
    words: p => `${p.name} ${p.word} ${p.agent.cause ?? ''}`, all: () => [...pods.values()].sort((x, y) => order(x, y, troubleFirst) || compare(x.name, y.name)),
    empty: 'There is no pod on this node yet. Run one with `playlet run FILE` or put a manifest into the manifest folder.',
    filtered: (match, chip) => LISTS.pods.all().filter(p => chip(p) && (!match || match(p))),
    feed: () => { const stop = onPods(() => draw()); return { stop }; },
  },
  actors: {
    role: 'tree', label: 'Actors', columns: actorColumns, id: a => a.path, title: a => a.pod && a.name !== a.pod ? `${a.pod} ${a.name}` : a.name, tabs: actorTabs,
    find: path => actors.byPath.get(path === 'node' ? '' : path), level: a => a.depth + 1, folded: isFolded,
    fold: (a, close) => { list.at = foldActor(a, close).path; draw(); },
    chips: { all: ['All', () => true], trouble: ['In trouble', a => a.state !== 'running' || a.slow || a.failure], busy: ['Busy', a => a.waiting > 0 || a.handling] },
    empty: 'No actor has answered yet.',
    words: a => `${a.path} ${a.pod ?? ''} ${a.kind} ${a.state}`, all: () => actors.all,
    filtered: (match, chip) => shownActors(match || only !== 'all' ? a => chip(a) && (!match || match(a)) : null),
    feed: () => watchActors(() => { heard.actors = true; draw(); }, said),
  },
};

const compare = (x, y) => (x < y ? -1 : x > y ? 1 : 0);
// order compares by the chosen column, or by the view's own order.
const order = (x, y, own) => { const by = sorted?.by ?? own; return (down ? -1 : 1) * compare(by(x), by(y)); };

// sortBy sorts by a column, then the other way round, then in the view's own order.
function sortBy(column) {
  if (sorted !== column) { sorted = column; down = false; } else if (!down) down = true; else { sorted = null; down = false; }
  actors.order = sorted && view === 'actors' ? order : null;
  for (const b of $('head').querySelectorAll('button')) {
    const on = b.dataset.sort === sorted?.name;
    setAttr(b, 'aria-pressed', on);
    setText(b.lastChild, on ? (down ? ' ▾' : ' ▴') : '');
  }
  drawNow();
}

// draw shows what is new, once a frame at most.
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  drawing = false;
  setText($('pod-count'), pods.size ? String(pods.size) : '');
  const troubled = [...pods.values()].filter(inTrouble).length;
  if (heard.pods) tell(troubled);
  setText($('actor-count'), actors.all.length ? String(actors.all.length) : '');
  const kind = LISTS[view];
  if (!kind || !list) return;
  const words = $('filter').value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const match = words.length ? item => { const t = kind.words(item).toLowerCase(); return words.every(w => t.includes(w)); } : null;
  const all = kind.all();
  for (const chip of $('chips').children) setText(chip.lastChild, String(chip.dataset.chip === 'all' ? all.length : all.filter(kind.chips[chip.dataset.chip][1]).length));
  const items = kind.filtered(match, kind.chips[only][1]);
  setText($('shown'), match || only !== 'all' ? `${items.length} of ${all.length}` : '');
  list.show(items);
  $('scroll').classList.toggle('empty', !items.length);
  setAttr($('scroll'), 'data-empty', !heard[view] ? 'Reading …' : match ? 'Nothing matches. Clear the filter with / and Esc.' : only === 'trouble' ? 'Nothing is in trouble.' : only !== 'all' ? 'Nothing here now. Choose All to see the rest.' : kind.empty);
  if (open) header(open);
  document.body.dataset.shown = `${view} ${items.length}`;
}

function showView(name) {
  if (view === name) return;
  list?.close();
  feed?.stop();
  close();
  view = name;
  list = feed = sorted = actors.order = null;
  only = 'all';
  down = false;
  $('filter').value = '';
  document.body.dataset.view = name;
  for (const a of document.querySelectorAll('nav a')) setAttr(a, 'aria-current', a.dataset.view === name ? 'page' : null);
  const kind = LISTS[name];
  $('master').hidden = !kind;
  if (!kind) return show(name === 'chaos' ? chaos() : node());
  $('chips').replaceChildren(...Object.entries(kind.chips).map(([key, [label]]) => h('button', { type: 'button', 'data-chip': key, 'aria-pressed': String(key === only),
    onclick: () => choose(key) }, label, ' ', h('b'))));
  list = new List($('scroll'), $('head'), { ...kind, sort: sortBy, open: item => go(view, kind.id(item) || 'node') });
  feed = kind.feed();
  draw();
}

function choose(chip) {
  only = chip;
  for (const c of $('chips').children) setAttr(c, 'aria-pressed', c.dataset.chip === chip);
  draw();
}

// show puts a view of its own where lists have their detail.
function show(part) {
  open = { part };
  $('detail').replaceChildren(h('div', { class: 'body', tabindex: '0', role: 'region', 'aria-label': view === 'chaos' ? 'Chaos' : 'Node' }, part.element));
  $('detail').hidden = false;
}

function node() {
  const said = h('div', { 'aria-live': 'polite' }), shown = figures();
  let last = '';
  const polled = poll('/v1/explain/node', 3000, got => {
    const now = JSON.stringify(got.items);
    if (now !== last) said.replaceChildren(...findings(got.items[0]).flat());
    last = now;
  }, e => said.replaceChildren(h('p', { class: 'note' }, e.message)));
  return { element: h('div', { class: 'wide' }, h('h2', {}, 'Health'), said, h('h2', {}, 'What it uses'), shown.element), close: () => { polled.stop(); shown.close(); } };
}

// openItem shows one item of the list with its tabs.
function openItem(id, tab) {
  const kind = LISTS[view];
  if (open?.id !== id) {
    close();
    const tabs = h('div', { role: 'tablist', class: 'tabs', 'aria-label': 'What is shown', onkeydown: e => {
      const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (d) { goTab((open.tab + d + kind.tabs.length) % kind.tabs.length); open.tabs.children[open.tab].focus(); e.preventDefault(); e.stopPropagation(); }
    } }, kind.tabs.map(([name], i) => h('button', { type: 'button', role: 'tab', id: `tab-${i}`, 'aria-controls': 'panel', onclick: () => goTab(i) }, name)));
    open = { id, tabs, tab: -1, title: h('h2'), pill: h('span', { class: 'pill' }) };
    open.panel = h('div', { class: 'body', role: 'tabpanel', id: 'panel', tabindex: '0' });
    $('detail').replaceChildren(h('div', { class: 'top' }, open.title, open.pill, h('button', { type: 'button', class: 'close', 'aria-label': 'Close', title: 'Close (Esc)', onclick: leave }, '×')), tabs, open.panel);
    $('detail').hidden = false;
    document.body.dataset.open = id;
    if (list) { list.at = id === 'node' && view === 'actors' ? '' : id; requestAnimationFrame(() => { const i = list?.place() ?? -1; if (i >= 0) list.choose(i); }); }
    header(open);
  }
  if (open.tab === tab) return;
  const inside = open.panel.contains(document.activeElement);
  open.part?.close();
  open.tab = tab;
  $('detail').dataset.tab = kind.tabs[tab][0];
  [...open.tabs.children].forEach((b, i) => { setAttr(b, 'aria-selected', i === tab); setAttr(b, 'tabindex', i === tab ? 0 : -1); });
  open.part = kind.tabs[tab][1](id === 'node' && view === 'actors' ? '' : id);
  open.panel.replaceChildren(open.part.element);
  setAttr(open.panel, 'aria-labelledby', `tab-${tab}`);
  if (inside) (open.panel.querySelector('[role=listbox]') ?? open.panel).focus();
}

function header(o) {
  const kind = LISTS[view], item = kind?.find(o.id);
  if (!o.title) return;
  setText(o.title, item ? kind.title(item) : o.title.textContent || o.id);
  setText(o.pill, item ? item.word ?? item.state : 'gone');
  o.pill.dataset.tone = item ? item.tone ?? (item.state === 'running' ? 'good' : 'bad') : 'done';
}

function close() {
  open?.part?.close();
  open = null;
  $('detail').hidden = true;
  $('detail').replaceChildren();
  delete document.body.dataset.open;
}

// go changes the address, so that what is shown can be gone back from and linked to.
function go(...to) {
  const hash = `#/${to.map(encodeURIComponent).join('/')}`;
  if (location.hash !== hash) location.hash = hash;
  route(); // at once: the next key is for what is shown then
}
const goTab = i => go(view, open.id, i + 1);
const leave = () => { go(view); $('scroll').focus(); };

function route() {
  const [name, id, tab] = location.hash.replace(/^#\/?/, '').split('/');
  showView(LISTS[name] || name === 'node' || name === 'chaos' ? name : 'pods');
  if (!LISTS[view]) return;
  const n = Number(tab) || 1;
  if (id) openItem(decodeURIComponent(id), Math.min(Math.max(n, 1), LISTS[view].tabs.length) - 1);
  else { close(); draw(); }
}

let went = 0; // when g was pressed
addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || $('keys').open) return;
  const typing = e.target.matches('input, select, textarea');
  if (e.key === 'Escape') {
    if (e.target === $('filter') && $('filter').value) { $('filter').value = ''; drawNow(); }
    if (typing) $('scroll').focus();
    else if (open?.id !== undefined) leave();
    return;
  }
  if (typing) {
    if (e.target === $('filter') && (e.key === 'ArrowDown' || e.key === 'Enter')) { drawNow(); $('scroll').focus(); list?.choose(Math.max(0, list.place())); e.preventDefault(); }
    return;
  }
  const to = { p: 'pods', a: 'actors', n: 'node', c: 'chaos' }[e.key];
  if (Date.now() - went < 1500 && to) { went = 0; if (to !== 'chaos' || !$('chaos-link').hidden) go(to); return; }
  went = e.key === 'g' ? Date.now() : 0;
  if (e.key === '/' && list) { $('filter').focus(); e.preventDefault(); }
  else if (e.key === '?') $('keys').showModal();
  else if (/^[1-9]$/.test(e.key) && open?.tabs && e.key <= open.tabs.children.length) goTab(Number(e.key) - 1);
  else if (/^(j|k|Arrow(Down|Up))$/.test(e.key) && list && e.target === document.body) { $('scroll').focus(); list.key(e); }
  else if (/^[jk]$/.test(e.key) && $('detail').contains(e.target)) {
    const inner = $('detail').querySelector('[role=listbox]');
    if (inner && !inner.contains(e.target)) { inner.focus(); open.part.key?.(e); } else open.panel?.scrollBy(0, e.key === 'j' ? 40 : -40);
  }
});
$('filter').addEventListener('input', draw);
$('help').addEventListener('click', () => $('keys').showModal());
$('skip').addEventListener('click', e => { e.preventDefault(); (list ? $('scroll') : $('detail')).focus(); });
addEventListener('hashchange', route);

function said(state) {
  const bad = state instanceof Error;
  setText($('link'), bad ? state.message : state === 'live' ? 'live' : 'connecting');
  $('link').dataset.state = bad ? 'bad' : state;
  $('link').title = bad ? state.message : '';
}

const tell = glance(() => { go('pods'); choose('trouble'); }, name => setText($('node'), name));
watchPods(n => {
  const r = n.runtime, ok = r.ready && !(n.unheard ?? []).length && n.audited;
  setText($('health'), !r.name ? 'the runtime has not answered yet' : !r.ready ? `${r.name} is not ready${r.reason?.message ? `: ${r.reason.message}` : ''}`
    : ok ? `${r.name} ${r.version}` : 'reading what runs');
  $('health').dataset.tone = ok ? 'good' : r.ready ? 'wait' : 'bad';
}, said);
onPods(() => { heard.pods = true; draw(); });
watchAgent();
chaosOn().then(on => { $('chaos-link').hidden = !on; });
setInterval(() => { if (!document.hidden) draw(); }, 5000); // ages
route();
