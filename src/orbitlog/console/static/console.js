// @ts-check
// Keys, theme, pause of live updates, and the notice when the console does not answer.
import "./chart.js";
import "./heat.js";
import "./tail.js";

const KEYS_OFF = "orbitlog-keys-off";
const stored = {
  /** @param {string} name */
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  /** @param {string} name @param {string} value */
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* storage is switched off */ } },
};

// Theme
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.scheme = isDark ? "light" : "dark";
  stored.set("orbitlog-scheme", root.dataset.scheme);
});

// Live updates
const pause = document.getElementById("pause");
let isPaused = false;
function togglePause() {
  if (!pause) return;
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  pause.textContent = isPaused ? "paused" : "live";
}
pause?.addEventListener("click", togglePause);
document.addEventListener("htmx:before:request", (event) => {
  const target = event.target;
  if (target instanceof Element && target.id === "live" && (isPaused || document.hidden)) event.preventDefault();
});
const lost = document.getElementById("lost");
/** @param {boolean} isLost */
function showLost(isLost) {
  if (lost) lost.hidden = !isLost;
  document.getElementById("live")?.classList.toggle("stale", isLost);
}
document.addEventListener("htmx:error", () => showLost(true));
document.addEventListener("htmx:after:request", () => showLost(false));

// The last message sent to a topic, for this tab only
const form = document.querySelector("form[data-remember]");
if (form instanceof HTMLFormElement) {
  const name = `orbitlog-form ${form.dataset.remember}`;
  const fields = () => /** @type {(HTMLInputElement | HTMLTextAreaElement)[]} */ ([...form.querySelectorAll("input:not([type=hidden]), textarea")]);
  try {
    const last = JSON.parse(sessionStorage.getItem(name) ?? "{}");
    if (fields().every((field) => field.value === field.defaultValue && (field.value === "" || field.value === "0"))) {
      for (const field of fields()) if (typeof last[field.name] === "string") field.value = last[field.name];
    }
    form.addEventListener("submit", () => {
      sessionStorage.setItem(name, JSON.stringify(Object.fromEntries(fields().map((field) => [field.name, field.value]))));
    });
  } catch { /* storage is switched off, or full */ }
}

// Help
const help = document.getElementById("help");
const keysOff = document.getElementById("keys-off");
if (keysOff instanceof HTMLInputElement) {
  keysOff.checked = stored.get(KEYS_OFF) === "yes";
  keysOff.addEventListener("change", () => stored.set(KEYS_OFF, keysOff.checked ? "yes" : "no"));
}
function openHelp() { if (help instanceof HTMLDialogElement && !help.open) help.showModal(); }
document.getElementById("help-open")?.addEventListener("click", openHelp);

// Keys
/** @param {number} step */
function moveInTable(step) {
  const links = [...document.querySelectorAll("main table.rows tbody th a")];
  if (!links.length) return;
  const at = links.indexOf(/** @type {Element} */ (document.activeElement));
  const next = links[Math.min(Math.max(at + step, 0), links.length - 1)];
  if (next instanceof HTMLElement) next.focus();
}
let isGoing = false;
document.addEventListener("keydown", (event) => {
  const target = event.target;
  // A dialog that Escape has just closed keeps the focus until the next frame is drawn; it is hidden by then.
  const isTyping = target instanceof Element && target.checkVisibility() && target.closest("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || stored.get(KEYS_OFF) === "yes") return;
  if (isGoing) {
    isGoing = false;
    const link = document.querySelector(`nav.side a[data-key="${CSS.escape(event.key)}"]`);
    if (link instanceof HTMLAnchorElement) { event.preventDefault(); location.href = link.href; }
    return;
  }
  const actions = {
    g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1500); },
    "/": () => document.getElementById("q")?.focus(),
    j: () => moveInTable(1),
    k: () => moveInTable(-1),
    p: togglePause,
    "?": openHelp,
  };
  const action = actions[/** @type {keyof typeof actions} */ (event.key)];
  if (action) { event.preventDefault(); action(); }
});
