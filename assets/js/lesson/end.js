/** The last page: what the learner can now explain, a task, the sources. */

import { h } from '../dom.js';
import { block } from './prose.js';

export function mountEnd(root, { figure, lesson, ctx }) {
  const section = (name, html) =>
    html
      ? h('section', { class: `sv-l-end sv-l-end--${name}` }, h('h2', {}, ctx.t(`lesson.end.${name}`)), block(html))
      : '';
  root.append(section('explain', figure.explain), section('task', figure.task), sources(lesson, ctx));
  return { total: 0, first: 0, go() {} };
}

function sources({ sources: works }, { t }) {
  const rows = Object.values(works ?? {});
  if (!rows.length) return '';
  return h(
    'section',
    { class: 'sv-l-end' },
    h('h2', {}, t('lesson.end.sources')),
    h(
      'ul',
      {},
      ...rows.map((work) =>
        h(
          'li',
          { lang: 'en' },
          h('a', { href: work.url, target: '_blank', rel: 'noopener noreferrer' }, work.title),
          ` ${work.authors}, ${work.year}.`,
          work.conditions ? h('span', { class: 'sv-l-about' }, ` ${work.conditions}`) : '',
        ),
      ),
    ),
  );
}
