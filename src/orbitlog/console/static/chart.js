// @ts-check
// <ob-chart data-source="URL">: rates and lag of the last hour, or counts in buckets, drawn by uPlot on a canvas.
import { showEmptyLine } from "./empty_line.js";

const REFRESH_MS = 10000;
// Times of an axis by its step in seconds: format, format where a new year, day or minute begins.
const TIMES = [
  [86400, "{DD} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [1, ":{ss}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];
const TIME_SERIES = { label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}:{ss}" };

class Chart extends HTMLElement {
  #timer = 0;
  /** @type {any} */
  #plot = null;

  async connectedCallback() {
    await this.#load();
    this.#timer = window.setInterval(() => { if (!document.hidden) this.#load(); }, REFRESH_MS);
  }

  disconnectedCallback() { clearInterval(this.#timer); }

  async #load() {
    const source = this.dataset.source;
    if (!source) return;
    let answer;
    try {
      const response = await fetch(source);
      if (!response.ok) return;
      answer = await response.json();
    } catch { return; }
    if (this.dataset.kind === "counts") { this.#counts(answer); return; }
    const points = answer.points;
    if (points.length < 2) {
      showEmptyLine(this, "The chart appears after two samples; the history begins when the console starts.");
      return;
    }
    const names = ["at", "inPerSecond", "outPerSecond", ...(this.dataset.kind === "rates" ? [] : ["lag"])];
    const data = names.map(
      (name) => points.map((/** @type {any} */ point) => (name === "at" ? point.at / 1000 : point[name])));
    if (this.#plot) { this.#plot.setData(data); return; }
    this.replaceChildren();
    this.#plot = this.#draw(data);
  }

  /** @param {any} answer */
  #counts(answer) {
    if (!answer.total) { showEmptyLine(this, "No message was stored in this time."); return; }
    const data = [answer.items.map((/** @type {any} */ item) => item.at / 1000), answer.items.map((/** @type {any} */ item) => item.count)];
    if (this.#plot) { this.#plot.setData(data); return; }
    this.replaceChildren(this.#spans(answer.hours));
    const { colour, axis, time, tzDate, width } = this.#look();
    // @ts-ignore uPlot is a global of its own script
    const bars = uPlot.paths.bars({ size: [0.9, 60], align: 1 });
    // @ts-ignore uPlot is a global of its own script
    this.#plot = new uPlot({
      width, height: 220, tzDate, axes: [time, { ...axis, label: "messages" }],
      series: [TIME_SERIES, { label: "messages", stroke: colour("--chart-a"), fill: colour("--accent-soft"), width: 1, paths: bars, points: { show: false } }],
    }, data, this);
  }

  /** Buttons for the span of a chart of counts. @param {number} shown */
  #spans(shown) {
    const bar = document.createElement("p");
    bar.className = "toolbar";
    for (const [text, hours] of [["1 h", 1], ["24 h", 24], ["7 d", 168], ["30 d", 720]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "quiet";
      button.textContent = String(text);
      button.setAttribute("aria-pressed", String(hours === shown));
      button.addEventListener("click", () => {
        this.dataset.source = `${(this.dataset.source ?? "").split("?")[0]}?hours=${hours}`;
        this.#plot?.destroy();
        this.#plot = null;
        this.#load();
      });
      bar.append(button);
    }
    return bar;
  }

  /** Colours and size that the style sheet gives. */
  #look() {
    const style = getComputedStyle(this);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    // @ts-ignore uPlot is a global of its own script
    const tzDate = (/** @type {number} */ at) => uPlot.tzDate(new Date(at * 1000), "UTC");
    const axis = { stroke: colour("--text-soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    return { colour, axis, time: { ...axis, values: TIMES }, tzDate, width: Math.max(320, this.clientWidth - 26) };
  }

  /** @param {any} data */
  #draw(data) {
    const { colour, axis, time, tzDate, width } = this.#look();
    const hasLag = data.length > 3;
    const options = {
      width, height: 220, tzDate,
      scales: { lag: {} },
      axes: [time, { ...axis, label: "messages/s" }, ...(hasLag ? [{ ...axis, label: "lag", size: 70, side: 1, scale: "lag", grid: { show: false } }] : [])],
      series: [
        TIME_SERIES,
        { label: "in/s", stroke: colour("--chart-a"), width: 2 },
        { label: "out/s", stroke: colour("--chart-b"), width: 2 },
        ...(hasLag ? [{ label: "lag", stroke: colour("--chart-c"), width: 2, scale: "lag", dash: [6, 4] }] : []),
      ],
    };
    // @ts-ignore uPlot is a global of its own script
    return new uPlot(options, data, this);
  }
}
customElements.define("ob-chart", Chart);
