/** "Measure it live on this machine": v(n) again, beside the recording, and why the two differ. */

import { h, say } from '../dom.js';
import { changesOf, changesSaid, CONDITIONS } from './recording.js';
import { Waiting } from './waiting.js';

const SILENCE = 12_000; // ms without a line before the page says so

/**
 * `recorded` is a cost result. `view` draws: show(result) a second one beside it, back() the recorded one alone.
 * Returns {element, take(text), stop()}.
 */
export function makeMeasure(view, recorded, { host, ctx }) {
  const { t } = ctx;
  const most = recorded.v.at(-1).n;
  const said = h('div', { class: 'sv-l-live-said', role: 'status' });
  const start = h('button', { class: 'sv-l-quiet', type: 'button' }, t('lesson.cost.live.run'));
  const back = h('button', { class: 'sv-l-quiet', type: 'button', hidden: true }, t('lesson.cost.live.back'));
  const element = h(
    'div',
    { class: 'sv-l-live', 'data-hide': 'tools' },
    h('div', { class: 'sv-l-tools' }, start, back),
    said,
  );
  const waiting = new Waiting(host, ({ key, args }) => say(said, t(key, args)));
  let nonce = null; // of the measurement that is asked for; null: none
  let timer = null;

  start.addEventListener('click', () => {
    if (nonce) halt();
    else if (waiting.on) end('lesson.cost.live.run', '');
    else begin();
  });
  back.addEventListener('click', () => {
    back.hidden = true;
    say(said, '');
    view.back();
  });

  async function begin() {
    back.hidden = true;
    view.back();
    start.textContent = t('control.stop');
    if (!(await waiting.over())) return;
    nonce = crypto.getRandomValues(new Uint32Array(3)).join('-');
    say(said, t('shell.running'));
    listen();
    host.trigger('run', { request: { cost: { max_n: most, context: recorded.conditions.context }, nonce } });
  }

  function listen() {
    clearTimeout(timer);
    timer = setTimeout(() => say(said, t('shell.silent')), SILENCE);
  }

  function end(button, words) {
    clearTimeout(timer);
    waiting.end();
    nonce = null;
    start.textContent = t(button);
    say(said, words);
  }

  /** The page is free at once; the server ends the measurement within a repeat. */
  async function halt() {
    const stopped = nonce;
    end('lesson.cost.live.again', t('lesson.live.stopped'));
    try {
      await host.server.stop(stopped);
    } catch (error) {
      console.error(error);
      say(said, t('shell.state.away'));
    }
  }

  /** The whole answer so far. Its first line names the request, so that a late line of an older one changes nothing. */
  function take(text) {
    if (!nonce || typeof text !== 'string' || !text) return;
    const lines = text.trimEnd().split('\n').map((line) => JSON.parse(line));
    if (lines[0].request !== nonce) return;
    listen();
    const { wait, notice, cost } = lines.at(-1);
    if (notice) end('lesson.cost.live.again', t(notice.key, notice.args));
    else if (wait) say(said, t('shell.wait', { place: wait }));
    else if (cost?.result) show(cost.result);
    else if (cost?.finish) end('lesson.cost.live.again', t('lesson.live.stopped'));
    else if (cost) say(said, t('lesson.cost.live.progress', { done: cost.done, of: cost.of, n: most }));
  }

  function show(result) {
    end('lesson.cost.live.again', '');
    back.hidden = false;
    view.show(result);
    said.replaceChildren(h('p', {}, h('b', {}, verdict(result)), ' ', why(result)));
  }

  function verdict(result) {
    const [was, now] = [recorded, result].map(({ v }) => ctx.number(v.at(-1).ratio, 2));
    return t('lesson.cost.live.said', { n: most, now, was });
  }

  /** Times are never twice the same: where the middle halves overlap, they tell nothing apart. */
  function why(result) {
    const same = recorded.v.filter(({ low, high }, index) => result.v[index].low <= high && low <= result.v[index].high);
    const names = [...CONDITIONS, 'repeats'];
    const changes = changesSaid(changesOf(recorded.conditions, result.conditions, names), t);
    return [
      t('lesson.cost.live.overlap', { same: same.length, of: most }),
      changes ? t('lesson.cost.live.because', { changes }) : t('lesson.cost.live.noise'),
    ].join(' ');
  }

  return {
    element,
    take,
    stop() {
      if (nonce) halt();
      waiting.end();
      clearTimeout(timer);
    },
  };
}
