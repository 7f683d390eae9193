/** Take a trace away, bring one back, hand the page on as a link. */

import { h, say } from './dom.js';

const MOST = 4_000_000; // bytes; the same limit as the reader's
const LINGER = 4000;

/** actions = {file() -> {text, name} | null, take(text), fail(key, args)}. */
export function mountTools(root, { state, words }, actions) {
  const button = (key, onClick) =>
    words.bind(h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick }), key);
  const picker = h('input', { type: 'file', accept: '.ndjson,.jsonl,.json,application/x-ndjson', hidden: true });
  const save = button('shell.export', () => download(actions.file()));
  const link = button('shell.link', () => copy());
  const address = h('input', { class: 'sv-text', type: 'text', readonly: true, hidden: true });
  const said = h('span', { class: 'sv-help', 'aria-live': 'polite' });
  words.bind(address, 'shell.link', 'aria-label');
  root.append(
    h(
      'div',
      { class: 'sv-tools', 'data-hide': 'tools' },
      save,
      button('shell.import', () => picker.click()),
      link,
      said,
      picker,
    ),
    address,
  );
  let timer;

  picker.addEventListener('change', async () => {
    const [file] = picker.files;
    picker.value = '';
    if (!file) return;
    if (file.size > MOST) actions.fail('shell.import.big', { most: MOST / 1e6 });
    else actions.take(await file.text());
  });

  async function copy() {
    const text = state.address({ whole: true });
    try {
      await navigator.clipboard.writeText(text);
      say(said, words.t('shell.link.copied'));
      clearTimeout(timer);
      timer = setTimeout(() => say(said, ''), LINGER);
    } catch {
      // Browsers give the clipboard to https and localhost only; in a classroom the link is shown, selected.
      address.hidden = false;
      address.value = text;
      address.select();
      say(said, words.t('shell.link.shown'));
    }
  }

  return {
    set: ({ whole }) => {
      save.disabled = !whole;
    },
    setWords: () => say(said, ''),
  };
}

function download(file) {
  if (!file) return;
  const url = URL.createObjectURL(new Blob([file.text], { type: 'application/x-ndjson' }));
  h('a', { href: url, download: file.name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
