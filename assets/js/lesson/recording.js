/** Recorded runs as text: cut to the rounds a figure shows, asked for again, compared with a live run. */

/** The first trace of a bundle up to and including round `to`; the closing line stays only when nothing is cut. */
export function cut(ndjson, to = null) {
  const lines = ndjson.split('\n').filter((line) => line.trim());
  const next = lines.findIndex((line, index) => index > 0 && isHeader(line));
  const own = next < 0 ? lines : lines.slice(0, next);
  const most = to === null ? Infinity : to + 2;
  return `${own.slice(0, most).join('\n')}\n`;
}

/** The bundle without the traces of plain decoding; the whole bundle when it holds nothing else. */
function isHeader(line) {
  return line.startsWith('{"schema"');
}

/** The request that a trace came from, to be run again. */
export function requestOf(bundle, lang) {
  const { meta } = bundle.traces[0];
  const names = ['target', 'drafter', 'gamma', 'temperature', 'top_p', 'top_k', 'repetition_penalty', 'seed', 'max_new_tokens'];
  return {
    ...Object.fromEntries(names.map((name) => [name, meta[name]])),
    prompt: meta.prompt_text,
    chat: meta.chat,
    rule: meta.rule,
    options: meta.drafter_options,
    race: bundle.traces.length > 1,
    lang,
  };
}

const CONDITIONS = ['device', 'device_name', 'dtype', 'threads'];

/**
 * A live run beside the recorded one: {same, verdicts, at, changes}. `same`: token for token the same text; `verdicts`: every
 * draft met the same fate; `at`: the first token that differs, from 1; `changes`: conditions that differ, {name, before, now}.
 */
export function compare(recorded, live) {
  const [before, now] = [recorded, live].map((trace) => trace.entries.map((entry) => entry.id));
  const length = Math.max(before.length, now.length);
  const at = Array.from({ length }, (_, index) => index).find((index) => before[index] !== now[index]);
  const fates = (trace) => JSON.stringify(trace.rounds.map((round) => round.nodes.map((node) => [node.id, node.status])));
  return {
    same: at === undefined,
    verdicts: fates(recorded) === fates(live),
    at: at === undefined ? null : at + 1,
    tokens: now.length,
    changes: changesOf(recorded.meta, live.meta),
  };
}

function changesOf(before, now) {
  const plain = CONDITIONS.map((name) => ({ name, before: before[name], now: now[name] }));
  const packages = Object.keys({ ...before.versions, ...now.versions });
  const versions = packages.map((name) => ({ name, before: before.versions?.[name], now: now.versions?.[name] }));
  return [...plain, ...versions].filter((change) => change.before !== change.now);
}
