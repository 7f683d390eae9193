/** "Compare with…": up to three more drafters that get the same request, each as it comes. */

import { drafterTitle } from './controls.js';
import { h, newId, say } from './dom.js';

export const MOST_RIVALS = 3;

/** The drafters one can compare with. Plain decoding runs by the race; a drafter whose draft is typed has no default. */
export function comparable(boot) {
  return boot.drafters.filter(({ name, knobs }) => name !== 'none' && !knobs.some((knob) => knob.name === 'script'));
}

/** The chosen ones, without the drafter that runs anyway. */
export function rivals(state) {
  return state.get('against').filter((name) => name !== state.get('drafter'));
}

export function againstControl({ boot, state, words }) {
  const id = newId('against');
  const known = comparable(boot);
  const first = h('option', { value: '' });
  const entries = known.map((drafter) => ({ drafter, option: h('option', { value: drafter.name }) }));
  const select = h(
    'select',
    { class: 'sv-select', id, 'aria-describedby': `${id}-help`, onChange: () => addRival(select.value) },
    first,
    ...entries.map(({ option }) => option),
  );
  const label = h('label', { class: 'sv-field-name', for: id });
  const help = h('p', { class: 'sv-help', id: `${id}-help` });
  const chosen = h('ul', { class: 'sv-against' });
  const element = h('div', { class: 'sv-control', 'data-hide': 'against' }, label, select, chosen, help);

  const addRival = (name) => {
    if (name) state.set({ against: [...rivals(state), name] });
  };
  const remove = (name) => {
    state.set({ against: rivals(state).filter((each) => each !== name) });
    select.focus();
  };
  const chip = (name) => {
    const title = drafterTitle(known.find((drafter) => drafter.name === name), words);
    const button = h(
      'button',
      { class: 'sv-against-chip', type: 'button', onClick: () => remove(name) },
      h('span', {}, title),
      h('span', { 'aria-hidden': 'true' }, '×'),
    );
    button.setAttribute('aria-label', words.t('compare.against.remove', { drafter: title }));
    return h('li', {}, button);
  };
  const draw = () => {
    const names = rivals(state);
    const full = names.length >= MOST_RIVALS;
    say(label, words.t('compare.against'));
    say(first, words.t('compare.against.add'));
    for (const { drafter, option } of entries) {
      say(option, drafterTitle(drafter, words));
      option.disabled = !drafter.ready || names.includes(drafter.name) || drafter.name === state.get('drafter');
    }
    select.value = '';
    select.disabled = full;
    chosen.replaceChildren(...names.map(chip));
    chosen.hidden = !names.length;
    chosen.setAttribute('aria-label', words.t('compare.against'));
    say(help, words.t(full ? 'compare.against.full' : 'compare.against.help', { most: MOST_RIVALS }));
  };
  return { element, draw };
}
