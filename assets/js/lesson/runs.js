/** Saved server runs side by side: one measure as a quiet chart, and the numbers behind it as a table. */

import { mountCharts } from '../charts.js';
import { h } from '../dom.js';
import { conditionsOf } from './served.js';

const COLOURS = ['ink', 'muted', 'line', 'surface', 'own-line', 'plain-line', 'ok-line', 'accent'];
// A second and third series differ in more than colour.
const PATTERNS = ['', '/', 'x', '.'];

/** figure = {show, rows: [{key, name, values}], series: [key], digits, conditions}; a row stands for one place on the axis. */
export function mountRuns(root, stage) {
  const { figure, ctx, asks, host } = stage;
  const key = `served_${figure.show}`;
  const plot = h('div', { class: 'sv-l-runs-plot' });
  const numbers = h('div');
  root.append(
    h('h2', { class: 'sv-l-figure-title' }, ctx.t(`chart.${key}`)),
    plot,
    numbers,
    conditionsOf(figure, ctx),
  );
  const charts = mountCharts(plot, { boot: host.boot, words: host.words, heading: `chart.${key}` });
  let shown = false;

  function draw() {
    charts.show(shown ? [chartOf(key, figure, ctx)] : []);
    numbers.replaceChildren(
      shown ? tableOf(figure, ctx) : h('p', { class: 'sv-l-summary' }, ctx.t('lesson.runs.hidden')),
    );
  }

  return {
    total: asks ? 1 : 0,
    first: 0,
    go(position) {
      shown = !asks || position > 0;
      draw();
    },
    repaint: draw,
    destroy: () => charts.show([]),
  };
}

function nameOf(row, { t }) {
  return row.key === null ? row.name : t(row.key);
}

function chartOf(key, figure, ctx) {
  const style = getComputedStyle(document.documentElement);
  const paint = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--sv-${name}`).trim()]));
  const names = figure.rows.map((row) => nameOf(row, ctx));
  const shades = [paint['own-line'], paint['plain-line'], paint['ok-line'], paint.accent];
  const data = figure.series.map((series, index) => ({
    type: 'bar',
    name: ctx.t(series),
    x: names,
    y: figure.rows.map((row) => row.values[index]),
    text: figure.rows.map((row) => shownValue(row.values[index], figure, ctx)),
    textposition: 'outside',
    cliponaxis: false,
    marker: { color: shades[index], pattern: { shape: PATTERNS[index], fgcolor: paint.surface, fillmode: 'overlay' } },
    hovertemplate: '%{x}: %{text}<extra>%{fullData.name}</extra>',
  }));
  const axis = {
    gridcolor: paint.line,
    linecolor: paint.line,
    zerolinecolor: paint.line,
    tickfont: { color: paint.muted, size: 12 },
    automargin: true,
    fixedrange: true,
  };
  const layout = {
    template: {},
    height: 300,
    margin: { l: 8, r: 8, t: 8, b: 8 },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: { size: 13, color: paint.ink },
    separators: ctx.lang() === 'vi' ? ', ' : '. ',
    hoverlabel: { bgcolor: paint.surface, bordercolor: paint.line, font: { color: paint.ink } },
    legend: { orientation: 'h', x: 0, y: 1.06, yanchor: 'bottom', traceorder: 'normal', font: { size: 12 } },
    showlegend: figure.series.length > 1,
    barmode: 'group',
    bargap: 0.35,
    xaxis: { ...axis, type: 'category', showgrid: false },
    yaxis: { ...axis, rangemode: 'tozero', title: { text: ctx.t(`chart.${key}.axis`), font: { size: 12 } } },
  };
  return { key, figure: { data, layout }, summary: said(figure, ctx) };
}

function shownValue(value, figure, ctx) {
  return value === null ? ctx.t('shell.unknown') : ctx.number(value, figure.digits, true);
}

/** Every number in words, for whoever does not see the bars. */
function said(figure, ctx) {
  const rows = figure.rows.map((row) => {
    const values = figure.series.map((series, index) =>
      figure.series.length > 1
        ? ctx.t('lesson.runs.said', { name: ctx.t(series), value: shownValue(row.values[index], figure, ctx) })
        : shownValue(row.values[index], figure, ctx),
    );
    return ctx.t('lesson.runs.row', { name: nameOf(row, ctx), values: values.join(', ') });
  });
  return `${rows.join('; ')}.`;
}

function tableOf(figure, ctx) {
  const head = figure.series.map((series) => h('th', { scope: 'col' }, ctx.t(series)));
  const rows = figure.rows.map((row) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, nameOf(row, ctx)),
      ...row.values.map((value) => h('td', {}, shownValue(value, figure, ctx))),
    ),
  );
  return h(
    'table',
    { class: 'sv-l-beside' },
    h('thead', {}, h('tr', {}, h('td'), ...head)),
    h('tbody', {}, ...rows),
  );
}
