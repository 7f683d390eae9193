/** The About place: what this is, how to read it, its words, its limits, what it is made of. */

import { linkToBreak } from './break.js';
import { h } from './dom.js';

const WORDS = [
  'target',
  'drafter',
  'round',
  'gamma',
  'accepted',
  'rejected',
  'discarded',
  'correction',
  'bonus',
  'pq',
  'residual',
  'alpha',
  'tau',
  'kv',
];
const LIMITS = ['small', 'english', 'cpu', 'server'];
const PAPERS = Object.freeze([
  [
    'Leviathan, Kalman, Matias. Fast Inference from Transformers via Speculative Decoding. ICML 2023.',
    'https://arxiv.org/abs/2211.17192',
  ],
  [
    'Chen et al. Accelerating Large Language Model Decoding with Speculative Sampling. 2023.',
    'https://arxiv.org/abs/2302.01318',
  ],
  ['Saxena. Prompt Lookup Decoding. 2023.', 'https://github.com/apoorvumang/prompt-lookup-decoding'],
  [
    'Elhoushi et al. LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding. ACL 2024.',
    'https://arxiv.org/abs/2404.16710',
  ],
  ['Allal et al. SmolLM2. 2025.', 'https://arxiv.org/abs/2502.02737'],
]);

export function mountAbout(root, { boot, state, words }) {
  const text = (tag, key, className) => words.bind(h(tag, className ? { class: className } : {}), key);
  const section = (name, ...children) =>
    h('section', { class: 'sv-section' }, text('h2', `about.${name}`, 'sv-h2'), ...children);
  const list = (keys) => h('ul', {}, ...keys.map((key) => text('li', key)));
  root.append(
    h(
      'article',
      { class: 'sv-about' },
      text('h1', 'about.title', 'sv-title'),
      text('p', 'about.lead', 'sv-lead'),
      section('how', text('p', 'about.how.text'), text('p', 'about.how.lossless'), h('p', {}, linkToBreak({ state, words }))),
      section(
        'words',
        h(
          'dl',
          { class: 'sv-words' },
          ...WORDS.flatMap((name) => [text('dt', `about.word.${name}`), text('dd', `about.word.${name}.is`)]),
        ),
      ),
      section('honest', list(['about.honest.measured', 'about.honest.recorded', 'about.honest.computed'])),
      section('limits', list(LIMITS.map((name) => `about.limit.${name}`))),
      section('private', text('p', 'about.private.text')),
      section(
        'teacher',
        text('p', 'about.teacher.text'),
        h('p', {}, h('code', {}, '?preset=weather&lang=vi&hide=settings,tools')),
      ),
      section(
        'papers',
        h(
          'ul',
          {},
          ...PAPERS.map(([title, href]) =>
            h('li', { lang: 'en' }, h('a', { href, rel: 'noreferrer', target: '_blank' }, title)),
          ),
        ),
      ),
      section('licence', text('p', 'about.licence.text'), h('p', {}, `SpecViz ${boot.version}`)),
    ),
  );
  return { redraw() {} };
}
