/** The texts of two runs, token under token: are they the same? Until that is guessed only the first is there. */

import { h } from '../dom.js';
import { ruleTitle } from '../rule.js';
import { drawToken, quote } from '../tile.js';
import { Bundle } from '../trace.js';
import { firstDifference } from './recording.js';

const SOURCES = ['accepted', 'correction', 'bonus', 'plain'];

export function mountCompare(root, stage) {
  const { ctx, texts, asks } = stage;
  const traces = texts.map((text) => Bundle.of(text).traces[0]);
  const ids = traces.map((trace) => trace.entries.map((entry) => entry.id));
  const at = firstDifference(...ids);
  // What tells two runs apart is named: the rule where it is not the same, else the drafter alone.
  const [one, ...others] = traces.map((trace) => trace.meta);
  const ruled = others.some(({ rule, drafter }) => drafter === one.drafter && rule !== one.rule);
  let shown = !asks;
  const box = h('div');
  root.append(box);

  const draw = () => {
    box.replaceChildren(
      ...traces.map(drawRun),
      shown ? key() : '',
      h('p', { class: 'sv-l-caption', role: 'status' }, shown ? verdict() : ''),
    );
  };

  function drawRun(trace, place) {
    const { t } = ctx;
    const { meta } = trace;
    const title = h(
      'h2',
      {},
      t(`drafter.${meta.drafter}`),
      ' ',
      h(
        'span',
        { class: 'sv-l-about' },
        ruled ? `${ruleTitle(meta.rule, t) ?? meta.rule}, ` : '',
        t('lesson.compare.settings', { temperature: meta.temperature, seed: meta.seed }),
      ),
      ' ',
      ctx.badge(trace.origin, trace),
    );
    if (!shown && place) {
      return h('section', { class: 'sv-l-run' }, title, h('p', { class: 'sv-l-summary', 'data-screen': 'only' }, t('lesson.compare.hidden')));
    }
    const list = h('ol', { class: 'sv-l-tokens' });
    trace.entries.forEach((entry, index) => {
      // Behind the first difference a place no longer compares.
      const differs = shown && index === at;
      const item = h('li', {
        class: `sv-l-token sv-l-token--${shown ? entry.source : 'plain'}${differs ? ' sv-l-token--differs' : ''}`,
        'data-at': `${entry.round}.${entry.node ?? 'own'}`,
      });
      item.append(drawToken(trace.text(entry.id)));
      if (shown) item.title = ctx.t(`legend.${entry.source}`);
      list.append(item);
    });
    return h('section', { class: 'sv-l-run' }, title, list);
  }

  function key() {
    const sources = new Set(traces.flatMap((trace) => trace.entries.map((entry) => entry.source)));
    const entry = (source) =>
      h(
        'li',
        {},
        h('span', { class: `sv-l-key sv-l-token sv-l-token--${source}`, 'aria-hidden': 'true' }),
        ctx.t(`legend.${source}`),
      );
    return h('ul', { class: 'sv-l-keys' }, ...SOURCES.filter((source) => sources.has(source)).map(entry));
  }

  function verdict() {
    const { t } = ctx;
    if (at === null) return t('lesson.compare.same', { tokens: ids[0].length });
    const [left, right] = traces.map((trace, index) =>
      ids[index][at] === undefined ? t('lesson.compare.end') : quote(trace.text(ids[index][at]), t),
    );
    return t('lesson.compare.differs', { at: at + 1, left, right });
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
