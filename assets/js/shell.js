/** The frame of every place: top bar, language, light and dark, which place is shown, what a teacher has hidden. */

import { h, say } from './dom.js';
import { LANGUAGES, rememberLanguage } from './words.js';

const dark = matchMedia('(prefers-color-scheme: dark)');

/** The theme that is really shown: the visitor's choice, or the system's. */
export function themeOf(state) {
  const chosen = state.get('theme');
  return chosen === 'auto' ? (dark.matches ? 'dark' : 'light') : chosen;
}

/** A place's mount(root, host) returns {redraw(changed)}: the names of state that changed, 'lang' and 'theme' among them. */
export function mountShell(root, places, host) {
  const { state, words } = host;
  const holder = h('main', { class: 'sv-page', id: 'sv-page', tabindex: '-1' });
  const mounted = new Map();
  const bar = makeBar(places, host);
  const skip = words.bind(h('a', { class: 'sv-skip', href: '#sv-page' }), 'shell.skip');
  const recorded = makeRecorded(host);
  root.append(skip, bar.element, host.classroom.element, recorded.element, holder);

  const showPlace = () => {
    const { name, mount } = places.find((place) => place.name === state.get('page'));
    if (!mounted.has(name)) {
      const box = h('div');
      holder.append(box);
      mounted.set(name, { box, place: mount(box, host) });
      hide(box, state);
    }
    for (const [each, { box }] of mounted) box.hidden = each !== name;
    document.title = `${words.t(`shell.place.${name}`)} · SpecViz`;
  };
  const redraw = (changed) => {
    if (changed.includes('lang')) {
      rememberLanguage(state.get('lang'));
      words.setLang(state.get('lang'));
    }
    if (changed.includes('theme')) applyTheme(state);
    showPlace();
    bar.draw();
    recorded.draw();
    for (const { place } of mounted.values()) place.redraw(changed);
    if (changed.includes('hide')) hide(root, state);
  };

  applyTheme(state);
  showPlace();
  bar.draw();
  recorded.draw();
  hide(root, state);
  state.listen(redraw);
  dark.addEventListener('change', () => redraw(['theme']));
}

/** Where the page runs another target than its examples and lessons were recorded on, one line that says so. */
function makeRecorded({ boot, words }) {
  const [target] = boot.targets;
  const element = h('p', { class: 'sv-recorded-on', hidden: target.name === boot.recorded.name });
  const draw = () =>
    say(element, words.t('shell.recorded_on', { target: target.title, recorded: boot.recorded.title }));
  return { element, draw };
}

function makeBar(places, { state, words }) {
  const named = places.filter((place) => !place.under);
  const links = named.map(({ name }) => {
    const link = h('a', { class: 'sv-place', href: `?place=${name}` });
    link.addEventListener('click', (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      state.set({ page: name });
    });
    return words.bind(link, `shell.place.${name}`);
  });
  const languages = LANGUAGES.map((lang) =>
    h(
      'button',
      {
        class: 'sv-quiet',
        type: 'button',
        lang,
        title: lang === 'vi' ? 'Tiếng Việt' : 'English',
        onClick: () => state.set({ lang }),
      },
      lang.toUpperCase(),
    ),
  );
  const picks = words.bind(
    h('span', { class: 'sv-pick', role: 'group', 'data-hide': 'lang' }, ...languages),
    'shell.language',
    'aria-label',
  );
  const theme = h('button', {
    class: 'sv-quiet',
    type: 'button',
    'data-hide': 'theme',
    onClick: () => state.set({ theme: themeOf(state) === 'dark' ? 'light' : 'dark' }),
  });
  const nav = words.bind(h('nav', { class: 'sv-places' }, ...links), 'shell.places', 'aria-label');
  const mark = h('span', { class: 'sv-wordmark' }, 'Spec', h('i', {}, 'Viz'));
  const bar = h('div', { class: 'sv-bar-inner' }, mark, nav, h('div', { class: 'sv-switches' }, picks, theme));
  const draw = () => {
    const { name: at, under } = places.find((place) => place.name === state.get('page'));
    named.forEach(({ name }, index) =>
      setOrRemove(links[index], 'aria-current', name === at ? 'page' : name === under ? 'true' : null),
    );
    LANGUAGES.forEach((lang, index) =>
      languages[index].setAttribute('aria-pressed', String(lang === state.get('lang'))),
    );
    theme.textContent = words.t(themeOf(state) === 'dark' ? 'shell.theme.light' : 'shell.theme.dark');
  };
  return { element: h('header', { class: 'sv-bar' }, bar), draw };
}

function setOrRemove(node, attribute, value) {
  if (value === null) node.removeAttribute(attribute);
  else node.setAttribute(attribute, value);
}

function applyTheme(state) {
  document.documentElement.dataset.theme = themeOf(state);
}

/** Take away what ?hide= names; nothing else writes `hidden` on these elements' wrappers. */
function hide(root, state) {
  for (const node of root.querySelectorAll('[data-hide]'))
    node.classList.toggle('sv-hidden', state.isHidden(node.dataset.hide));
}
