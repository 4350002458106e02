// Makes pages more comfortable; each of them works without it.
//
// Live: the page is asked for again, and the parts that changed are put in place. Times: UTC or the browser's own.
// Charts: what was measured at the pointer, or at the arrow keys. Tables: sorted by a click on a head.
"use strict";

const EVERY_MS = 3000;
const kept = {
  get(name) {
    try {
      return localStorage.getItem(`sparkbolt-${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`sparkbolt-${name}`, value);
    } catch {
      // it is forgotten with the page
    }
  },
};

// ---- theme

const THEMES = ["system", "light", "dark"];

function setUpTheme() {
  const button = document.getElementById("switch-theme");
  let theme = THEMES.includes(kept.get("theme")) ? kept.get("theme") : "system";
  const show = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    kept.set("theme", theme);
    show();
  });
  button.hidden = false;
  show();
}

// ---- times

const two = (number) => String(number).padStart(2, "0");
const day = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
let isLocal = kept.get("time") === "local";

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    element.dataset.utc ??= element.textContent;
    const local = element.className === "clock" ? clock(at) : `${day(at)} ${clock(at)}`;
    element.textContent = isLocal ? local : element.dataset.utc;
    const utc = at.toISOString().replace("T", " ").replace("Z", " UTC");
    element.title = `${utc}\n${day(at)} ${clock(at)} local time`;
  }
  for (const element of root.querySelectorAll("text[data-time]")) {
    const at = new Date(Number(element.dataset.time));
    element.dataset.utc ??= element.textContent;
    const local =
      element.dataset.as === "day"
        ? at.toLocaleDateString("en-GB", { day: "2-digit", month: "short" })
        : `${two(at.getHours())}:${two(at.getMinutes())}`;
    element.textContent = isLocal ? local : element.dataset.utc;
  }
}

function setUpTimes() {
  const button = document.getElementById("switch-time");
  const show = () => {
    button.textContent = isLocal ? "Local time" : "UTC";
    showTimes(document);
  };
  button.addEventListener("click", () => {
    isLocal = !isLocal;
    kept.set("time", isLocal ? "local" : "utc");
    show();
  });
  button.hidden = false;
  show();
}

// ---- live

function replacePart(part, fresh) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  if (active && active.matches("input, textarea, select")) return; // nobody's typing is taken away
  const places = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  const opened = new Set([...part.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
  const chosen = [...part.querySelectorAll("input[type=checkbox]:checked")].map((one) => one.name);
  const key = active && (active.getAttribute("href") || active.getAttribute("aria-label") || active.textContent);
  const copy = document.importNode(fresh, true);
  part.replaceWith(copy);
  setUp(copy);
  copy.querySelectorAll(".scroll").forEach((box, index) => {
    if (places[index]) [box.scrollLeft, box.scrollTop] = places[index];
  });
  for (const summary of copy.querySelectorAll("details > summary")) {
    if (opened.has(summary.textContent)) summary.parentElement.open = true;
  }
  for (const box of copy.querySelectorAll("input[type=checkbox]")) if (chosen.includes(box.name)) box.checked = true;
  if (key) {
    const same = [...copy.querySelectorAll("a, button, summary, [tabindex]")].find(
      (one) => (one.getAttribute("href") || one.getAttribute("aria-label") || one.textContent) === key,
    );
    if (same) same.focus({ preventScroll: true });
  }
}

const sources = new WeakMap(); // part -> its HTML as the server sent it

async function refresh(say) {
  let answer;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10000) });
  } catch {
    say("The server does not answer; trying again.");
    return;
  }
  if (!answer.ok) {
    say(`The server answered with ${answer.status}; trying again.`);
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-part]")) {
    const fresh = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!fresh) continue;
    const html = fresh.outerHTML;
    if (sources.get(part) === html) continue;
    if (part.querySelector("[data-chart]:hover, [data-chart]:focus")) continue;
    replacePart(part, fresh);
    sources.set(document.querySelector(`[data-part="${part.dataset.part}"]`), html);
  }
  const now = page.querySelector("footer time");
  const old = document.querySelector("footer time");
  if (now && old) {
    old.replaceWith(document.importNode(now, true));
    showTimes(document.querySelector("footer"));
  }
  say("");
}

function setUpLive() {
  const button = document.getElementById("switch-live");
  // The answer to a form has no URL of its own that it could be renewed from.
  if (!document.querySelector("[data-part]") || document.body.hasAttribute("data-still")) return;
  let isLive = kept.get("live") !== "no";
  let isAsking = false;
  const state = document.getElementById("live-state");
  const say = (text) => {
    if (state.textContent !== text) state.textContent = text;
  };
  const show = () => {
    button.textContent = isLive ? "Live" : "Paused";
    button.setAttribute("aria-pressed", String(isLive));
  };
  button.addEventListener("click", () => {
    isLive = !isLive;
    kept.set("live", isLive ? "yes" : "no");
    show();
  });
  button.hidden = false;
  show();
  setInterval(async () => {
    if (!isLive || document.hidden || isAsking) return;
    isAsking = true;
    await refresh(say);
    isAsking = false;
  }, EVERY_MS);
}

// ---- charts

const UNITS = {
  rate: (value) => `${brief(value)} /s`,
  count: brief,
  share: (value) => `${Math.round(100 * value)} %`,
  ms: (value) => (value < 1000 ? `${Number(value.toPrecision(3))} ms` : `${(value / 1000).toFixed(2)} s`),
  size: (value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let index = 0;
    for (; value >= 1024 && index < 4; index++) value /= 1024;
    return `${value < 10 && index ? value.toFixed(1) : Math.round(value)} ${units[index]}`;
  },
};

function brief(value) {
  for (const [from, scale, letter] of [
    [1e9, 1e9, "G"],
    [1e6, 1e6, "M"],
    [1e4, 1e3, "k"],
  ]) {
    if (Math.abs(value) >= from) return `${Number((value / scale).toPrecision(3))} ${letter}`;
  }
  return Number.isInteger(value) || Math.abs(value) >= 100
    ? Math.round(value).toLocaleString("en")
    : String(Number(value.toPrecision(3)));
}

const PLOT = { right: 400, top: 14, bottom: 152, width: 420 };

function setUpChart(figure) {
  const data = JSON.parse(figure.dataset.chart);
  const svg = figure.querySelector("svg");
  const readout = figure.querySelector(".readout");
  const first = data.times[0];
  const last = data.times[data.times.length - 1];
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");
  svg.append(cursor);
  let index = data.times.length - 1;
  const show = () => {
    const x = data.left + ((PLOT.right - data.left) * (data.times[index] - first)) / (last - first || 1);
    cursor.setAttribute("d", `M${x.toFixed(1)},${PLOT.top}V${PLOT.bottom}`);
    const at = new Date(data.times[index]);
    const time = isLocal ? `${day(at)} ${clock(at)}` : `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    const values = data.lines.map(({ name, values }) => {
      const value = values[index];
      return `${name} ${value === null ? "not measured" : UNITS[data.unit](value)}`;
    });
    readout.textContent = `${time}: ${values.join(", ")}`;
    figure.classList.add("reading");
  };
  const hide = () => {
    cursor.removeAttribute("d");
    readout.textContent = "";
    figure.classList.remove("reading");
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) * PLOT.width) / box.width;
    const wanted = first + ((last - first) * (x - data.left)) / (PLOT.right - data.left);
    index = data.times.reduce(
      (best, time, here) => (Math.abs(time - wanted) < Math.abs(data.times[best] - wanted) ? here : best),
      0,
    );
    show();
  });
  svg.addEventListener("pointerleave", hide);
  figure.tabIndex = 0;
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -data.times.length, End: data.times.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    index = Math.max(0, Math.min(data.times.length - 1, index + step));
    show();
  });
  figure.addEventListener("blur", hide);
}

// ---- tables

function valueOf(cell) {
  const time = cell.querySelector("time");
  if (time) return Date.parse(time.dateTime);
  const text = cell.textContent.trim();
  const found = /^(-?[\d,]*\.?\d+)\s*([a-zA-Z%/]*)/.exec(text.replaceAll("\u00a0", " "));
  if (!found) return text === "–" ? -Infinity : text;
  const scale = { k: 1e3, M: 1e6, G: 1e9, s: 1e3, min: 6e4, h: 36e5, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
  return Number(found[1].replaceAll(",", "")) * (scale[found[2]] ?? 1);
}

function sortTable(table, column, isDown) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  rows.sort((one, other) => {
    const [a, b] = [valueOf(one.cells[column]), valueOf(other.cells[column])];
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return isDown ? -order : order;
  });
  body.append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
}

const sortings = new Map(); // a table's label -> [column, is down]

function setUpTable(table) {
  const label = table.parentElement.getAttribute("aria-label");
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = sortings.get(label);
      const isDown = before && before[0] === column ? !before[1] : head.classList.contains("n");
      sortings.set(label, [column, isDown]);
      sortTable(table, column, isDown);
    });
  });
  if (sortings.has(label)) sortTable(table, ...sortings.get(label));
}

// ---- choosing many

function setUpTicks() {
  const all = document.getElementById("tick-all");
  if (!all) return;
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of all.form.querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
  });
}

// ---- the login with a link, as `sparkbolt ui` prints it

function logIn() {
  const field = document.getElementById("token");
  if (!field || !location.hash.startsWith("#token=")) return;
  field.value = decodeURIComponent(location.hash.slice("#token=".length));
  history.replaceState(null, "", location.pathname + location.search); // the token stays in no history
  field.form.submit();
}

function setUp(root) {
  showTimes(root);
  root.querySelectorAll("figure[data-chart]").forEach(setUpChart);
  root.querySelectorAll("table[data-sort]").forEach(setUpTable);
}

for (const part of document.querySelectorAll("[data-part]")) sources.set(part, part.outerHTML);
setUpTheme();
setUpTimes();
setUp(document);
setUpTicks();
setUpLive();
logIn();
