/** "You are here" of the Lab, in a lesson: the learner's own last run on the formula, else the recorded one. */

import { h } from '../dom.js';
import { mountHere } from '../lab/here.js';

export function mountOwn(root, { ctx, host, texts }) {
  const [given] = texts;
  const last = host.finished?.() ?? '';
  const ndjson = isOwn(given) || !isOwn(last) ? given : last;
  const own = isOwn(ndjson);
  const said = h('p', { class: 'sv-l-summary' }, ctx.t(own ? 'lesson.here.own' : 'lesson.here.recorded'));
  if (!own) said.append(' ', h('span', { 'data-screen': 'only' }, ctx.t('lesson.here.how')));
  const box = h('div', { class: 'sv-l-here' });
  root.append(said, box);
  const here = mountHere(box, ctx, host.words);
  let gone = false;
  ask();
  return {
    total: 0,
    first: 0,
    go() {},
    destroy() {
      gone = true;
    },
  };

  async function ask() {
    here.show(null);
    try {
      const answer = await host.server.place([ndjson, host.words.lang]);
      if (!gone) here.show(answer ?? failed());
    } catch (error) {
      console.error(error);
      if (!gone) here.show(failed());
    }
  }
}

function failed() {
  return { none: { key: 'lab.here.failed', args: {} } };
}

/** Whether a bundle was decoded on this page, and not recorded before. */
function isOwn(ndjson) {
  return ndjson.startsWith('{') && JSON.parse(ndjson.slice(0, ndjson.indexOf('\n'))).origin === 'live';
}
