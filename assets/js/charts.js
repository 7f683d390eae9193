/** Plotly figures, drawn by the library we serve ourselves, which is fetched when the first chart is wanted. */

import { h } from './dom.js';

const CONFIG = Object.freeze({ displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false });
let plotly = null;

export function loadPlotly(base) {
  plotly ??= new Promise((resolve, reject) => {
    const script = h('script', { src: `${base}vendor/plotly.min.js`, async: true });
    script.addEventListener('load', () => resolve(window.Plotly));
    script.addEventListener('error', () => {
      plotly = null;
      script.remove();
      reject(new Error('plotly.min.js could not be loaded'));
    });
    document.head.append(script);
  });
  return plotly;
}

/**
 * A list of charts. show([{key, figure, summary}]) draws them, keeping the canvas of a key that was there before.
 * `heading` is the key of the words they stand under: a title that says the same is left out.
 */
export function mountCharts(root, { boot, words, heading }) {
  const holder = h('div', { class: 'sv-charts' });
  root.append(holder);
  const drawn = new Map();

  const draw = async (chart, entry) => {
    try {
      const [library] = await Promise.all([loadPlotly(boot.static), document.fonts.ready]);
      if (entry.wanted !== chart || !entry.plot.isConnected) return;
      await library.react(entry.plot, chart.figure.data, inPageFont(chart.figure.layout, entry.plot), CONFIG);
      entry.plot.classList.remove('sv-chart-plot--failed');
    } catch (error) {
      // The sentence under the chart says what it shows, so a chart that cannot be drawn leaves that.
      console.error(error);
      entry.plot.classList.add('sv-chart-plot--failed');
    }
  };

  // Plotly is not done when it has drawn: a canvas that is purged or drawn again before that fails, so each waits its turn.
  const next = (entry, step) => {
    entry.drawing = entry.drawing.then(step);
  };

  return {
    show(charts) {
      for (const [key, entry] of drawn) {
        if (charts.some((chart) => chart.key === key)) continue;
        entry.wanted = null;
        entry.element.remove();
        drawn.delete(key);
        next(entry, () => window.Plotly?.purge(entry.plot));
      }
      for (const chart of charts) {
        if (!drawn.has(chart.key)) drawn.set(chart.key, makeChart(holder));
        const entry = drawn.get(chart.key);
        entry.title.textContent = words.t(`chart.${chart.key}`);
        entry.title.hidden = entry.title.textContent === words.t(heading);
        entry.help.textContent = words.t(`chart.${chart.key}.help`);
        entry.summary.textContent = chart.summary;
        entry.plot.setAttribute('aria-label', `${entry.title.textContent}. ${chart.summary}`);
        entry.wanted = chart;
        next(entry, () => draw(chart, entry));
      }
    },
  };
}

/** Plotly measures its texts before they stand on the page, so it must be told the font by name. */
function inPageFont(layout, element) {
  return { ...layout, font: { ...layout.font, family: getComputedStyle(element).fontFamily } };
}

function makeChart(holder) {
  const title = h('h3');
  const help = h('p', { class: 'sv-help' });
  const plot = h('div', { class: 'sv-chart-plot', role: 'img' });
  const summary = h('figcaption');
  const element = h('figure', { class: 'sv-chart' }, title, help, plot, summary);
  holder.append(element);
  return { element, title, help, plot, summary, wanted: null, drawing: Promise.resolve() };
}
