/** What can be set in the Lab; the address holds it all. */

export const ROOMS = Object.freeze(['formula', 'law', 'experiments', 'family', 'paged']);

/** The recorded runs of the paged room (assets/paged), as RUNS in spec_viz/lab/paging.py. */
export const RUNS = Object.freeze(['none', 'prompt_lookup', 'eagle3']);

// A pass was measured over 1 … 16 tokens, so a round drafts 15 at most.
export const MOST_DRAFTS = 15;

/** v(n) = 1 + slope·(n − 1), in passes over one token; overhead in plain rounds. */
export const KNOBS = Object.freeze([
  { name: 'alpha', sign: 'α', min: 0, max: 1, step: 0.01, digits: 2, value: 0.7 },
  { name: 'gamma', sign: 'γ', min: 1, max: MOST_DRAFTS, step: 1, digits: 0, value: 4 },
  { name: 'c', sign: 'c', min: 0, max: 1, step: 0.005, digits: 3, value: 0.1 },
  { name: 'slope', sign: 'v', min: 0, max: 1, step: 0.005, digits: 3, value: 0.05 },
  { name: 'overhead', sign: 'o', min: 0, max: 0.5, step: 0.005, digits: 3, value: 0.02 },
]);
