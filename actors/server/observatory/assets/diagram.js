// A sequence diagram that is drawn as the messages happen: a lane for each actor, an arrow for each message, a bar for each piece
// of work with its calls below it. An entry that arrives late is put where it began. Lanes that do not fit share the last one.
import { follow, h, s, setAttr, setText, time, took } from './dom.js';

const ROW = 30, LANE = 120, SLIM = 76, LEFT = 84, RIGHT = 20, MOST = 600, OTHERS = 'others';
const KINDS = ['message', 'timer', 'work', 'call', 'chaos'];

const shorten = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

// bar is the length of a bar: 10 for the shortest, 12 more for each tenfold of a millisecond.
const bar = ns => 10 + 12 * Math.max(0, Math.log10(Math.max(ns, 1) / 1e6));

export class Diagram {
  // of is { pod: UID } or { actor: path }; names gives what people call a pod by its UID.
  constructor(of, names) {
    Object.assign(this, { of, names, entries: [], shown: [], lanes: new Map(), uses: new Map(), without: new Set(), byID: new Map(), at: null, fresh: true, follow: true });
    this.heads = h('div', { class: 'lanes', 'aria-hidden': 'true' });
    this.life = s('g', { class: 'life' });
    this.body = s('g');
    this.svg = s('svg', { role: 'presentation' }, this.life, this.body);
    this.scroll = h('div', { class: 'diagram', tabindex: '0', role: 'listbox', 'aria-label': 'Messages, the oldest first',
      onkeydown: e => this.key(e), onscroll: () => this.moved(), onclick: e => this.choose(this.shown.indexOf(e.target.closest('.entry')?.entry)) },
    this.heads, this.svg);
    this.state = h('span', { class: 'state', role: 'status' }, 'connecting');
    this.facts = h('p', { class: 'facts' }, 'Choose a message with a click or j and k to see its causes and effects.');
    this.newest = h('button', { type: 'button', hidden: true, onclick: () => { this.follow = true; this.bottom(); } }, 'Jump to newest');
    this.seen = new ResizeObserver(() => { if (this.width() !== this.drawn) { this.arrange(); this.redraw(); } if (this.follow) this.bottom(); });
    this.seen.observe(this.scroll);
    this.element = h('div', { class: 'messages' }, h('div', { class: 'legend' }, this.state,
      this.newest, KINDS.map(k => h('button', { type: 'button', class: `key ${k}`, 'aria-pressed': 'true', title: `Show or hide: ${k}`, onclick: e => this.toggle(k, e.currentTarget) }, k))),
    this.scroll, this.facts);
    const query = new URLSearchParams({ ...of, follow: 'true' });
    this.stream = follow(`/v1/trace?${query}`, line => this.add(line), state => this.said(state));
  }

  close() { this.stream.stop(); this.seen.disconnect(); }

  kind(e) { return e.panic ? 'message' : KINDS.includes(e.kind) ? e.kind : 'message'; }

  toggle(kind, button) {
    if (!this.without.delete(kind)) this.without.add(kind);
    setAttr(button, 'aria-pressed', !this.without.has(kind));
    this.arrange();
    this.redraw();
  }

  width() { return Math.max(this.scroll.clientWidth, LEFT + 2 * LANE); }
  least() { return this.drawn < 600 ? SLIM : LANE; }
  bottom() { this.scroll.scrollTop = this.scroll.scrollHeight; }

  // moved keeps the times in sight, and follows the newest entry while the end is in sight.
  moved() {
    const { scrollTop, scrollLeft, clientHeight, scrollHeight } = this.scroll;
    this.follow = scrollTop + clientHeight > scrollHeight - ROW;
    this.newest.hidden = this.follow;
    this.svg.style.setProperty('--left', `${scrollLeft}px`);
  }

  said(state) {
    if (state === 'live') this.fresh = true; // all of it comes again
    setText(this.state, state === 'live' ? 'live' : state === 'wait' ? 'connecting' : state.message);
  }

  name(path) {
    const [, uid, below = ''] = /^pods\/([^/]+)(\/.*)?$/.exec(path) ?? [];
    if (!uid) return path || 'node';
    return (uid === this.of.pod ? 'pod' : this.names(uid) ?? `pod ${uid.slice(0, 8)}`) + below;
  }
  to(e) { return e.kind === 'call' && e.to === 'runtime' ? 'CRI' : e.kind === 'call' && e.to === 'apiserver' ? 'API server' : this.name(e.to); }

  word(e) { return e.message.replace(/ ([0-9a-f-]{32,36})$/, (all, uid) => (uid === this.of.pod ? '' : ` ${this.names(uid) ?? uid.slice(0, 8)}`)); }

  // arrange gives each actor a lane. Where they do not all fit, those with the fewest entries share one.
  arrange() {
    this.drawn = this.width();
    const fit = Math.max(2, Math.floor((this.drawn - LEFT - RIGHT) / this.least())), names = [...this.uses.keys()];
    const rank = name => (name.startsWith('sources/') ? 0 : name === 'pods' ? 1 : /^pod(\/|$)/.test(name) ? 2 : name === 'CRI' ? 3 : name === 'API server' ? 4 : 5);
    const kept = names.length <= fit ? names : [...names].sort((x, y) => this.uses.get(y) - this.uses.get(x)).slice(0, fit - 1);
    kept.sort((x, y) => rank(x) - rank(y) || (x.startsWith('pod') ? x.length - y.length : 0));
    const own = kept.length < names.length ? [...kept, OTHERS] : kept, step = Math.max(this.least(), (this.drawn - LEFT - RIGHT) / Math.max(own.length, 1));
    const before = [...this.lanes].join();
    this.lanes = new Map(own.map((name, i) => [name, LEFT + step * (i + 0.5)]));
    if ([...this.lanes].join() === before) return false;
    const folded = names.filter(n => !this.lanes.has(n));
    this.heads.replaceChildren(...[...this.lanes].map(([name, x]) => {
      const head = h('span', { title: name === OTHERS ? folded.join(', ') : name }, name === OTHERS ? `${folded.length} others` : shorten(name, Math.floor(step / 7)));
      head.style.left = `${x}px`;
      return head;
    }));
    this.life.replaceChildren(...[...this.lanes.values()].map(x => s('line', { x1: x, x2: x, y1: 0, y2: '100%' })));
    return true;
  }

  lane(name) { return this.lanes.get(name) ?? this.lanes.get(OTHERS); }

  // redraw draws every entry again: the lanes or the filter have changed.
  redraw() {
    this.body.replaceChildren();
    for (const e of this.entries) e.row = null;
    this.place();
    if (this.at) this.mark(this.at);
  }

  // place puts the entries that are not filtered out in their rows.
  place() {
    this.shown = this.entries.filter(e => !this.without.has(this.kind(e)));
    this.shown.forEach((e, i) => {
      e.row ??= this.body.appendChild(this.draw(e));
      setAttr(e.row, 'transform', `translate(0 ${i * ROW})`);
    });
    const width = Math.max(this.drawn, LEFT + this.least() * this.lanes.size + RIGHT);
    setAttr(this.svg, 'width', width);
    setAttr(this.svg, 'height', this.shown.length * ROW + 12);
    this.heads.style.width = `${width}px`;
  }

  add(line) {
    if (this.fresh) this.clear();
    for (const e of line.entries ?? []) {
      if (this.byID.has(e.id) && e.kind !== 'chaos') continue;
      e.at = time(e.kind === 'work' || e.kind === 'call' ? e.began : e.sent);
      this.start ??= e.at;
      let i = this.entries.length;
      while (i > 0 && (this.entries[i - 1].at > e.at || (this.entries[i - 1].at === e.at && this.entries[i - 1].id > e.id))) i--;
      this.entries.splice(i, 0, e);
      this.byID.set(e.id, e);
      for (const name of new Set([this.name(e.from), this.to(e)])) this.uses.set(name, (this.uses.get(name) ?? 0) + 1);
    }
    if (this.entries.length > MOST) {
      for (const e of this.entries.splice(0, this.entries.length - MOST)) { e.row?.remove(); this.byID.delete(e.id); }
    }
    if (this.arrange()) this.redraw(); else this.place();
    if (this.follow) this.bottom();
  }

  clear() {
    this.fresh = false;
    this.follow = true;
    this.entries = [];
    this.byID.clear();
    this.lanes.clear();
    this.uses.clear();
    this.body.replaceChildren();
    this.at = this.start = null;
  }

  draw(e) {
    const from = this.lane(e.kind === 'call' ? this.name(e.from) : this.name(e.from)), to = this.lane(this.to(e));
    const kind = e.panic ? 'panic' : e.kind || 'message', y = ROW - 8;
    const text = shorten(this.word(e) + (e.digest ? ` · ${e.digest}` : ''), 64);
    const lasted = e.took >= 1e6 || kind === 'work' || kind === 'call' ? ` ${took(e.took)}` : '';
    const row = s('g', { class: `entry ${kind}`, role: 'option', id: `entry-${e.id}-${e.seq}`,
      'aria-label': `${this.name(e.from)} to ${this.to(e)}: ${kind} ${e.message} ${e.digest ?? ''}, ${took(e.took)}` },
    s('rect', { class: 'band', width: '100%', height: ROW, y: 2 }));
    row.entry = e;
    const left = Math.min(from, to);
    if (from === to) {
      row.append(kind === 'work' ? s('rect', { class: 'box', x: to - 5, y: y - 9, width: bar(e.took), height: 12, rx: 2 })
        : s('circle', { class: 'dot', cx: to, cy: y - 3, r: 4 }));
    } else {
      const d = to > from ? 1 : -1;
      row.append(s('path', { class: 'arrow', d: `M${from} ${y + 3}H${to - d * 2}m${-d * 6} -4l${d * 6} 4l${-d * 6} 4` }));
    }
    // The text of the last lanes stands to the left of its mark, where there is room for it.
    const back = from === to && to > this.drawn / 2;
    row.append(s('text', { 'text-anchor': back ? 'end' : null, x: back ? to - 9 : from === to ? to + (kind === 'work' ? bar(e.took) + 1 : 11) : left + 8, y: y - (from === to ? -1 : 3) }, text,
      s('tspan', { class: 'took' }, lasted), e.panic ? ` PANIC ${shorten(e.panic, 60)}` : ''),
    s('rect', { class: 'gutter', width: LEFT - 6, height: ROW, y: 2 }), s('text', { class: 'at', x: LEFT - 12, y: y - 1 }, `+${((e.at - this.start) / 1000).toFixed(3)}`));
    return row;
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const i = this.shown.indexOf(this.at), last = this.shown.length - 1;
    const to = { ArrowDown: i + 1, j: i + 1, ArrowUp: i < 0 ? last : i - 1, k: i < 0 ? last : i - 1, Home: 0, End: last }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    this.choose(Math.max(0, Math.min(to, last)));
  }

  choose(i) {
    const e = this.shown[i];
    if (!e) return;
    const effects = this.mark(e);
    this.at = e;
    setAttr(this.scroll, 'aria-activedescendant', e.row.id);
    const top = i * ROW, { scrollTop, clientHeight } = this.scroll;
    if (top < scrollTop) this.scroll.scrollTop = top;
    else if (top + 2.5 * ROW > scrollTop + clientHeight) this.scroll.scrollTop = top + 2.5 * ROW - clientHeight;
    const lanes = [this.lane(this.name(e.from)), this.lane(this.to(e))], { scrollLeft, clientWidth } = this.scroll;
    if (Math.max(...lanes) + LANE / 2 > scrollLeft + clientWidth || Math.min(...lanes) - LANE / 2 < scrollLeft) this.scroll.scrollLeft = Math.min(...lanes) - LEFT - LANE / 2;
    const queued = (time(e.began) - time(e.sent)) * 1e6, cause = this.byID.get(e.cause);
    this.facts.replaceChildren(h('b', {}, `${this.word(e)} `), e.digest ? `${e.digest} · ` : '',
      `${this.name(e.from)} → ${this.to(e)} · queued ${took(Math.max(0, queued))} · took ${took(e.took)} · `,
      cause ? `caused by ${this.word(cause)}` : 'no cause is recorded', ` · ${effects} effect${effects === 1 ? '' : 's'}`);
  }

  // mark shows an entry, its causes and its effects, and returns the number of effects.
  mark(e) {
    for (const old of this.body.querySelectorAll('.chain, .effect, .chosen')) old.classList.remove('chain', 'effect', 'chosen');
    for (let cause = this.byID.get(e.cause), n = 0; cause && n < MOST; cause = this.byID.get(cause.cause), n++) cause.row?.classList.add('chain');
    const caused = new Set([e.id]);
    for (let size = 0; size !== caused.size;) { // an effect may stand before its cause
      size = caused.size;
      for (const other of this.entries) if (caused.has(other.cause)) caused.add(other.id);
    }
    for (const id of caused) if (id !== e.id) this.byID.get(id)?.row?.classList.add('effect');
    e.row?.classList.add('chosen');
    return caused.size - 1;
  }
}
