// @ts-check
// <ob-heat data-source="URL">: lag of groups or queues over time; a row each, colour by the logarithm of the lag.
import { showEmptyLine } from "./empty_line.js";

const REFRESH_MS = 10000;
const ROW_PX = 20;
const SHADES = 6;
const COLUMNS_MIN = 30;

class Heat extends HTMLElement {
  #timer = 0;

  connectedCallback() {
    this.#load();
    this.#timer = window.setInterval(() => { if (!document.hidden) this.#load(); }, REFRESH_MS);
  }

  disconnectedCallback() { clearInterval(this.#timer); }

  async #load() {
    let answer;
    try {
      const response = await fetch(this.dataset.source ?? "");
      if (!response.ok) return;
      answer = await response.json();
    } catch { return; }
    const rows = answer.rows ?? answer.groups;
    const times = answer.at ?? answer.points.map((/** @type {any} */ point) => point.at);
    if (!rows.length) { showEmptyLine(this, "No lag was recorded yet; the map begins when the console starts, for queues when this page is first open."); return; }
    this.#draw(rows, times, answer.bucketMs);
  }

  /** @param {any[]} rows @param {number[]} times @param {number} bucketMs */
  #draw(rows, times, bucketMs) {
    const most = Math.max(1, ...rows.map((row) => Math.max(0, ...row.lags.map((/** @type {any} */ lag) => lag ?? 0))));
    const table = document.createElement("div");
    table.className = "heat";
    for (const row of rows) {
      const last = row.lags[row.lags.length - 1];
      const name = document.createElement(this.dataset.link ? "a" : "span");
      if (name instanceof HTMLAnchorElement) name.href = this.dataset.link + encodeURIComponent(row.name);
      name.className = "heat-name";
      name.textContent = row.name;
      const figure = document.createElement("span");
      figure.className = "heat-last";
      figure.textContent = last === null || last === undefined ? "\u2013" : last.toLocaleString("en");
      table.append(name, this.#canvas(row, times, bucketMs, most), figure);
    }
    const scale = document.createElement("p");
    scale.className = "as-of";
    const span = times.length ? `${new Date(times[0]).toISOString().slice(11, 16)} to ${new Date(times[times.length - 1]).toISOString().slice(11, 16)} UTC` : "";
    scale.textContent = `${span}, a cell is ${bucketMs / 1000} s; the darkest is a lag of ${most.toLocaleString("en")}; empty cells are unknown`;
    this.replaceChildren(table, scale);
  }

  /** @param {any} row @param {number[]} times @param {number} bucketMs @param {number} most */
  #canvas(row, times, bucketMs, most) {
    const style = getComputedStyle(this);
    const canvas = document.createElement("canvas");
    // A column for every bucket of the span, also for those in which nobody looked; the newest is at the right.
    const columns = Math.max(COLUMNS_MIN, 1 + (times[times.length - 1] - times[0]) / bucketMs);
    const column = (/** @type {number} */ at) => columns - 1 - (times[times.length - 1] - times[at]) / bucketMs;
    canvas.width = columns * 6;
    canvas.height = ROW_PX;
    canvas.setAttribute("role", "img");
    const known = row.lags.filter((/** @type {any} */ lag) => lag !== null);
    canvas.setAttribute("aria-label", `${row.name}: lag from ${Math.min(...known).toLocaleString("en")} to ${Math.max(...known).toLocaleString("en")}`);
    const context = canvas.getContext("2d");
    if (!context) return canvas;
    row.lags.forEach((/** @type {number | null} */ lag, /** @type {number} */ at) => {
      if (lag === null) return;
      const shade = lag === 0 ? 0 : 1 + Math.round((SHADES - 2) * Math.log(lag) / Math.max(Math.log(most), 1));
      context.fillStyle = style.getPropertyValue(`--heat-${Math.min(shade, SHADES - 1)}`).trim();
      context.fillRect(column(at) * 6, 0, 5, ROW_PX);
    });
    return canvas;
  }
}
customElements.define("ob-heat", Heat);
