/** "Run it live on this machine": the recorded request again, on the figure, and how it differs from the recording. */

import { h, say } from '../dom.js';
import { Run } from '../run.js';
import { changesSaid, compare } from './recording.js';
import { Waiting } from './waiting.js';

/**
 * `view` draws: show(bundles), refresh(), finish(texts) -> whether the figure could be drawn from them, back(), and
 * restore() after a run that brought nothing.
 * `recorded` are the bundles to compare with. Returns {element, take(text), stop()}.
 */
export function makeLive(view, requests, recorded, { host, ctx }) {
  const { t } = ctx;
  const said = h('div', { class: 'sv-l-live-said', role: 'status' });
  const start = h('button', { class: 'sv-l-quiet', type: 'button' }, t('lesson.live.run'));
  const back = h('button', { class: 'sv-l-quiet', type: 'button', hidden: true }, t('lesson.live.back'));
  const element = h(
    'div',
    { class: 'sv-l-live', 'data-hide': 'tools' },
    h('div', { class: 'sv-l-tools' }, start, back),
    said,
  );
  let runs = [];
  let run = null;
  const waiting = new Waiting(host, ({ key, args }) => say(said, t(key, args)));

  start.addEventListener('click', () => {
    if (run) run.stop();
    else if (waiting.on) giveUp();
    else begin();
  });
  back.addEventListener('click', () => {
    back.hidden = true;
    said.replaceChildren();
    view.back();
  });

  /** Wait for the model, then run. The button gives up meanwhile. */
  async function begin() {
    back.hidden = true;
    start.textContent = t('control.stop');
    if (!(await waiting.over())) return;
    runs = [];
    next();
  }

  function giveUp() {
    waiting.end();
    start.textContent = t('lesson.live.run');
    say(said, '');
  }

  /** The runs of a figure follow one another: the machine has one line. */
  function next() {
    run = new Run(
      host,
      { ...requests[runs.length], lang: ctx.lang() },
      { changed, ended, silent: () => say(said, t('shell.silent')) },
    );
    runs.push(run);
    view.show(runs.map((each) => each.bundle));
    say(said, t('shell.running'));
    start.textContent = t('control.stop');
    back.hidden = true;
    run.start();
  }

  function changed(which) {
    if (which !== run) return;
    const place = run.bundle.wait;
    say(said, place > 0 ? t('shell.wait', { place }) : t('shell.running'));
    view.refresh();
  }

  function ended(which) {
    if (which !== run) return;
    view.refresh();
    const notice = run.bundle.notices.at(-1);
    const failed =
      notice || run.lost || run.bundle.traces[0]?.finish === 'stopped' || run.bundle.traces.length < run.expected;
    run = null;
    if (!failed && runs.length < requests.length) {
      next();
      return;
    }
    start.textContent = t('lesson.live.again');
    // Where nothing came, the recording stands there as before.
    back.hidden = runs.every((each) => each.bundle.traces.length === 0);
    if (back.hidden) view.restore();
    if (notice) say(said, t(notice.key, notice.args));
    else if (which.lost) say(said, t('shell.lost'));
    else if (failed) say(said, t('lesson.live.stopped'));
    else if (!view.finish(runs.map((each) => each.ndjson))) say(said, t('lesson.live.lacks'));
    else
      said.replaceChildren(...runs.flatMap((each, index) => verdict(recorded[index].traces[0], each.bundle.traces[0])));
  }

  /** Same or not, and what was different about the two machines. */
  function verdict(before, now) {
    const found = compare(before, now);
    const key = !found.same ? 'lesson.live.differs' : found.verdicts ? 'lesson.live.same' : 'lesson.live.verdicts';
    const changes = changesSaid(found.changes, t);
    const why = changes
      ? t(found.same ? 'lesson.live.although' : 'lesson.live.because', { changes })
      : t('lesson.live.conditions');
    return [h('p', {}, h('b', {}, t(key, { at: found.at, tokens: found.tokens })), ' ', why)];
  }

  return {
    element,
    take: (text) => run?.take(text),
    stop() {
      waiting.end();
      if (run) run.stop();
      run = null;
    },
  };
}
