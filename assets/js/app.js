/** The way in: the host's component calls mount once, with its element and its line to the server. */

import { mountAbout } from './about.js';
import { asking } from './asking.js';
import { mountBreak } from './break.js';
import { Classroom } from './classroom.js';
import { mountLab } from './lab.js';
import { mountLessons } from './lessons.js';
import { mountLive } from './live.js';
import { mountServe } from './serve.js';
import { mountShell } from './shell.js';
import { State } from './state.js';
import { Words } from './words.js';

/** The places, those of the top bar in order. A place is a line here and `shell.place.<name>` in the words. */
const PLACES = Object.freeze([
  { name: 'live', mount: mountLive },
  { name: 'lessons', mount: mountLessons },
  { name: 'lab', mount: mountLab },
  { name: 'serve', mount: mountServe },
  { name: 'about', mount: mountAbout },
  // Reached from another place, which stays marked in the bar.
  { name: 'break', mount: mountBreak, under: 'lab' },
]);

/** The component gives its element, its properties and its line to the server. */
export function mount({ element, props, trigger, server, watch }) {
  const boot = JSON.parse(document.getElementById('sv-boot').textContent);
  const root = takeOut(element);
  const state = new State(
    boot,
    PLACES.map((place) => place.name),
  );
  const words = new Words(boot.words, state.get('lang'));
  const host = { boot, state, words, server, ...asking({ props, trigger, watch }) };
  host.classroom = new Classroom(host);
  mountShell(root, PLACES, host);
  host.classroom.start();
}

/**
 * Move the page out of the host's container, whose style sheet claims every button and input inside it.
 * The container stays (its component carries the data), without content of its own.
 */
function takeOut(element) {
  for (const earlier of document.querySelectorAll('body > .sv-app')) earlier.remove();
  const root = element.querySelector('.sv-app');
  element.closest('main')?.setAttribute('hidden', '');
  document.body.prepend(root);
  return root;
}
