/** What a visitor writes and presses: example, prompt, own draft, Run, settings, and what the server says meanwhile. */

import { mountControls } from './controls.js';
import { h, newId, say } from './dom.js';
import { SCRIPT } from './state.js';

/** actions = {run(), stop(), preset(name)}. */
export function mountComposer(root, { boot, state, words }, actions) {
  const presets = makePresets({ boot, state, words }, actions);
  const lesson = h('p', { class: 'sv-lesson' });
  const prompt = makePrompt(state, words);
  const draft = makeDraft(state, words);
  const run = h('button', { class: 'sv-run', type: 'button', 'aria-keyshortcuts': 'Control+Enter' });
  const settings = h('div', { class: 'sv-settings-body' });
  const status = h('span', { role: 'status' });
  const note = h('span', { class: 'sv-state-note' });
  const alert = h('p', { class: 'sv-alert', role: 'alert' });
  const controls = mountControls(settings, { boot, state, words });
  root.append(
    h('div', { class: 'sv-composer-top', 'data-hide': 'presets' }, presets.element, lesson),
    prompt.element,
    draft.element,
    h(
      'div',
      { class: 'sv-actions' },
      run,
      h(
        'details',
        { class: 'sv-settings', 'data-hide': 'settings' },
        words.bind(h('summary'), 'control.title'),
        settings,
      ),
      h('p', { class: 'sv-state' }, status, note),
    ),
    alert,
  );

  let running = false;
  let ready = false;
  const press = () => {
    if (running) actions.stop();
    else if (ready) actions.run();
  };
  run.addEventListener('click', press);
  root.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!running) press();
  });

  const drawRun = () => {
    say(run, words.t(running ? 'control.stop' : 'control.run'));
    run.title = running ? '' : words.t('control.run.key');
    run.classList.toggle('sv-run--stop', running);
    run.setAttribute('aria-disabled', String(!running && !ready));
  };
  const draw = () => {
    presets.draw();
    say(lesson, state.isOwn ? '' : state.preset.lesson[words.lang]);
    prompt.draw();
    draft.draw();
    controls.draw();
    drawRun();
    const target = boot.targets.find((each) => each.name === state.get('target'));
    const foreign = words.lang === 'vi' && target && !target.writes.includes('vi');
    const notes = [
      foreign ? words.t('shell.target_writes', { target: target.title }) : '',
      state.isOwn && state.get('prompt').trim() && !state.get('chat') ? words.t('shell.continues') : '',
    ];
    say(note, notes.filter(Boolean).join(' '));
  };
  draw();
  return {
    draw,
    focus: () => prompt.input.focus(),
    say: (text) => say(status, text),
    alert: (text) => say(alert, text),
    set(next) {
      ({ running, ready } = next);
      drawRun();
    },
  };
}

function makePresets({ boot, state, words }, actions) {
  const title = h('span');
  const menu = h('div', { class: 'sv-presets-menu' });
  const summary = h('summary', {}, title);
  const element = h('details', { class: 'sv-presets' }, summary, menu);
  const choose = (name) => {
    element.open = false;
    summary.focus();
    actions.preset(name);
  };
  const items = boot.presets.map(({ name }) => {
    const item = h('button', { class: 'sv-preset', type: 'button', onClick: () => choose(name) }, h('b'), h('span'));
    menu.append(item);
    return item;
  });
  const shut = (event) => {
    if (element.open && !element.contains(event.target)) element.open = false;
  };
  document.addEventListener('pointerdown', shut);
  element.addEventListener(
    'focusout',
    (event) => event.relatedTarget && !element.contains(event.relatedTarget) && (element.open = false),
  );
  element.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !element.open) return;
    element.open = false;
    summary.focus();
    event.stopPropagation();
  });
  const draw = () => {
    const chosen = state.isOwn ? null : state.preset;
    say(title, chosen ? words.t('shell.preset', { title: chosen.title[words.lang] }) : words.t('shell.preset.none'));
    boot.presets.forEach((preset, index) => {
      say(items[index].firstChild, preset.title[words.lang]);
      say(items[index].lastChild, preset.lesson[words.lang]);
      items[index].setAttribute('aria-current', String(preset === chosen));
    });
  };
  return { element, draw };
}

function makePrompt(state, words) {
  const id = newId('prompt');
  const input = h('textarea', {
    class: 'sv-text',
    id,
    rows: 1,
    spellcheck: 'false',
    dir: 'auto',
  });
  const label = words.bind(h('label', { class: 'sv-hush', for: id }), 'control.prompt');
  words.bind(input, 'control.prompt.placeholder', 'placeholder');
  const element = h('div', { class: 'sv-field', 'data-hide': 'prompt' }, label, input);
  input.addEventListener('input', () => {
    state.set({ prompt: input.value });
    grow(input);
  });
  const draw = () => {
    if (input.value !== state.get('prompt')) input.value = state.get('prompt');
    grow(input);
  };
  return { element, input, draw };
}

/** The scripted drafter drafts what the visitor types here. */
function makeDraft(state, words) {
  const id = newId('draft');
  const input = h('textarea', {
    class: 'sv-text sv-text--draft',
    id,
    rows: 1,
    maxlength: 2000,
    spellcheck: 'false',
    'aria-describedby': `${id}-help`,
  });
  const element = h(
    'div',
    { class: 'sv-draft' },
    h(
      'div',
      { class: 'sv-draft-head' },
      words.bind(h('label', { class: 'sv-field-name', for: id }), 'control.script'),
      words.bind(h('span', { class: 'sv-help', id: `${id}-help` }), 'control.script.help'),
    ),
    input,
  );
  words.bind(input, 'control.script.placeholder', 'placeholder');
  input.addEventListener('input', () => {
    state.set({ script: input.value });
    grow(input);
  });
  const draw = () => {
    element.hidden = !state.drafter?.knobs.some((knob) => knob.name === SCRIPT);
    if (input.value !== state.get('script')) input.value = state.get('script');
    grow(input);
  };
  return { element, draw };
}

/** As tall as its text, where the browser does not do that by itself. */
function grow(input) {
  if (CSS.supports('field-sizing', 'content')) return;
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}
