// @ts-check
// <ob-chart data-source="URL">: rates and lag of the last hour, drawn by uPlot on a canvas.

const REFRESH_MS = 10000;

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
    const points = answer.points;
    if (points.length < 2) {
      this.#say("The chart appears after two samples; the history begins when the console starts.");
      return;
    }
    const data = ["at", "inPerSecond", "outPerSecond", "lag"].map(
      (name) => points.map((/** @type {any} */ point) => (name === "at" ? point.at / 1000 : point[name])));
    if (this.#plot) { this.#plot.setData(data); return; }
    this.replaceChildren();
    this.#plot = this.#draw(data);
  }

  /** @param {any} data */
  #draw(data) {
    const style = getComputedStyle(this);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--text-soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options = {
      width: Math.max(320, this.clientWidth), height: 220,
      scales: { lag: {} },
      axes: [axis, { ...axis, label: "messages/s" }, { ...axis, label: "lag", side: 1, scale: "lag", grid: { show: false } }],
      series: [
        {},
        { label: "in/s", stroke: colour("--chart-a"), width: 2 },
        { label: "out/s", stroke: colour("--chart-b"), width: 2 },
        { label: "lag", stroke: colour("--chart-c"), width: 2, scale: "lag", dash: [6, 4] },
      ],
    };
    // @ts-ignore uPlot is a global of its own script
    return new uPlot(options, data, this);
  }

  /** @param {string} text */
  #say(text) {
    const line = document.createElement("p");
    line.className = "empty";
    line.textContent = text;
    this.replaceChildren(line);
  }
}
customElements.define("ob-chart", Chart);
