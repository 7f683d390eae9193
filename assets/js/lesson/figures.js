/** The figures a step may show. A new kind is a line here and a file beside it. */

import { mountAnalogy } from './analogy.js';
import { mountAnatomy } from './anatomy.js';
import { mountCertainty } from './certainty.js';
import { mountCompare } from './compare.js';
import { mountCost } from './cost.js';
import { mountDrag } from './drag.js';
import { mountCalibration, mountGrown, mountSlots } from './drafting.js';
import { mountEnd } from './end.js';
import { mountExperiment } from './experiment.js';
import { mountFamily } from './family.js';
import { mountFormula } from './formula.js';
import { mountOwn } from './here.js';
import { mountCaches } from './kv.js';
import { mountLaw } from './law.js';
import { mountLines } from './lines.js';
import { mountQuiz, mountSurvey } from './questions.js';
import { mountBesides } from './race.js';
import { mountReroll } from './reroll.js';
import { mountRuns } from './runs.js';
import { mountServed } from './served.js';
import { mountTiles } from './tiles.js';

/**
 * mount(root, stage) -> {total, first, go(position)}: a figure shows `position` of its `total` moves, and begins at
 * `first`. It may add find(ref, to) -> elements that a word points at, keys {letter: what it does}, destroy(); and,
 * where it can draw a live run as it comes, show(bundles), refresh() and back(). Others are mounted again from the
 * finished run. repaint() is for drawings that do not take the page's colours by themselves.
 */
export const FIGURES = Object.freeze({
  tiles: mountTiles,
  certainty: mountCertainty,
  cost: mountCost,
  experiment: mountExperiment,
  law: mountLaw,
  drag: mountDrag,
  reroll: mountReroll,
  kv: mountCaches,
  anatomy: mountAnatomy,
  family: mountFamily,
  slots: mountSlots,
  grown: mountGrown,
  calibration: mountCalibration,
  formula: mountFormula,
  race: mountBesides,
  here: mountOwn,
  compare: mountCompare,
  survey: mountSurvey,
  quiz: mountQuiz,
  analogy: mountAnalogy,
  end: mountEnd,
  command: mountLines,
  reported: mountLines,
  served: mountServed,
  runs: mountRuns,
});

/** Where a figure's recorded runs lie, the main one first. */
export function tracesOf(figure) {
  return figure.traces ?? (figure.trace ? [figure.trace] : []);
}

/** All files that a figure is drawn from: its runs, or an experiment as the server draws it. */
export function filesOf(figure) {
  return figure.view ? [figure.view] : tracesOf(figure);
}

/** The requests that made its runs. */
export function requestsOf(figure) {
  return figure.requests ?? (figure.request ? [figure.request] : []);
}
