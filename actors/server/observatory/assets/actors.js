// Actors: the live tree, an actor's own account, and chaos.
import { ago, ask, h, poll, setText, span, time } from './dom.js';
import { Diagram } from './diagram.js';
import { podName } from './pods.js';
import { observe, rates, recovery, sparkline } from './vitals.js';

export const actors = { all: [], byPath: new Map(), at: 0 };
const unfolded = new Set(['', 'sources', 'pods']); // the others are folded

export const parent = path => (path === '' ? null : path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '');

export function watchActors(each, failed) {
  return poll('/v1/actors', 2000, got => {
    actors.at = time(got.at);
    for (const a of got.actors) observe(actors.byPath.get(a.path), a, actors.at);
    actors.byPath = new Map(got.actors.map(a => [a.path, a]));
    const parents = new Set(got.actors.map(a => parent(a.path)));
    for (const a of got.actors) {
      a.depth = a.path === '' ? 0 : a.path.split('/').length;
      a.parent = parents.has(a.path);
      a.name = a.path === '' ? 'node' : a.pod && a.path.split('/').length === 2 ? a.pod : a.path.split('/').at(-1);
      a.oldest = a.handling ? actors.at - time(a.handling.sent) : NaN;
      a.slow = a.oldest > 1000;
    }
    actors.all = inOrder(got.actors);
    for (const a of actors.all) a.worst = tone(a);
    for (const a of actors.all.toReversed()) { // children come before their parents
      const over = actors.byPath.get(parent(a.path));
      if (over && SEVERITY.indexOf(a.worst) > SEVERITY.indexOf(over.worst)) over.worst = a.worst;
    }
    each();
  }, failed);
}

// inOrder has each actor before its children, and these by the chosen column or their names.
function inOrder(all) {
  const children = Map.groupBy(all, a => parent(a.path)), out = [];
  const add = a => { out.push(a); children.get(a.path)?.sort((x, y) => actors.order?.(x, y) || (x.name < y.name ? -1 : 1)).forEach(add); };
  children.get(null)?.forEach(add);
  return out;
}

export const isFolded = a => (a.parent ? !unfolded.has(a.path) : null);

// foldActor folds, unfolds, or changes over; it gives the actor to choose then.
export function foldActor(a, close) {
  if (close === undefined) close = unfolded.has(a.path);
  if (close && (!a.parent || !unfolded.has(a.path))) return actors.byPath.get(parent(a.path)) ?? a;
  if (close) unfolded.delete(a.path);
  else if (a.parent) unfolded.add(a.path);
  return a;
}

// shownActors are those that no folded one hides; with a filter, those that match, and all above them.
export function shownActors(match) {
  const all = actors.order ? inOrder(actors.all) : actors.all;
  if (match) {
    const keep = new Set();
    for (const a of all) if (match(a)) for (let p = a.path; p !== null; p = parent(p)) keep.add(p);
    return all.filter(a => keep.has(a.path));
  }
  const open = new Set([null]);
  return all.filter(a => {
    const shown = open.has(parent(a.path));
    if (shown && unfolded.has(a.path)) open.add(a.path);
    return shown;
  });
}

const SEVERITY = ['good', 'warn', 'bad'];
// A folded parent has the colour of the worst actor below it.
const shade = a => (isFolded(a) ? a.worst : tone(a));
const tone = a => ({ running: a.slow ? 'warn' : 'good', quarantined: 'bad', stopped: 'bad' }[a.state] ?? 'warn');
const text = value => ({ key: value, cell: (a, element) => setText(element, value(a)) });

export const actorColumns = [
  { name: 'actor', head: 'Actor', by: a => a.name, key: a => `${a.path} ${a.name} ${isFolded(a)} ${shade(a)}`, cell: (a, element) => {
    const folded = isFolded(a);
    element.replaceChildren(h('span', { class: 'fold' }, folded === null ? '' : folded ? '▸' : '▾'), h('i', { class: `dot ${shade(a)}` }), a.name);
    element.style.paddingLeft = `${a.depth * 16}px`;
    element.title = a.path || 'node';
  } },
  { name: 'state', head: 'State', by: a => -SEVERITY.indexOf(tone(a)), key: a => a.state + tone(a), cell: (a, element) => { setText(element, a.state); element.dataset.tone = tone(a); } },
  { name: 'mailbox', head: 'Mailbox', title: 'Sort by mailbox: waiting messages, and the most of this life', by: a => -a.waiting, ...text(a => `${a.waiting} / ${a.maxWaiting}`) },
  { name: 'rate', head: 'Messages', title: 'Sort by messages per second', by: a => -(a.history?.[0].at(-1) ?? 0), key: a => a.seen, cell: (a, element) => {
    element.spark ??= sparkline('Messages per second');
    if (element.firstChild !== element.spark.element) element.replaceChildren(element.spark.element);
    const values = a.history?.[0] ?? [], now = values.at(-1) ?? 0;
    element.spark.draw(values, now.toFixed(1));
    element.title = `${now.toFixed(1)} messages per second`;
  } },
  { name: 'oldest', head: 'Oldest', title: 'Sort by the age of the message being handled', by: a => -(a.oldest || 0), ...text(a => (a.handling && a.oldest >= 1000 ? `${span(a.oldest)} ${a.handling.message}` : '')) },
  { name: 'restarts', head: 'Restarts', by: a => -a.restarts, ...text(a => (a.restarts ? String(a.restarts) : '')) },
  { name: 'age', head: 'Up', by: a => -time(a.since), ...text(a => ago(a.since)) },
  { name: 'cause', head: 'Last failure', by: a => -(time(a.failure?.at) || 0), key: a => a.failure?.reason ?? '', cell: (a, element) => {
    setText(element, a.failure ? `${a.failure.reason} (${ago(a.failure.at)} ago)` : '');
    element.title = a.failure?.reason ?? '';
  } },
];

export const actorTabs = [['Account', account], ['Messages', path => new Diagram({ actor: path || 'node' }, podName)]];

// account is what an actor says of itself; one that hangs is told of without its word.
function account(path) {
  const vitals = h('dl', {}), said = h('pre', { class: 'account', tabindex: '0', 'aria-label': 'What the actor says of itself' }), note = h('p', { class: 'note', role: 'status' });
  const rest = h('div', {}), element = h('div', {}, note, rest);
  const tools = h('div', { class: 'tools' }), pace = rates(), fall = recovery(path);
  chaosOn().then(on => {
    if (!on) return;
    for (const verb of ['kill', 'pause']) {
      tools.append(h('button', { type: 'button', class: 'danger', onclick: () => act(note, { verb, target: path || 'node', seed: seed(), ...(verb === 'pause' && { duration: '5s' }) }) },
        verb === 'kill' ? 'Kill it' : 'Pause it for 5 s'));
    }
  });
  const polled = poll(`/v1/actors/${(path || 'node').split('/').map(encodeURIComponent).join('/')}`, 2000, a => {
    const rows = [['Path', path || 'node'], ['Kind', a.kind], ['State', a.state], ['Up', ago(a.since)], ['Life', a.incarnation], ['Handled', `${a.handled} messages`],
      ['Mailbox', `${a.waiting}, at most ${a.maxWaiting}`], ['Restarts', a.restarts], ['Last failure', a.failure ? `${a.failure.reason} (${ago(a.failure.at)} ago)` : 'none'],
      ['Work under way', (a.working ?? []).join(', ') || 'none']];
    pace.show(actors.byPath.get(path === 'node' ? '' : path));
    fall.show(a);
    vitals.replaceChildren(...rows.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
    setText(said, a.detail === undefined ? 'It has no account of its own.' : JSON.stringify(a.detail, null, 2));
    if (note.dataset.failed) { delete note.dataset.failed; setText(note, ''); }
    rest.hidden = false;
  }, e => {
    note.dataset.failed = '1';
    rest.hidden = e.status === 404;
    setText(note, e.status === 404 ? `${e.message}. Close this (Esc) and choose another from the list.` : e.message);
  });
  rest.append(tools, pace.element, fall.element, vitals, h('h3', {}, 'Its own account'), said);
  return { element, close: () => polled.stop() };
}

const seed = () => 1 + Math.floor(Math.random() * 1e6);

let asked = null;
// chaosOn says whether actors may be broken on purpose.
export const chaosOn = () => (asked ??= ask('/v1/chaos').then(() => true, e => { if (e.status !== 403) asked = null; return false; }));

async function act(note, rule, dry = false) {
  try {
    const got = await ask(`/v1/chaos${dry ? '?dryRun=true' : ''}`, { method: 'POST', body: rule });
    const n = got.targets.length, names = got.targets.slice(0, 8).map(t => (t.pod ? `${t.pod} (${t.path.split('/').slice(2).join('/') || 'pod'})` : t.path || 'node'));
    setText(note, `${dry ? 'It would act on' : `Rule ${got.id} is in force, on`} ${n} actor${n === 1 ? '' : 's'}${n ? `: ${names.join(', ')}${n > names.length ? ' …' : ''}` : ''}`);
  } catch (e) {
    setText(note, e.message);
  }
}

// chaos is the view of the rules, and the form that makes another.
export function chaos() {
  const note = h('p', { class: 'note', role: 'status' }), rules = h('tbody');
  const field = (name, label, props, options) => h('label', {}, label, options
    ? h('select', { name }, options.map(o => h('option', { value: o }, o))) : h('input', { name, autocomplete: 'off', spellcheck: 'false', ...props }));
  const form = h('form', { class: 'rule', onsubmit: e => { e.preventDefault(); act(note, rule()).then(look); } },
    field('verb', 'Do', {}, ['kill', 'pause', 'delay', 'drop', 'duplicate', 'reorder']),
    field('target', 'to', { required: true, placeholder: 'pods/**, kind/container, pod/web, volumes' }),
    field('message', 'at messages', { placeholder: 'any' }), field('count', 'times', { type: 'number', min: -1, placeholder: '1' }),
    field('probability', 'probability', { type: 'number', min: 0, max: 1, step: 'any', placeholder: '1' }),
    field('duration', 'for', { placeholder: '1s' }), field('seed', 'seed', { type: 'number', min: 1, placeholder: 'any' }),
    h('div', { class: 'tools' }, h('button', { type: 'button', onclick: () => form.reportValidity() && act(note, rule(), true) }, 'Preview'),
      h('button', { class: 'danger' }, 'Do it'), h('button', { type: 'button', onclick: () => stop('') }, 'Stop all rules')));
  const rule = () => {
    const f = Object.fromEntries([...new FormData(form)].filter(([, v]) => v !== ''));
    for (const name of ['count', 'probability', 'seed']) if (name in f) f[name] = Number(f[name]);
    return { seed: seed(), ...f };
  };
  const stop = async id => {
    try { await ask(`/v1/chaos${id && `/${id}`}`, { method: 'DELETE' }); } catch (e) { setText(note, e.message); }
    look();
  };
  const fill = got => {
    rules.replaceChildren(...got.rules.slice().reverse().map(r => h('tr', { class: r.over ? 'over' : '' }, h('td', { class: 'n' }, r.id), h('td', {}, `${r.verb} ${r.target}${r.message ? ` at ${r.message}` : ''}`),
      h('td', {}, r.over ? 'over' : `ends in ${span(time(r.until) - Date.now())}`), h('td', { class: 'n' }, `${r.acted}${r.spared ? `, spared ${r.spared}` : ''}`),
      h('td', {}, Object.keys(r.actors ?? {}).slice(0, 3).map(p => podName(p.split('/')[1]) ?? p).join(', ')),
      h('td', {}, !r.over && h('button', { type: 'button', onclick: () => stop(r.id) }, 'Stop')))));
    if (!got.rules.length) rules.replaceChildren(h('tr', {}, h('td', { colspan: 6 }, 'No rule was made yet.')));
  };
  const look = () => ask('/v1/chaos').then(fill, e => setText(note, e.message));
  const polled = poll('/v1/chaos', 1000, fill, e => setText(note, e.message));
  return { element: h('div', { class: 'wide' }, h('h2', {}, 'Chaos'), h('p', {}, 'Break actors on purpose, and see the node heal. Containers are not touched.'), form, note,
    h('table', {}, h('thead', {}, h('tr', {}, ['Rule', 'What', 'State', 'Acted', 'On', 'Stop'].map(t => h('th', { scope: 'col' }, t)))), rules)), close: () => polled.stop() };
}
