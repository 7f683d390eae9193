/** The text of a run with a bar under each token: how sure the target was of it before temperature. */

import { h } from '../dom.js';
import { drawToken, probability, quote } from '../tile.js';
import { Bundle } from '../trace.js';
import { promptOf } from './tiles.js';

const HARD = 0.5; // below this the likeliest guess is more often wrong than right

export function mountCertainty(root, stage) {
  const { ctx, texts, asks } = stage;
  const [trace] = Bundle.of(texts[0]).traces;
  const box = h('div');
  root.append(box);
  let shown = !asks;
  const draw = () => {
    const summary = h('p', { class: 'sv-l-summary' });
    const known = trace.entries.filter((entry) => entry.sure !== null);
    const hard = known.filter((entry) => entry.sure < HARD).length;
    if (shown) summary.textContent = ctx.t('lesson.certainty.summary', { hard, tokens: known.length, limit: HARD });
    const list = h('ol', { class: 'sv-l-certain', 'aria-label': ctx.t('lesson.certainty.title') });
    for (const entry of trace.entries) list.append(drawEntry(entry));
    box.replaceChildren(promptOf(trace, ctx, { badged: true }), list, summary);
  };

  function drawEntry(entry) {
    const { sure } = entry;
    const token = trace.text(entry.id);
    const words = ctx.t('lesson.certainty.token', {
      token: quote(token, ctx.t),
      p: sure === null ? ctx.t('shell.unknown') : probability(sure, ctx.lang()),
    });
    const item = h('li', {
      'data-at': `${entry.round}.${entry.node ?? 'own'}`,
      class: shown && sure !== null && sure < HARD ? 'sv-l-certain-hard' : null,
    });
    item.append(drawToken(token));
    const fill = h('i');
    fill.style.height = shown ? `${(sure ?? 0) * 100}%` : '0';
    item.append(h('span', { class: 'sv-l-certain-bar', 'aria-hidden': 'true' }, fill));
    if (!shown) {
      item.append(h('span', { class: 'sv-l-certain-value', 'aria-hidden': 'true' }, '?'));
      return item;
    }
    item.firstChild.setAttribute('aria-hidden', 'true'); // the sentence below names it
    item.append(
      h('span', { class: 'sv-l-certain-value', 'aria-hidden': 'true' }, sure === null ? '–' : ctx.number(sure, 2)),
      h('span', { class: 'sv-hush' }, words),
    );
    item.title = words;
    return item;
  }

  draw();
  return {
    total: asks ? 1 : 0,
    first: 0,
    go(position) {
      shown = !asks || position > 0;
      draw();
    },
  };
}
