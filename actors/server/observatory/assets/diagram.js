// A sequence diagram that is drawn as the messages happen: a lane an actor, an arrow a message, a box work outside the mailbox, and
// below it its calls. An entry that comes late, as work does when it ends, is put where it began; those after it move down.
import { follow, h, s, setAttr, setText, time, took } from './dom.js';

const ROW = 30, LANE = 126, LEFT = 84, MOST = 600;

const shorten = (text, n) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

export class Diagram {
  // of is { pod: UID } or { actor: path }; names gives what people call a pod by its UID.
  constructor(of, names) {
    Object.assign(this, { of, names, entries: [], lanes: new Map(), byID: new Map(), at: null, fresh: true });
    this.heads = h('div', { class: 'lanes', 'aria-hidden': 'true' });
    this.life = s('g', { class: 'life' });
    this.body = s('g');
    this.svg = s('svg', { role: 'presentation' }, this.life, this.body);
    this.scroll = h('div', { class: 'diagram', tabindex: '0', role: 'listbox', 'aria-label': 'Messages, the oldest first',
      onkeydown: e => this.key(e), onclick: e => this.choose(this.entries.indexOf(e.target.closest('.entry')?.entry)) },
    this.heads, this.svg);
    this.state = h('span', { class: 'state', role: 'status' }, 'connecting');
    this.facts = h('p', { class: 'facts' }, 'Choose a message with a click or j and k: what led to it is marked.');
    this.element = h('div', { class: 'messages' }, h('div', { class: 'legend' }, this.state,
      ['message', 'timer', 'work', 'call', 'chaos'].map(k => h('span', { class: `key ${k}` }, k))), this.scroll, this.facts);
    const query = new URLSearchParams({ ...of, follow: 'true' });
    this.stream = follow(`/v1/trace?${query}`, line => this.add(line), state => this.said(state));
  }

  close() { this.stream.stop(); }

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

  lane(name) {
    if (!this.lanes.has(name)) {
      const i = this.lanes.size, x = LEFT + LANE * (i + 0.5);
      this.lanes.set(name, x);
      const head = h('span', { title: name }, shorten(name, 24));
      head.style.left = `${x}px`;
      this.heads.append(head);
      this.life.append(s('line', { x1: x, x2: x, y1: 0, y2: '100%' }));
    }
    return this.lanes.get(name);
  }

  add(line) {
    const { scrollTop, clientHeight, scrollHeight } = this.scroll, bottom = scrollTop + clientHeight > scrollHeight - ROW;
    if (this.fresh) this.clear(line.entries ?? []);
    let from = this.entries.length; // the first whose place changes
    for (const e of line.entries ?? []) {
      if (this.byID.has(e.id) && e.kind !== 'chaos') continue;
      e.at = time(e.kind === 'work' || e.kind === 'call' ? e.began : e.sent);
      this.start ??= e.at;
      let i = this.entries.length;
      while (i > 0 && (this.entries[i - 1].at > e.at || (this.entries[i - 1].at === e.at && this.entries[i - 1].id > e.id))) i--;
      this.entries.splice(i, 0, e);
      this.byID.set(e.id, e);
      from = Math.min(from, i);
    }
    if (this.entries.length > MOST) {
      for (const e of this.entries.splice(0, this.entries.length - MOST)) { e.row?.remove(); this.byID.delete(e.id); }
      from = 0;
    }
    for (let i = from; i < this.entries.length; i++) {
      const e = this.entries[i];
      e.row ??= this.body.appendChild(this.draw(e));
      setAttr(e.row, 'transform', `translate(0 ${i * ROW})`);
    }
    const width = LEFT + LANE * this.lanes.size + 220, height = this.entries.length * ROW + 12;
    setAttr(this.svg, 'width', width);
    setAttr(this.svg, 'height', height);
    this.heads.style.width = `${width}px`;
    if (bottom && !this.at && !this.first) this.scroll.scrollTop = this.scroll.scrollHeight; // who reads what came before is left there
    this.first = false;
  }

  clear(entries) {
    this.fresh = false;
    this.first = true;
    this.entries = [];
    this.byID.clear();
    this.lanes.clear();
    this.body.replaceChildren();
    this.life.replaceChildren();
    this.heads.replaceChildren();
    this.at = this.start = null;
    const rank = name => (name.startsWith('sources/') ? 0 : name === 'pods' ? 1 : /^pod(\/|$)/.test(name) ? 2 : name === 'CRI' ? 3 : name === 'API server' ? 4 : 5);
    const names = new Set(entries.flatMap(e => [this.name(e.from), this.to(e)])), order = [...names];
    order.sort((x, y) => rank(x) - rank(y) || (x.startsWith('pod') ? x.length - y.length : 0)).forEach(name => this.lane(name));
  }

  draw(e) {
    const from = this.lane(e.kind === 'call' ? this.name(e.from) : this.name(e.from)), to = this.lane(this.to(e));
    const kind = e.panic ? 'panic' : e.kind || 'message', y = ROW - 8;
    const text = shorten(this.word(e) + (e.digest ? ` · ${e.digest}` : ''), 64);
    const lasted = e.took >= 1e6 || kind === 'work' || kind === 'call' ? ` ${took(e.took)}` : '';
    const row = s('g', { class: `entry ${kind}`, role: 'option', id: `entry-${e.id}-${e.seq}`,
      'aria-label': `${this.name(e.from)} to ${this.to(e)}: ${kind} ${e.message} ${e.digest ?? ''}, ${took(e.took)}` },
    s('rect', { class: 'band', width: '100%', height: ROW, y: 2 }),
    s('text', { class: 'at', x: LEFT - 12, y: y - 1 }, `+${((e.at - this.start) / 1000).toFixed(3)}`));
    row.entry = e;
    const left = Math.min(from, to);
    if (from === to) {
      row.append(kind === 'work' ? s('rect', { class: 'box', x: to - 5, y: y - 9, width: 10, height: 12, rx: 2 })
        : s('circle', { class: 'dot', cx: to, cy: y - 3, r: 4 }));
    } else {
      const d = to > from ? 1 : -1;
      row.append(s('path', { class: 'arrow', d: `M${from} ${y + 3}H${to - d * 2}m${-d * 6} -4l${d * 6} 4l${-d * 6} 4` }));
    }
    row.append(s('text', { x: from === to ? to + 11 : left + 8, y: y - (from === to ? -1 : 3) }, text,
      s('tspan', { class: 'took' }, lasted), e.panic ? ` PANIC ${shorten(e.panic, 60)}` : ''));
    return row;
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const i = this.entries.indexOf(this.at), last = this.entries.length - 1;
    const to = { ArrowDown: i + 1, j: i + 1, ArrowUp: i < 0 ? last : i - 1, k: i < 0 ? last : i - 1, Home: 0, End: last }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    this.choose(Math.max(0, Math.min(to, last)));
  }

  choose(i) {
    const e = this.entries[i];
    if (!e) return;
    for (const old of this.body.querySelectorAll('.chain, .chosen')) old.classList.remove('chain', 'chosen');
    this.at = e;
    for (let cause = this.byID.get(e.cause), n = 0; cause && n < MOST; cause = this.byID.get(cause.cause), n++) cause.row.classList.add('chain');
    e.row.classList.add('chosen');
    setAttr(this.scroll, 'aria-activedescendant', e.row.id);
    const top = i * ROW, { scrollTop, clientHeight } = this.scroll;
    if (top < scrollTop) this.scroll.scrollTop = top;
    else if (top + 2.5 * ROW > scrollTop + clientHeight) this.scroll.scrollTop = top + 2.5 * ROW - clientHeight;
    const lanes = [this.lane(this.name(e.from)), this.lane(this.to(e))], { scrollLeft, clientWidth } = this.scroll;
    if (Math.max(...lanes) + LANE / 2 > scrollLeft + clientWidth || Math.min(...lanes) - LANE / 2 < scrollLeft) this.scroll.scrollLeft = Math.min(...lanes) - LEFT - LANE / 2;
    const queued = (time(e.began) - time(e.sent)) * 1e6, cause = this.byID.get(e.cause);
    this.facts.replaceChildren(h('b', {}, `${this.word(e)} `), e.digest ? `${e.digest} · ` : '',
      `${this.name(e.from)} → ${this.to(e)} · queued ${took(Math.max(0, queued))} · took ${took(e.took)} · `,
      cause ? `because of ${this.word(cause)}` : 'nothing recorded led to it');
  }
}
