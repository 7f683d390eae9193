/** The contents of a lesson: every step, what is done, where we are. */

import { h, say } from '../dom.js';

/** actions = {open(index), forget()}. */
export function makeContents(lesson, { ctx, memory }, actions) {
  const { t } = ctx;
  const title = h('span');
  const summary = h('summary', {}, title);
  const items = lesson.steps.map((step, index) => {
    const mark = h('span', { class: 'sv-l-done', role: 'img', 'aria-label': t('lesson.contents.done') }, '✓');
    const button = h(
      'button',
      {
        type: 'button',
        onClick: () => {
          element.open = false;
          actions.open(index);
        },
      },
      h('span', { class: 'sv-l-index' }, String(index + 1)),
      h('span', {}, step.title),
      mark,
    );
    return { step, button, mark };
  });
  const list = h('ol', {}, ...items.map(({ button }) => h('li', {}, button)));
  const forget = h(
    'button',
    { class: 'sv-l-quiet', type: 'button', onClick: () => actions.forget() },
    t('lesson.contents.forget'),
  );
  const note = h('p', { class: 'sv-l-about' }, t('lesson.contents.kept'));
  const element = h(
    'details',
    { class: 'sv-l-contents' },
    summary,
    h('nav', { class: 'sv-l-contents-box', 'aria-label': t('lesson.contents') }, list, note, forget),
  );
  const bar = h('div', { class: 'sv-l-progress', 'aria-hidden': 'true' }, ...lesson.steps.map(() => h('i')));
  element.addEventListener(
    'focusout',
    (event) => event.relatedTarget && !element.contains(event.relatedTarget) && (element.open = false),
  );
  return {
    element,
    bar,
    /** Shut the list; false when it was not open. */
    close() {
      if (!element.open) return false;
      element.open = false;
      summary.focus();
      return true;
    },
    draw(current) {
      say(title, t('lesson.contents.at', { at: current + 1, of: lesson.steps.length }));
      items.forEach(({ step, button, mark }, index) => {
        const done = memory.isDone(step.id);
        mark.hidden = !done;
        if (index === current) button.setAttribute('aria-current', 'step');
        else button.removeAttribute('aria-current');
        bar.children[index].className =
          `${done ? 'sv-l-progress-done' : ''} ${index === current ? 'sv-l-progress-now' : ''}`.trim();
      });
    },
  };
}
