/** The legend: what each colour, glyph and border means, in words. */

import { LOOKS, make } from './tile.js';

const ENTRIES = ['accepted', 'rejected', 'discarded', 'correction', 'bonus', 'plain', 'draft'];

export function mountLegend(root, ctx) {
  const list = make('ul', 'sv-legend');
  root.append(list);
  const setWords = () => {
    list.setAttribute('aria-label', ctx.t('legend.title'));
    list.replaceChildren(...ENTRIES.map((name) => entry(name, ctx.t)));
  };
  setWords();
  return { setWords, destroy: () => list.remove() };
}

function entry(name, t) {
  const item = make('li', 'sv-legend-item');
  const swatch = make('span', `sv-tile sv-tile--sample ${LOOKS[name].className}`);
  swatch.append(make('span', 'sv-tile-glyph', LOOKS[name].glyph));
  swatch.setAttribute('aria-hidden', 'true');
  const words = make('span', 'sv-legend-words');
  words.append(make('b', '', t(`legend.${name}`)), ` ${t(`legend.${name}.help`)}`);
  item.append(swatch, words);
  return item;
}
