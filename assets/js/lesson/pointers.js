/** Words that point: at a tile, a cache, a letter of the formula (and back), at the glossary, at a source. */

import { h, newId } from '../dom.js';
import { block } from './prose.js';
import { tileOf } from './tiles.js';

const LINGER = 150; // ms in which the pointer may cross from a word to its explanation
const AT_FIGURE = new Set(['tile', 'slot', 'formula']);

/** `find(ref, to)` gives the elements of the figure that a word points at. */
export function mountPointers(root, { lesson, ctx, find }) {
  const tip = h('div', { class: 'sv-l-tip', id: newId('tip'), role: 'tooltip', hidden: true });
  root.append(tip);
  let shown = null;
  let pinned = null;
  let timer = null;

  const refOf = (target) => target.closest?.('.sv-ref');
  const light = (ref, on) => {
    ref.classList.toggle('sv-ref--on', on);
    for (const element of find(ref.dataset.ref, ref.dataset.to)) element.classList.toggle('sv-lit', on);
  };
  const enter = (ref) => {
    if (AT_FIGURE.has(ref.dataset.ref)) light(ref, true);
    else explain(ref);
  };
  const leave = (ref) => {
    if (AT_FIGURE.has(ref.dataset.ref)) light(ref, ref === pinned);
    else timer = setTimeout(close, LINGER);
  };

  function explain(ref) {
    clearTimeout(timer);
    if (shown === ref) return;
    close();
    const contents = explanation(ref, lesson, ctx);
    if (!contents) return;
    tip.replaceChildren(...contents);
    tip.hidden = false;
    shown = ref;
    ref.setAttribute('aria-describedby', tip.id);
    place(tip, ref, root);
  }

  function close() {
    clearTimeout(timer);
    if (!shown) return false;
    shown.removeAttribute('aria-describedby');
    shown = null;
    tip.hidden = true;
    return true;
  }

  function press(ref) {
    if (!AT_FIGURE.has(ref.dataset.ref)) {
      explain(ref);
      return;
    }
    const was = pinned;
    if (was) {
      was.setAttribute('aria-pressed', 'false');
      pinned = null;
      light(was, false);
    }
    if (was === ref) return;
    pinned = ref;
    ref.setAttribute('aria-pressed', 'true');
    light(ref, true);
    find(ref.dataset.ref, ref.dataset.to)[0]?.scrollIntoView({ block: 'nearest' });
  }

  /** What in the figure is under the pointer lights the words that speak of it. */
  function answer(target, on) {
    const at = target.closest?.('[data-at]')?.dataset.at;
    const parts = target.closest?.('[data-part]')?.dataset.part.split(' ') ?? [];
    for (const ref of root.querySelectorAll('.sv-ref')) {
      const { ref: kind, to } = ref.dataset;
      const meant = (kind === 'tile' && tileOf(to) === at) || (kind === 'formula' && parts.includes(to));
      if (meant && ref !== pinned) ref.classList.toggle('sv-ref--on', on);
    }
  }

  const listen = (name, handle) => root.addEventListener(name, handle);
  listen('pointerover', ({ target }) => {
    const ref = refOf(target);
    if (ref) enter(ref);
    else if (tip.contains(target)) clearTimeout(timer);
    else answer(target, true);
  });
  listen('pointerout', ({ target }) => {
    const ref = refOf(target);
    if (ref) leave(ref);
    else if (tip.contains(target)) timer = setTimeout(close, LINGER);
    else answer(target, false);
  });
  listen('focusin', ({ target }) => (refOf(target) ? enter(refOf(target)) : answer(target, true)));
  listen('focusout', ({ target }) => (refOf(target) ? leave(refOf(target)) : answer(target, false)));
  listen('click', ({ target }) => {
    const ref = refOf(target);
    if (ref && ref.dataset.ref !== 'source') press(ref);
  });
  listen('keydown', (event) => {
    const ref = refOf(event.target);
    if (!ref || ref.dataset.ref === 'source' || !['Enter', ' '].includes(event.key)) return;
    event.preventDefault();
    press(ref);
  });
  return { close };
}

function explanation(ref, lesson, ctx) {
  const { ref: kind, to } = ref.dataset;
  if (kind === 'term') {
    const term = lesson.glossary[to];
    return term ? [h('b', {}, term.term), block(term.html)] : null;
  }
  const work = lesson.sources?.[to];
  if (!work) return null;
  return [
    h('b', { lang: 'en' }, work.title),
    h('p', { lang: 'en' }, `${work.authors}, ${work.year}.`),
    work.conditions ? h('p', {}, work.conditions) : '',
    h('p', { class: 'sv-l-about' }, ctx.t('lesson.source.opens')),
  ];
}

/** Under the word, inside the page. */
function place(tip, ref, root) {
  const word = ref.getClientRects()[0];
  const frame = root.getBoundingClientRect();
  const left = Math.min(Math.max(word.left - frame.left, 0), Math.max(frame.width - tip.offsetWidth, 0));
  tip.style.left = `${left}px`;
  tip.style.top = `${word.bottom - frame.top + 6}px`;
}
