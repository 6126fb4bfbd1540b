// @ts-check
// <ob-tail data-source="URL" data-root="PATH">: new messages as they arrive, at most 1,000 rows, drops counted.

const ROWS_MAX = 1000;

class Tail extends HTMLElement {
  /** @type {EventSource | null} */
  #source = null;
  #isPaused = false;
  #missed = 0;
  #shown = 0;

  connectedCallback() {
    this.replaceChildren();
    const bar = document.createElement("p");
    bar.className = "toolbar";
    this.status = document.createElement("span");
    this.status.setAttribute("role", "status");
    this.status.textContent = "connecting";
    const pause = document.createElement("button");
    pause.type = "button";
    pause.textContent = "Pause";
    pause.setAttribute("aria-pressed", "false");
    pause.addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      pause.setAttribute("aria-pressed", String(this.#isPaused));
    });
    const clear = document.createElement("button");
    clear.type = "button";
    clear.textContent = "Clear";
    clear.addEventListener("click", () => this.body?.replaceChildren());
    bar.append(pause, clear, this.status);
    const table = document.createElement("table");
    table.className = "rows";
    const head = table.createTHead().insertRow();
    for (const text of ["stored (UTC)", "queue", "offset", "keys", "tags", "body"]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      head.append(cell);
    }
    this.body = table.createTBody();
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Messages");
    scroll.append(table);
    this.append(bar, scroll);
    this.#open();
    document.addEventListener("visibilitychange", this.#onVisible);
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#onVisible);
    this.#source?.close();
  }

  #onVisible = () => {
    if (document.hidden) { this.#source?.close(); this.#source = null; this.#say("stopped while the page is hidden"); } else if (!this.#source) this.#open();
  };

  #open() {
    this.#source = new EventSource(this.dataset.source ?? "");
    this.#source.onmessage = (event) => this.#add(JSON.parse(event.data));
    this.#source.onerror = () => this.#say("connection lost; reconnecting");
  }

  /** @param {any} event */
  #add(event) {
    if (this.#isPaused) this.#missed += event.messages.length;
    else for (const message of event.messages) this.#row(message);
    const words = [`${this.#shown.toLocaleString("en")} shown`, `${event.seen.toLocaleString("en")} seen`];
    if (event.dropped) words.push(`${event.dropped.toLocaleString("en")} dropped: narrow the filter`);
    if (this.#missed) words.push(`${this.#missed.toLocaleString("en")} not shown while paused`);
    if (event.problem) words.push(event.problem);
    this.#say(words.join(", "));
  }

  /** @param {any} message */
  #row(message) {
    if (!this.body) return;
    this.#shown += 1;
    const row = this.body.insertRow(0);
    const first = document.createElement("th");
    first.scope = "row";
    const link = document.createElement("a");
    link.href = `${this.dataset.root}/messages/${encodeURIComponent(message.offsetMsgId)}?topic=${encodeURIComponent(message.topic)}`;
    link.textContent = new Date(message.storeTimestamp).toISOString().replace("T", " ").replace("Z", "");
    first.append(link);
    row.append(first);
    for (const text of [`${message.broker} ${message.queueId}`, message.queueOffset, message.keys ?? "", message.tags ?? "", message.preview]) {
      row.insertCell().textContent = String(text);
    }
    while (this.body.rows.length > ROWS_MAX) this.body.deleteRow(-1);
  }

  /** @param {string} text */
  #say(text) { if (this.status) this.status.textContent = text; }
}
customElements.define("ob-tail", Tail);
