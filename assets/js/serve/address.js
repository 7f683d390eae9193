/** Where a visitor's server is: a box where any of this computer's may be typed, a list where the host names them. */

import { h, newId } from '../dom.js';

/** {element, input}: `input.value` is the address. `value` null leaves it empty. */
export function makeAddress({ boot, t, key, value = null, changed = () => {} }) {
  const { mode, servers } = boot.served;
  const id = newId('address');
  const label = h('label', { class: 'sv-field-name', for: id }, t(key));
  if (mode === 'listed') {
    const none = value === null ? h('option', { value: '' }, t('serve.address.none')) : null;
    const input = h('select', { class: 'sv-select', id, onChange: changed }, none, ...servers.map((each) => h('option', { value: each }, each)));
    return { element: h('div', { class: 'sv-control' }, label, input), input };
  }
  const known = h('datalist', { id: `${id}-known` }, ...servers.map((each) => h('option', { value: each })));
  const input = h('input', {
    class: 'sv-text',
    id,
    type: 'text',
    inputmode: 'url',
    list: servers.length ? known.id : null,
    value,
    placeholder: t('serve.address.example'),
    spellcheck: 'false',
    autocomplete: 'off',
    maxlength: '300',
    onInput: changed,
  });
  return { element: h('div', { class: 'sv-control' }, label, input, known), input };
}

/** Why there is no box on this host, and where to go instead; null where there is one. */
export function refusal({ boot }, { t, link }) {
  if (boot.served.mode !== 'off') return null;
  return h('p', { class: 'sv-serve-off' }, t('error.server_off'), ' ', link('saved', 'serve.off.saved'));
}
