/** What stands above every place while a class is on: the teacher's bar, a student's line, and how one joins. */

import { h, newId, say } from '../dom.js';

function quietButtons(t) {
  return (key, onClick) => h('button', { class: 'sv-quiet sv-quiet--tool', type: 'button', onClick }, t(key));
}

/** actions = {show(), follow(bool), send(), end()}. Returns {element, draw({code, members, follow, place, said})}. */
export function teacherBar({ t }, actions) {
  const button = quietButtons(t);
  const code = h('button', {
    class: 'sv-class-code',
    type: 'button',
    title: t('classroom.poster.open'),
    onClick: () => actions.show(),
  });
  const members = h('span', { class: 'sv-class-count' });
  const modes = [true, false].map((follow) =>
    h('button', { type: 'button', onClick: () => actions.follow(follow) }, t(`classroom.mode.${follow ? 'follow' : 'roam'}`)),
  );
  const choice = h('span', { class: 'sv-choice', role: 'group', 'aria-label': t('classroom.mode') }, ...modes);
  const send = button('classroom.send', () => actions.send());
  const sure = h(
    'span',
    { class: 'sv-class-sure', hidden: true },
    button('classroom.end.sure', () => actions.end()),
    button('classroom.end.keep', () => ask(false)),
  );
  const end = button('classroom.end', () => ask(true));
  const said = h('p', { class: 'sv-class-said' });
  const element = h(
    'div',
    { class: 'sv-class-inner' },
    h('span', { class: 'sv-class-name' }, h('span', { class: 'sv-class-word' }, t('classroom.title'), ' '), code),
    members,
    choice,
    send,
    h('span', { class: 'sv-class-end' }, end, sure),
    said,
  );

  /** Ending cannot be taken back, so it is asked once more, in the same place. */
  function ask(open) {
    sure.hidden = !open;
    end.hidden = open;
    (open ? sure.lastChild : end).focus();
  }

  return {
    element,
    draw(state) {
      say(code, state.code);
      code.setAttribute('aria-label', t('classroom.poster.said', { code: state.code }));
      say(members, state.members === null ? '' : t('classroom.members', { n: state.members }));
      modes.forEach((mode, index) => mode.setAttribute('aria-pressed', String(state.follow === (index === 0))));
      send.hidden = state.place !== 'live';
      say(said, state.said);
    },
  };
}

/**
 * actions = {back(), board(), leave(), join(code)}; `code` stands in the form to begin with.
 * Returns {element, draw({said, away, run, over, again})}; `again`: another code may be entered.
 */
export function studentLine(words, actions, code) {
  const { t } = words;
  const button = quietButtons(t);
  const form = joinForm(words, actions.join, code);
  const said = h('p', { class: 'sv-class-said' });
  const back = button('classroom.back', () => actions.back());
  const board = button('classroom.board', () => actions.board());
  const leave = button('classroom.leave', () => actions.leave());
  return {
    element: h('div', { class: 'sv-class-inner sv-class-inner--student' }, said, form, back, board, leave),
    draw(state) {
      say(said, state.said);
      form.hidden = !state.again;
      back.hidden = !state.away;
      board.hidden = !state.run;
      say(leave, t(state.over ? 'classroom.close' : 'classroom.leave'));
    },
  };
}

/** actions = {take(), join(), leave()}. Returns {element, draw({said})}. */
export function otherTab({ t }, actions) {
  const button = quietButtons(t);
  const said = h('p', { class: 'sv-class-said' });
  const buttons = [
    button('classroom.take', () => actions.take()),
    button('classroom.watch', () => actions.join()),
    button('classroom.close', () => actions.leave()),
  ];
  return {
    element: h('div', { class: 'sv-class-inner sv-class-inner--student sv-class-inner--offer' }, said, ...buttons),
    draw: (state) => say(said, state.said),
  };
}

/** The code and the address in letters for the last row, as a dialog; Esc and its button close it. */
export function showPoster({ t }, code, address, base) {
  const title = newId('class');
  const square = h('img', {
    class: 'sv-class-square',
    src: `${base}class/${code}/square.svg?at=${encodeURIComponent(address.origin + address.pathname)}`,
    alt: t('classroom.poster.square'),
    onError: () => square.remove(),
  });
  const dialog = h(
    'dialog',
    { class: 'sv-class-poster', 'aria-labelledby': title },
    h('h2', { id: title }, t('classroom.poster.title')),
    h('p', { class: 'sv-class-address' }, address.href.replace(/^https?:\/\//, '')),
    h(
      'div',
      { class: 'sv-class-ways' },
      h('div', {}, h('p', {}, t('classroom.poster.or')), h('p', { class: 'sv-class-large' }, code)),
      isLocal(address) ? null : square,
    ),
    isLocal(address) ? h('p', { class: 'sv-class-note' }, t('classroom.poster.local')) : null,
    h('button', { class: 'sv-run', type: 'button', onClick: () => dialog.close() }, t('classroom.close')),
  );
  dialog.addEventListener('close', () => dialog.remove());
  document.querySelector('.sv-app').append(dialog);
  dialog.showModal();
}

/** A code as it was made, from how a person typed it, or from the class's address. */
export function plain(typed) {
  const [, code = typed] = typed.match(/[?&]class=([^&#]*)/) ?? [];
  return code.replace(/[^0-9a-z]/gi, '').toUpperCase().slice(0, 12);
}

/** A form for a code, which `value` is to begin with; join(code) is called with what was typed. */
export function joinForm({ t }, join, value = '') {
  const id = newId('class');
  const input = h('input', {
    class: 'sv-text',
    id,
    type: 'text',
    value,
    maxlength: 300,
    autocomplete: 'off',
    autocapitalize: 'characters',
    spellcheck: 'false',
  });
  const form = h(
    'form',
    { class: 'sv-class-join' },
    h('label', { for: id }, t('classroom.join.code')),
    input,
    h('button', { class: 'sv-l-quiet', type: 'submit' }, t('classroom.join')),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const code = plain(input.value);
    if (code) join(code);
    else input.focus();
  });
  return form;
}

function isLocal({ hostname }) {
  return hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.');
}
