/** "You are here": the last run's own numbers, and the steps from the theorem to what was measured. */

import { h } from '../dom.js';
import { mountNumbers } from '../numbers.js';

/** show(answer) takes what spec_viz/ui/lab.py says of a run; null while it is asked. Without `fill` it has no button. */
export function mountHere(root, ctx, words, { fill = null } = {}) {
  const { t, number } = ctx;
  const body = h('div');
  root.append(h('h2', { class: 'sv-h2' }, t('lab.here')), body);

  function show(answer) {
    if (!answer || answer.none) {
      body.replaceChildren(h('p', { class: 'sv-none' }, answer ? t(answer.none.key, answer.none.args) : t('lab.here.asking')));
      return;
    }
    const { run, origin, why, rates, numbers } = answer;
    const name = t('lab.here.run', { drafter: { key: `drafter.${run.drafter}`, args: {} }, gamma: answer.knobs.gamma });
    const where = h('p', { class: 'sv-lab-where' }, name, ' ', ctx.badge(origin, run));
    const places = rates.map(([kept, judged], index) =>
      t('lab.here.rate', { place: index + 1, kept, judged, rate: number(kept / judged, 2) }),
    );
    const put = fill && h('button', { class: 'sv-break-button', type: 'button', onClick: fill }, t('lab.here.fill'));
    const table = h('div');
    mountNumbers(table, { words }).show(numbers);
    body.replaceChildren(
      where,
      h('p', { class: 'sv-lab-headline' }, sentence(why[0])),
      steps(answer),
      h('p', { class: 'sv-lab-why' }, why.slice(1).map(sentence).join(' ')),
      h('p', { class: 'sv-lab-rates' }, t('lab.here.rates'), ' ', places.join(' · ')),
      table,
      put ? h('div', { class: 'sv-lab-actions' }, put) : '',
    );
  }

  /** A number that is not whole is a speed, a rate or a cost: two digits are read, not four. */
  function sentence({ key, args }) {
    const show = (value) => (typeof value === 'number' && !Number.isInteger(value) ? number(value, 2) : value);
    return t(key, Object.fromEntries(Object.entries(args).map(([name, value]) => [name, show(value)])));
  }

  function steps({ steps: list, origin, run }) {
    const top = Math.max(...list.map((step) => step.speedup), 1) * 1.02;
    const wide = (value) => `${(value / top) * 100}%`;
    const rows = list.map(({ key, speedup }) => {
      const bar = h('i', { class: key === 'measured' ? 'sv-lab-bar sv-lab-bar--measured' : 'sv-lab-bar' });
      bar.style.width = wide(speedup);
      const even = h('b', { class: 'sv-lab-even' });
      even.style.left = wide(1);
      return h(
        'li',
        {},
        h('span', { class: 'sv-lab-step' }, t(`lab.step.${key}`), ' '),
        h('span', { class: 'sv-lab-track', 'aria-hidden': 'true' }, bar, even),
        h('span', { class: 'sv-lab-amount' }, `${number(speedup, 2)}×`),
        key === 'measured' ? ctx.badge(origin, run) : ctx.badge('computed'),
      );
    });
    return h('ol', { class: 'sv-lab-steps', 'aria-label': t('lab.here.steps') }, ...rows);
  }

  return { show };
}
