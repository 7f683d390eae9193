/** The whole lesson on paper: every step with its words, its question, its figure as it ends. */

import { h } from '../dom.js';
import { block } from './prose.js';
import { flat } from './questions.js';
import { makeStage } from './stage.js';

/** Returns {element, destroy()}; the element is seen by printers only (lesson.css). */
export function makeHandout({ host, lesson, texts, ctx, memory }) {
  const stages = [];
  const figureOf = (step) => {
    const { kind, phase } = step.figure;
    if (phase === 'after') return ''; // on paper the same questions once are enough
    if (['survey', 'quiz'].includes(kind)) return questions(lesson[kind]);
    const stage = makeStage({ host, lesson, step, texts, ctx, memory, keep: {}, asks: false, live: false });
    stage.go(stage.total);
    stages.push(stage);
    return stage.element;
  };
  const steps = lesson.steps.map((step, index) =>
    h(
      'section',
      { class: 'sv-l-handout-step' },
      h('h2', {}, `${index + 1}. ${step.title}`),
      block(step.html),
      step.ask ? questions([step.ask]) : '',
      figureOf(step),
      step.ask ? block(step.reveal) : '',
    ),
  );
  const element = h(
    'article',
    { class: 'sv-l-handout' },
    h('h1', {}, `${lesson.number} ${lesson.title}`),
    h('p', { class: 'sv-l-handout-question' }, lesson.question),
    ...steps,
  );
  return {
    element,
    destroy() {
      for (const stage of stages) stage.destroy();
      element.remove();
    },
  };
}

function questions(list) {
  const one = (question) => {
    const box = h('div', { class: 'sv-l-handout-ask' }, flat(question.html));
    const choices = (question.options ?? []).map((choice) => {
      const item = h('li');
      item.append(flat(choice));
      return item;
    });
    if (choices.length) box.append(h('ul', {}, ...choices));
    return box;
  };
  return h('div', {}, ...list.map(one));
}
