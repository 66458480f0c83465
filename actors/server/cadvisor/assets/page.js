// Asks for the page again while somebody looks at it, and shows the figures of the new one in place of the old.
'use strict';
const pause = document.getElementById('pause'), said = document.getElementById('said');
const every = Number(document.body.dataset.refresh);
let paused = false;

async function refresh() {
  if (paused || document.hidden) return;
  try {
    const answer = await fetch(location.pathname, { cache: 'no-store', signal: AbortSignal.timeout(4 * every) });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const old = document.getElementById('figures');
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('figures');
    for (const d of old.querySelectorAll('details[open]')) page.querySelector('#' + d.id)?.setAttribute('open', '');
    const at = document.activeElement, inside = old.contains(at);
    const found = inside && (at.closest('details') ? '#' + at.closest('details').id + ' > summary' : 'a[href="' + CSS.escape(at.getAttribute('href') ?? '') + '"]');
    old.replaceWith(document.adoptNode(page));
    if (inside) page.querySelector(found)?.focus({ preventScroll: true });
    said.textContent = '';
  } catch (e) {
    said.textContent = 'No answer: ' + e.message;
  }
}

pause.hidden = false;
pause.addEventListener('click', () => {
  paused = !paused;
  pause.setAttribute('aria-pressed', String(paused));
  refresh();
});
document.addEventListener('visibilitychange', refresh);
(async () => {
  for (;;) {
    await new Promise(done => setTimeout(done, every));
    await refresh();
  }
})();
