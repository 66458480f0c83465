// The strip above all views: pods in trouble, CPU, memory, the last chaos; and a notice when the agent is silent.
import { $, ago, ask, bytes, h, poll, setText } from './dom.js';
import { chaosOn } from './actors.js';

const EVERY = 5000, SILENT = 8000;
const clock = ms => new Date(ms).toLocaleTimeString();

// glance fills the strip. trouble is called for the pods in trouble, node with the node's name.
export function glance(trouble, node) {
  const count = h('b'), cpu = h('b', {}, '–'), memory = h('b', {}, '–'), chaos = h('b', {}, 'none');
  const button = h('button', { type: 'button', id: 'in-trouble', onclick: trouble }, count);
  const last = h('span', { hidden: true }, 'Last chaos ', chaos);
  $('strip').replaceChildren(button, h('span', {}, 'CPU ', cpu), h('span', {}, 'Memory ', memory), last);
  poll('/v1/figures?pod=', 10e3, f => {
    node(f.node.nodeName);
    const m = f.node.memory ?? {}, all = m.availableBytes + m.workingSetBytes, cores = f.node.cpu?.usageNanoCores / 1e9;
    setText(cpu, Number.isFinite(cores) ? `${cores.toFixed(2)} cores` : '–');
    setText(memory, `${bytes(m.workingSetBytes)}${all > 0 ? ` of ${bytes(all)}` : ''}`);
  });
  chaosOn().then(on => {
    last.hidden = !on;
    if (on) poll('/v1/chaos', EVERY, got => {
      const r = got.rules.at(-1);
      setText(chaos, r ? `${r.verb} ${r.target}, ${r.over ? `${ago(r.since)} ago` : 'in force'}` : 'none');
    });
  });
  return n => {
    setText(count, n ? `${n} pod${n === 1 ? '' : 's'} in trouble` : 'No pod in trouble');
    button.dataset.tone = n ? 'bad' : 'good';
  };
}

// watchAgent marks the page as old while the agent does not answer.
export function watchAgent() {
  let heard = 0;
  const beat = async () => {
    if (document.hidden) return;
    try {
      await ask('/v1/version', { signal: AbortSignal.timeout(SILENT) });
      heard = Date.now();
      $('silent').hidden = true;
      delete document.body.dataset.stale;
    } catch (e) {
      setText($('silent'), e.status === 401 ? 'Your session has ended. Run `playlet observatory` on the node and open the address that it prints.'
        : heard ? `The agent has not answered since ${clock(heard)}. This page shows its last known state. Check the agent on the node; the page reconnects by itself.`
          : 'The agent does not answer. Check that it is running on the node; the page reconnects by itself.');
      $('silent').hidden = false;
      document.body.dataset.stale = '';
    }
  };
  const again = () => beat().finally(() => setTimeout(again, EVERY));
  document.addEventListener('visibilitychange', beat);
  again();
}
