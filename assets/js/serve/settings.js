/** What can be set in the Serve place beside the builder's choices; the address holds it all. */

export const ROOMS = Object.freeze(['config', 'connect', 'compare', 'saved']);

/** Servers of which runs may be saved, as METHODS in spec_viz/serving; the first two are set side by side at first. */
export const RUNS = Object.freeze(['baseline', 'ngram', 'draft_model', 'eagle3']);
export const FIRST = Object.freeze(['baseline', 'eagle3']);

/** As in spec_viz/ui/serve_wire.py. */
export const MOST_QUESTIONS = 24;
export const TOKENS = Object.freeze([32, 64, 128, 256]);
export const WIDTHS = Object.freeze([1, 4, 16]);
export const MOST_SERVERS = 4;
export const MOST_NAME = 40;

/** As in spec_viz/ui/serve_view.py. */
export const MOST_BYTES = 8_000_000;

/** Where `serve-local` starts a practice server. */
export const PRACTICE = 'http://127.0.0.1:8000';

/** A prompt that drafts of every kind have something to say to; targets write English sooner than anything else. */
export const EXAMPLE = 'Write the numbers from 1 to 12, then write them again.';
